"""Timing that is fair on a machine that is never quite still.

Everything that is compared is measured in turns: one batch of each candidate a round, forwards in
even rounds and backwards in odd ones, so that a slow second hits all of them alike. A ratio is the
median over the rounds of the ratio within a round. The garbage collector is off meanwhile, and each
candidate has run before the first round counts.
"""

import statistics
import time
import timeit
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tensorferry._tools.bench.measure import collector_off

# Runs a job so many times and gives the seconds that it took.
Timed = Callable[[int], float]


@dataclass(frozen=True)
class Samples:
    """Seconds per call, one figure for each round."""

    rounds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


def expression(source: str, names: Mapping[str, Any]) -> Timed:
    """A job that evaluates one Python expression and drops the result, without a call around it."""
    return timeit.Timer(source, globals=dict(names)).timeit


def calls_for(job: Timed, seconds: float) -> int:
    """How many calls take about so many seconds; warms the job up on the way."""
    calls = 1
    job(1)
    while (took := job(calls)) < seconds / 4:
        calls *= 4
    return max(1, round(calls * seconds / took))


def interleave(
    jobs: Mapping[str, Timed], *, rounds: int, batch: float, budget: float
) -> dict[str, Samples]:
    """Measures all jobs in turns, in batches of about `batch` seconds.

    It ends after `rounds` rounds, or from the third round on when `budget` seconds are spent.
    """
    with collector_off():
        calls = {name: calls_for(job, batch) for name, job in jobs.items()}
        return _rounds(jobs, calls, rounds=rounds, budget=budget)


def interleave_cold(jobs: Mapping[str, Timed], *, rounds: int) -> dict[str, Samples]:
    """Measures all jobs in turns, one call at a time and without a warm-up."""
    with collector_off():
        return _rounds(jobs, dict.fromkeys(jobs, 1), rounds=rounds, budget=float("inf"))


def _rounds(
    jobs: Mapping[str, Timed], calls: Mapping[str, int], *, rounds: int, budget: float
) -> dict[str, Samples]:
    samples: dict[str, list[float]] = {name: [] for name in jobs}
    names = list(jobs)
    end = time.perf_counter() + budget
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            samples[name].append(jobs[name](calls[name]) / calls[name])
        if turn >= 2 and time.perf_counter() > end:
            break
    return {name: Samples(figures) for name, figures in samples.items()}


def _ratios(ours: Samples, theirs: Samples) -> list[float]:
    return [a / b for a, b in zip(ours.rounds, theirs.rounds, strict=True)]


def ratio(ours: Samples, theirs: Samples) -> float:
    """How long ours takes for each second of theirs."""
    return statistics.median(_ratios(ours, theirs))


def spread(ours: Samples, theirs: Samples) -> float:
    """How far the middle half of the rounds lies apart, as a share of the ratio."""
    figures = _ratios(ours, theirs)
    if len(figures) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(figures, n=4, method="inclusive")
    return (high - low) / middle


def quickest(samples: Mapping[str, Samples]) -> str:
    """The name of the candidate with the least median."""
    return min(samples, key=lambda name: samples[name].median)


def variation(figures: list[float]) -> float:
    """From the second smallest to the second largest figure, as a share of the median."""
    inner = sorted(figures)[1:-1]
    return (inner[-1] - inner[0]) / statistics.median(figures)


def verdict(figure: float, limit: float) -> str:
    return "pass" if figure <= limit else "MISS"
