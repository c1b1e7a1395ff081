"""Logarithmic scales, their ticks, and the formatting of sizes, times and ratios."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

# Between a number and its unit, so that they stay on one line.
NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"
TIMES_SIGN = "\N{MULTIPLICATION SIGN}"
SIZE_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
TIME_UNITS = ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s"))
RATE_UNITS = (
    (1.0, "B/s"),
    (1e3, "kB/s"),
    (1e6, "MB/s"),
    (1e9, "GB/s"),
    (1e12, "TB/s"),
    (1e15, "PB/s"),
)


@dataclass(frozen=True)
class LogScale:
    """Maps values between `low` and `high` to the range 0 to 1 by their logarithm."""

    low: float
    high: float

    def position(self, value: float) -> float:
        """The position of a value: 0 at the low end, 1 at the high end."""
        return math.log(value / self.low) / math.log(self.high / self.low)


def around(values: Iterable[float], *, min_factor: float = 10.0, margin: float = 0.06) -> LogScale:
    """A scale that includes all values, with a margin at both ends.

    `min_factor` is the minimum factor between the ends, so that noise does not fill a plot.
    """
    known = list(values)
    low, high = min(known), max(known)
    missing = max(1.0, min_factor / (high / low)) ** 0.5
    low, high = low / missing, high * missing
    padding = (high / low) ** margin
    return LogScale(low / padding, high * padding)


def ticks(scale: LogScale, max_count: int = 7) -> list[float]:
    """Round values to label: powers of ten, or 1, 2 and 5 times those if there are few."""
    first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
    decades = [10.0**power for power in range(first, last + 1)]
    inside = [value for value in decades if scale.low <= value <= scale.high]
    if len(inside) < 3:
        finer = [value * step for value in decades for step in (1, 2, 5)]
        return [value for value in finer if scale.low <= value <= scale.high]
    step = math.ceil(len(inside) / max_count)
    return [value for value in inside if round(math.log10(value)) % step == 0]


def spaced(positions: Sequence[float], min_distance: float) -> set[int]:
    """The indices of ascending positions that are at least `min_distance` apart.

    The last position is always included: the largest size matters most.
    """
    chosen: set[int] = set()
    edge = math.inf
    for index in reversed(range(len(positions))):
        if edge - positions[index] >= min_distance:
            chosen.add(index)
            edge = positions[index]
    return chosen


def figure(value: float, digits: int = 3) -> str:
    """A number with `digits` significant digits, without exponent: 0.0123, 5.03, 1,230."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{min(decimals, 12)}f}"


def decimal_text(value: float) -> str:
    """A number without trailing zeros: 4, 1.5."""
    text = figure(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def size(count: float) -> str:
    """Bytes: 4 KiB, 1.5 MiB."""
    if count == 1:
        return f"1{NO_BREAK_SPACE}byte"
    power = 0
    while count >= 1024 and power < len(SIZE_UNITS) - 1:
        count, power = count / 1024, power + 1
    return f"{decimal_text(count)}{NO_BREAK_SPACE}{SIZE_UNITS[power]}"


def duration(seconds: float) -> str:
    """A time with three digits: 542 ns, 5.03 µs, 12.0 ms."""
    return _with_unit(seconds, TIME_UNITS, figure)


def rate(bytes_per_second: float) -> str:
    """A bandwidth with three digits: 20.7 GB/s."""
    return _with_unit(bytes_per_second, RATE_UNITS, figure)


def duration_tick(seconds: float) -> str:
    """A time on an axis: 1 µs, 20 ms."""
    return _with_unit(seconds, TIME_UNITS, decimal_text)


def rate_tick(bytes_per_second: float) -> str:
    """A bandwidth on an axis: 1 GB/s."""
    return _with_unit(bytes_per_second, RATE_UNITS, decimal_text)


def ratio(value: float) -> str:
    """A ratio with two digits: 1/250, 0.97, 1.0, 9.8, 33, 1,200."""
    if value >= 9.95:
        return figure(value, 2)
    if value >= 0.995:
        return f"{value:.1f}"
    if value >= 0.00995:
        return figure(value, 2)
    return f"1/{figure(1 / value, 2)}"


def precise_ratio(value: float) -> str:
    """A ratio with three digits near 1, where two would hide the difference: 0.985, 1.03, 9.8."""
    return figure(value, 3) if 0.9 <= value < 1.1 else ratio(value)


def times(value: float) -> str:
    """A ratio with the multiplication sign."""
    return ratio(value) + TIMES_SIGN


def between(low: str, high: str) -> str:
    """A range, or one value if both ends have the same text; the unit appears once."""
    if low == high:
        return low
    number, gap, unit = low.partition(NO_BREAK_SPACE)
    if gap and high.endswith(gap + unit):
        return f"{number} to {high}"
    return f"{low} to {high}"


def _with_unit(
    value: float, units: Sequence[tuple[float, str]], write: Callable[[float], str]
) -> str:
    rounded = float(f"{value:.3g}")
    fitting = [pair for pair in units if rounded >= pair[0] * (1 - 1e-9)]
    factor, unit = fitting[-1] if fitting else units[0]
    return f"{write(value / factor)}{NO_BREAK_SPACE}{unit}"
