"""The timing loop of `tensorferry bench` and of the suites in `benches/`.

Methods that are compared are measured in alternating rounds: one batch of calls of each method per
round, in forward and reverse order by turns, so that load affects all of them. The garbage
collector is disabled.

There are three ways to end the rounds. `time_alternating` gives each method its own time: a method
that has used it up skips the remaining rounds. `interleave` and `interleave_cold` measure every
method in every round, which the ratios of `timings` need.
"""

import contextlib
import gc
import math
import time
import timeit
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tensorferry._tools.bench.timings import Timing

# Calls a method the given number of times, and returns the seconds.
Timer = Callable[[int], float]

MAX_ROUNDS = 15
MIN_ROUNDS = 3


def make_timer(
    code: str,
    names: Mapping[str, Any],
    *,
    fresh: str = "",
    synchronise: Callable[[], object] | None = None,
) -> Timer:
    """A timer of an expression whose result is released immediately.

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


def make_call_timer(work: Callable[[], Any], synchronise: Callable[[], object]) -> Timer:
    """A timer of a function, each call from an idle device to an idle device.

    The result of a call is released after its time was taken.
    """

    def timed(calls: int) -> float:
        seconds = 0.0
        for _ in range(calls):
            synchronise()
            begin = time.perf_counter()
            result = work()
            synchronise()
            seconds += time.perf_counter() - begin
            del result
        return seconds

    return timed


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


def round_order(names: Iterable[str], number: int) -> list[str]:
    """The names in the order of round `number`."""
    return list(names)[:: 1 if number % 2 == 0 else -1]


def time_alternating(
    timers: Mapping[str, Timer],
    seconds: float,
    *,
    progress: Callable[[float], None] = lambda share: None,
) -> dict[str, Timing]:
    """Measures all methods in alternating rounds, each for about `seconds`."""
    with collector_off():
        calls = {name: _calls_for(timer, seconds / MAX_ROUNDS) for name, timer in timers.items()}
        return _time_rounds(
            timers, calls, rounds=MAX_ROUNDS, method_seconds=seconds, progress=progress
        )


def interleave(
    timers: Mapping[str, Timer], *, rounds: int, batch: float, budget: float = math.inf
) -> dict[str, Timing]:
    """Measures all methods in every round, after a warm-up, in batches of about `batch` seconds.

    A batch of 0 seconds is one call. The rounds end early, but not before the third, when `budget`
    seconds are spent.
    """
    with collector_off():
        for timer in timers.values():
            timer(1)
        calls = {name: _calls_for(timer, batch) for name, timer in timers.items()}
        return _time_rounds(timers, calls, rounds=rounds, budget=budget)


def interleave_cold(timers: Mapping[str, Timer], *, rounds: int) -> dict[str, Timing]:
    """Measures all methods in every round, one call at a time and without a warm-up."""
    with collector_off():
        return _time_rounds(timers, dict.fromkeys(timers, 1), rounds=rounds)


def _time_rounds(
    timers: Mapping[str, Timer],
    calls: Mapping[str, int],
    *,
    rounds: int,
    method_seconds: float = math.inf,
    budget: float = math.inf,
    progress: Callable[[float], None] = lambda share: None,
) -> dict[str, Timing]:
    found: dict[str, list[float]] = {name: [] for name in timers}
    spent = dict.fromkeys(timers, 0.0)
    end = time.perf_counter() + budget
    for number in range(rounds):
        for name in round_order(timers, number):
            if spent[name] >= method_seconds and number >= MIN_ROUNDS:
                continue
            took = timers[name](calls[name])
            spent[name] += took
            found[name].append(took / calls[name])
        progress((number + 1) / rounds)
        if number + 1 >= MIN_ROUNDS and time.perf_counter() > end:
            break
    return {name: Timing(seconds, len(seconds) * calls[name]) for name, seconds in found.items()}


def _calls_for(timer: Timer, seconds: float) -> int:
    """The number of calls that take about `seconds`."""
    calls = 1
    while (took := timer(calls)) < seconds / 4:
        calls *= 4
    return max(1, round(calls * seconds / took))
