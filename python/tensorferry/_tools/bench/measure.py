"""Timing of several methods under varying load.

All methods of a cell are measured in alternating rounds: one batch of calls of each method per
round, in forward and reverse order by turns, so that load affects all of them. The garbage
collector is disabled. A method that has used up its time skips the remaining rounds. Results are
released immediately.
"""

import contextlib
import gc
import statistics
import time
import timeit
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

# Calls a method the given number of times, and returns the seconds.
Timer = Callable[[int], float]

MAX_ROUNDS = 15
MIN_ROUNDS = 3


class Timing(NamedTuple):
    """Seconds per call in each round, and the total number of calls."""

    rounds: list[float]
    calls: int

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """The lower quartile, the median and the upper quartile."""
        low, median, high = statistics.quantiles(self.rounds, n=4, method="inclusive")
        return low, median, high


def make_timer(
    code: str,
    names: Mapping[str, Any],
    *,
    fresh: str = "",
    synchronise: Callable[[], None] | None = None,
) -> Timer:
    """A timer of an expression whose result is released.

    `fresh` runs before each call and is not timed. `synchronise` waits for the device: the time is
    measured from an idle device to an idle device.
    """
    if synchronise is None and not fresh:
        return timeit.Timer(code, globals=dict(names)).timeit
    wait = synchronise or (lambda: None)
    setup = f"{fresh or 'pass'}; synchronise()"
    timer = timeit.Timer(code, setup=setup, globals={**names, "synchronise": wait})

    def timed(calls: int) -> float:
        took = timer.timeit(calls)
        begin = time.perf_counter()
        wait()
        return took + time.perf_counter() - begin

    def one_by_one(calls: int) -> float:
        return sum(timed(1) for _ in range(calls))

    return one_by_one if fresh else timed


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Collects garbage now, and disables the collector in the block."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def time_alternating(
    timers: Mapping[str, Timer],
    seconds: float,
    *,
    progress: Callable[[float], None] = lambda share: None,
) -> dict[str, Timing]:
    """Measures all methods in alternating rounds, each for about `seconds`."""
    with collector_off():
        calls = {name: _calls_for(timer, seconds / MAX_ROUNDS) for name, timer in timers.items()}
        rounds: dict[str, list[float]] = {name: [] for name in timers}
        spent = dict.fromkeys(timers, 0.0)
        for number in range(MAX_ROUNDS):
            names = list(timers)[:: 1 if number % 2 == 0 else -1]
            for name in names:
                if spent[name] >= seconds and number >= MIN_ROUNDS:
                    continue
                took = timers[name](calls[name])
                spent[name] += took
                rounds[name].append(took / calls[name])
            progress((number + 1) / MAX_ROUNDS)
    return {name: Timing(found, len(found) * calls[name]) for name, found in rounds.items()}


def _calls_for(timer: Timer, seconds: float) -> int:
    """The number of calls that take about `seconds`; also warms up the method."""
    calls = 1
    while (took := timer(calls)) < seconds / 4:
        calls *= 4
    return max(1, round(calls * seconds / took))
