"""Timings of methods that were measured in the same rounds, and statistics of them.

Load on the machine changes from round to round and affects all methods of a round. Two methods are
therefore compared within each round, and the median over the rounds is the result.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Timing(NamedTuple):
    """Seconds per call in each round, and the total number of calls."""

    rounds: list[float]
    calls: int

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rounds)

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """The lower quartile, the median and the upper quartile."""
        return _quartiles(self.rounds)


def join(timings: Iterable[Timing]) -> Timing:
    """One timing with the rounds of all: measurements of one method in several processes."""
    found = list(timings)
    rounds = [seconds for timing in found for seconds in timing.rounds]
    return Timing(rounds, sum(timing.calls for timing in found))


def quickest(timings: Mapping[str, Timing]) -> str:
    """The name of the method with the smallest median."""
    return min(timings, key=lambda name: timings[name].median)


def ratio(ours: Timing, theirs: Timing) -> float:
    """The time of ours divided by the time of theirs."""
    return statistics.median(_ratios(ours, theirs))


def spread(ours: Timing, theirs: Timing) -> float:
    """The interquartile range of the ratio, relative to its median; 0 for a single round."""
    found = _ratios(ours, theirs)
    if len(found) < 2:
        return 0.0
    low, median, high = _quartiles(found)
    return (high - low) / median


CONFIDENCE = 0.95


def interval(ours: Timing, theirs: Timing) -> tuple[float, float, float]:
    """The median of the ratio, between the ends of its 95% confidence interval.

    The interval assumes nothing about the distribution: its ends are the order statistics between
    which the median lies with that probability. With fewer than six rounds, no interval has that
    probability, and all ratios lie in it. Rounds that only one method has are left out.
    """
    found = sorted(a / b for a, b in zip(ours.rounds, theirs.rounds, strict=False))
    count, outside, rank = len(found), 0.0, 0
    while rank < count // 2:
        outside += math.comb(count, rank) / 2**count
        if 2 * outside > 1 - CONFIDENCE:
            break
        rank += 1
    first = max(rank - 1, 0)
    return found[first], statistics.median(found), found[-1 - first]


def difference(ours: Timing, theirs: Timing) -> float:
    """The time of ours minus the time of theirs, in seconds."""
    return statistics.median(a - b for a, b in zip(ours.rounds, theirs.rounds, strict=True))


def _ratios(ours: Timing, theirs: Timing) -> list[float]:
    return [a / b for a, b in zip(ours.rounds, theirs.rounds, strict=True)]


def _quartiles(figures: Sequence[float]) -> tuple[float, float, float]:
    low, median, high = statistics.quantiles(figures, n=4, method="inclusive")
    return low, median, high
