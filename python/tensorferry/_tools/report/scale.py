"""Logarithmic scales, where their ticks are, and how sizes, times and ratios are written."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

# Between a number and its unit: they stay on one line.
GAP = "\N{NO-BREAK SPACE}"
MANY = "\N{MULTIPLICATION SIGN}"
BINARY = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
TIMES = ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s"))
RATES = ((1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s"), (1e12, "TB/s"), (1e15, "PB/s"))


@dataclass(frozen=True)
class LogScale:
    """Maps values from `low` to `high` to 0 to 1 by their logarithm."""

    low: float
    high: float

    def position(self, value: float) -> float:
        """Where a value lies: 0 at the low end, 1 at the high end."""
        return math.log(value / self.low) / math.log(self.high / self.low)


def around(values: Iterable[float], *, least: float = 10.0, room: float = 0.06) -> LogScale:
    """The scale that shows all the values with room at both ends.

    `least` is the smallest factor between the ends, so that noise does not fill a whole plot.
    """
    known = list(values)
    low, high = min(known), max(known)
    missing = max(1.0, least / (high / low)) ** 0.5
    low, high = low / missing, high * missing
    margin = (high / low) ** room
    return LogScale(low / margin, high * margin)


def ticks(scale: LogScale, most: int = 7) -> list[float]:
    """Round values to label: powers of ten, or 1, 2 and 5 where those would be few."""
    first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
    decades = [10.0**power for power in range(first, last + 1)]
    inside = [value for value in decades if scale.low <= value <= scale.high]
    if len(inside) < 3:
        finer = [value * step for value in decades for step in (1, 2, 5)]
        return [value for value in finer if scale.low <= value <= scale.high]
    step = math.ceil(len(inside) / most)
    return [value for value in inside if round(math.log10(value)) % step == 0]


def spaced(positions: Sequence[float], least: float) -> set[int]:
    """Which of the positions, in rising order, can be labelled with `least` between neighbours.

    The last one is always labelled: what matters most happens at the largest size.
    """
    chosen: set[int] = set()
    edge = math.inf
    for index in reversed(range(len(positions))):
        if edge - positions[index] >= least:
            chosen.add(index)
            edge = positions[index]
    return chosen


def figure(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, without an exponent: 0.0123, 5.03, 1,230."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{min(decimals, 12)}f}"


def plain(value: float) -> str:
    """A number as short as it can be written: 4, 1.5."""
    text = figure(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def size(count: float) -> str:
    """Bytes: 4 KiB, 1.5 MiB."""
    if count == 1:
        return f"1{GAP}byte"
    power = 0
    while count >= 1024 and power < len(BINARY) - 1:
        count, power = count / 1024, power + 1
    return f"{plain(count)}{GAP}{BINARY[power]}"


def duration(seconds: float) -> str:
    """A time with three digits: 542 ns, 5.03 µs, 12.0 ms."""
    return _with_unit(seconds, TIMES, figure)


def rate(bytes_per_second: float) -> str:
    """A bandwidth with three digits: 20.7 GB/s."""
    return _with_unit(bytes_per_second, RATES, figure)


def duration_tick(seconds: float) -> str:
    """A time on an axis: 1 µs, 20 ms."""
    return _with_unit(seconds, TIMES, plain)


def rate_tick(bytes_per_second: float) -> str:
    """A bandwidth on an axis: 1 GB/s."""
    return _with_unit(bytes_per_second, RATES, plain)


def ratio(value: float) -> str:
    """How many times, with two digits: 1/250, 0.97, 1.0, 9.8, 33, 1,200."""
    if value >= 9.95:
        return figure(value, 2)
    if value >= 0.995:
        return f"{value:.1f}"
    if value >= 0.00995:
        return figure(value, 2)
    return f"1/{figure(1 / value, 2)}"


def times(value: float) -> str:
    """A ratio with its sign, for tables and axes."""
    return ratio(value) + MANY


def between(low: str, high: str) -> str:
    """A range in words, or the one value where both ends read the same; the unit only once."""
    if low == high:
        return low
    number, gap, unit = low.partition(GAP)
    if gap and high.endswith(gap + unit):
        return f"{number} to {high}"
    return f"{low} to {high}"


def _with_unit(
    value: float, units: Sequence[tuple[float, str]], write: Callable[[float], str]
) -> str:
    rounded = float(f"{value:.3g}")
    fitting = [pair for pair in units if rounded >= pair[0] * (1 - 1e-9)]
    factor, unit = fitting[-1] if fitting else units[0]
    return f"{write(value / factor)}{GAP}{unit}"
