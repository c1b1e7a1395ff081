"""The data of the report: groups of measurements with their series, limits and ratios."""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from tensorferry._tools.bench import results
from tensorferry.framework_register import title


@dataclass(frozen=True)
class Row:
    """One method at one size."""

    method: str
    ours: bool
    bytes: int
    shares: bool | None
    seconds: float | None
    low: float | None
    high: float | None
    calls: int | None
    rounds: int | None
    extra_bytes: int | None
    checked: bool
    error: str | None
    interval: results.Interval | None = None
    """The ratio of the times, ours to this native method, and its confidence interval."""

    @property
    def is_drawn(self) -> bool:
        """Whether logarithmic axes can show it."""
        return self.error is None and self.seconds is not None and self.bytes > 0

    @property
    def time(self) -> float:
        """The median, for a row that is drawn."""
        assert self.seconds is not None
        return self.seconds

    @property
    def moves_bytes(self) -> bool:
        """Whether it has a bandwidth: a share moves no byte, whatever its size."""
        return self.shares is not True

    @property
    def rate(self) -> float:
        """Bytes per second, for a row that is drawn and moves bytes."""
        return self.bytes / self.time

    @property
    def quartiles(self) -> tuple[float, float]:
        """The lower and upper quartile; the median if they are not known."""
        return min(self.low or self.time, self.time), max(self.high or self.time, self.time)


@dataclass
class Series:
    """One method of a group: a line in its plots."""

    number: int
    method: str
    ours: bool
    rows: list[Row] = field(default_factory=list)

    def at(self, size: int) -> Row | None:
        """The row at one size."""
        return next((row for row in self.rows if row.bytes == size), None)


@dataclass(frozen=True)
class Limit:
    """The time that the machine needs to move as many bytes."""

    name: str
    phrase: str
    points: tuple[tuple[int, float], ...]

    def at(self, size: int) -> float | None:
        """The seconds at one size, if it was measured."""
        return dict(self.points).get(size)


@dataclass(frozen=True)
class Comparison:
    """`ferry.to` and the fastest native method at one size."""

    ours: Row
    native: Row

    @property
    def bytes(self) -> int:
        """The size."""
        return self.ours.bytes

    @property
    def interval(self) -> results.Interval:
        """The ratio of the times, ours to native, between the ends of its interval."""
        if self.native.interval is not None:
            return self.native.interval
        times = (
            {"low": low, "seconds": row.time, "high": high}
            for row in (self.ours, self.native)
            for low, high in (row.quartiles,)
        )
        return results.ratio_interval(*times)

    @property
    def ratio(self) -> float:
        """How many times as fast `ferry.to` is."""
        return 1 / self.interval[1]

    @property
    def verdict(self) -> str:
        """The verdict: ahead, behind or level."""
        return results.verdict(self.interval)


@dataclass(frozen=True)
class Conversion:
    """The properties that all rows of a group have in common."""

    source: str
    target: str
    source_device: str
    target_device: str
    dtype: str
    layout: str

    @property
    def devices(self) -> str:
        """The devices: cpu, or cpu to cuda."""
        if self.source_device == self.target_device:
            return self.source_device
        return f"{self.source_device} to {self.target_device}"

    @property
    def name(self) -> str:
        """The pair of frameworks, as text."""
        return f"{framework(self.source)} to {framework(self.target)}"

    @property
    def details(self) -> tuple[str, str, str]:
        """Devices, type and layout."""
        return self.devices, self.dtype, self.layout

    @property
    def endpoints(self) -> tuple[str, str, str, str]:
        """Source, target and their devices."""
        return self.source, self.target, self.source_device, self.target_device


@dataclass(frozen=True)
class Group:
    """All measurements of one conversion."""

    number: int
    conversion: Conversion
    series: list[Series]
    failures: list[Row]
    limit: Limit | None

    @cached_property
    def drawn(self) -> list[Row]:
        """Every row that the plots show."""
        return [row for series in self.series for row in series.rows]

    @property
    def moves_bytes(self) -> bool:
        """Whether any method moves bytes, and so has a bandwidth."""
        return any(row.moves_bytes for row in self.drawn)

    @cached_property
    def sizes(self) -> list[int]:
        """The sizes that the plots show, in rising order."""
        return sorted({row.bytes for row in self.drawn})

    @cached_property
    def ours(self) -> list[Row]:
        """The rows of `ferry.to`, the fastest at each size."""
        return [row for size in self.sizes if (row := self._fastest(size, ours=True))]

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """`ferry.to` against the best native method, at each size that has both."""
        pairs = (
            (self._fastest(size, ours=True), self._fastest(size, ours=False)) for size in self.sizes
        )
        return [Comparison(ours, native) for ours, native in pairs if ours and native]

    @property
    def memory(self) -> str:
        """Whether `ferry.to` shares or copies."""
        return memory(self.ours)

    def against_native(self, row: Row) -> float | None:
        """How many times as fast as the best native method a row is."""
        native = self._fastest(row.bytes, ours=False)
        if native is None:
            return None
        if row is self._fastest(row.bytes, ours=True):
            return Comparison(row, native).ratio
        return native.time / row.time

    def _fastest(self, size: int, *, ours: bool) -> Row | None:
        rows = [row for row in self.drawn if row.bytes == size and row.ours == ours]
        return min(rows, key=lambda row: row.time, default=None)


def memory(rows: list[Row]) -> str:
    """Whether the rows share or copy: shares, copies, shares or copies, or unknown."""
    kinds = {row.shares for row in rows}
    if kinds == {True}:
        return "shares"
    if kinds == {False}:
        return "copies"
    return "shares or copies" if {True, False} <= kinds else "unknown"


def framework(name: str) -> str:
    """The title of a framework; "python" stands for buffers."""
    return "Python" if name == "python" else title(name)


def failures(group: Group) -> list[tuple[str, str, list[int]]]:
    """The failures: the method, the reason, and the sizes."""
    lines = sorted(
        ((row.method, row.error or "no time was measured", row.bytes) for row in group.failures),
        key=lambda line: line[:2],
    )
    return [
        (method, reason, sorted({line[2] for line in same}))
        for (method, reason), same in groupby(lines, key=lambda line: line[:2])
    ]
