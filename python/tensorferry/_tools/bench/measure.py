"""Timing that is fair on a machine that is never quite still.

All methods of a cell are measured in turns, one batch of each in a round, forwards and backwards by
turns, so that a slow second hits all of them alike. The garbage collector is off meanwhile. A
method that has used up its time sits out the rounds that are left. Results are dropped at once.
"""

import contextlib
import gc
import statistics
import time
import timeit
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

# Runs a method so many times, and gives the seconds that it took.
Job = Callable[[int], float]

ROUNDS = 15
LEAST_ROUNDS = 3


class Timing(NamedTuple):
    """Seconds of a call in each round, and how many calls that were in all."""

    rounds: list[float]
    calls: int

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """The lower quartile, the median and the upper quartile."""
        low, median, high = statistics.quantiles(self.rounds, n=4, method="inclusive")
        return low, median, high


def job(
    code: str,
    names: Mapping[str, Any],
    *,
    fresh: str = "",
    synchronise: Callable[[], None] | None = None,
) -> Job:
    """A job that runs a piece of code and drops what it gives.

    `fresh` is run before each call, and not timed. `synchronise` waits for the device: the time
    runs from an idle device to an idle device.
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
    """Collects the garbage now, and none until the end of the block."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def take_turns(
    jobs: Mapping[str, Job],
    seconds: float,
    *,
    progress: Callable[[float], None] = lambda share: None,
) -> dict[str, Timing]:
    """Measures all jobs in rounds, each for about so many seconds; tells how far it is."""
    with collector_off():
        calls = {name: _calls_for(job, seconds / ROUNDS) for name, job in jobs.items()}
        rounds: dict[str, list[float]] = {name: [] for name in jobs}
        spent = dict.fromkeys(jobs, 0.0)
        for number in range(ROUNDS):
            names = list(jobs)[:: 1 if number % 2 == 0 else -1]
            for name in names:
                if spent[name] >= seconds and number >= LEAST_ROUNDS:
                    continue
                took = jobs[name](calls[name])
                spent[name] += took
                rounds[name].append(took / calls[name])
            progress((number + 1) / ROUNDS)
    return {name: Timing(found, len(found) * calls[name]) for name, found in rounds.items()}


def _calls_for(job: Job, seconds: float) -> int:
    """How many calls take about so many seconds; warms the job up on the way."""
    calls = 1
    while (took := job(calls)) < seconds / 4:
        calls *= 4
    return max(1, round(calls * seconds / took))
