"""What the report draws: groups of measurements, with their lines, limits and ratios."""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from tensorferry._tools.bench.results import verdict
from tensorferry.framework_register import title


@dataclass(frozen=True)
class Row:
    """One way of converting, at one size."""

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

    @property
    def is_drawn(self) -> bool:
        """Whether it has a place on logarithmic axes."""
        return self.error is None and self.seconds is not None and self.bytes > 0

    @property
    def time(self) -> float:
        """The median, of a row that is drawn."""
        assert self.seconds is not None
        return self.seconds

    @property
    def rate(self) -> float:
        """Bytes per second, of a row that is drawn."""
        return self.bytes / self.time

    @property
    def quartiles(self) -> tuple[float, float]:
        """Where the middle half of the rounds lies; the median alone where that is not known."""
        return min(self.low or self.time, self.time), max(self.high or self.time, self.time)


@dataclass
class Series:
    """One method of a group, a line in its plots."""

    number: int
    method: str
    ours: bool
    rows: list[Row] = field(default_factory=list)

    def at(self, size: int) -> Row | None:
        """The row of one size."""
        return next((row for row in self.rows if row.bytes == size), None)


@dataclass(frozen=True)
class Limit:
    """What the machine itself needs to move as many bytes."""

    name: str
    phrase: str
    points: tuple[tuple[int, float], ...]

    def at(self, size: int) -> float | None:
        """The seconds for one size, where it was measured."""
        return dict(self.points).get(size)


@dataclass(frozen=True)
class Comparison:
    """Our fastest way and the fastest native way at one size."""

    ours: Row
    native: Row

    @property
    def bytes(self) -> int:
        """The size."""
        return self.ours.bytes

    @property
    def ratio(self) -> float:
        """How many times as fast ours is."""
        return self.native.time / self.ours.time

    @property
    def verdict(self) -> str:
        """ahead, behind or level."""
        return verdict(self.ours.quartiles, self.native.quartiles)


@dataclass(frozen=True)
class Way:
    """From where to where, and what: all that the rows of a group have in common."""

    source: str
    target: str
    source_device: str
    target_device: str
    dtype: str
    layout: str

    @property
    def place(self) -> str:
        """Where the conversion happens: cpu, or cpu to cuda."""
        if self.source_device == self.target_device:
            return self.source_device
        return f"{self.source_device} to {self.target_device}"

    @property
    def name(self) -> str:
        """The pair in words."""
        return f"{framework(self.source)} to {framework(self.target)}"

    @property
    def details(self) -> tuple[str, str, str]:
        """What else tells it from others."""
        return self.place, self.dtype, self.layout

    @property
    def ends(self) -> tuple[str, str, str, str]:
        """Where it begins and where it ends."""
        return self.source, self.target, self.source_device, self.target_device


@dataclass(frozen=True)
class Group:
    """All that was measured of one conversion."""

    number: int
    way: Way
    series: list[Series]
    failures: list[Row]
    limit: Limit | None

    @cached_property
    def drawn(self) -> list[Row]:
        """Every row that the plots show."""
        return [row for series in self.series for row in series.rows]

    @cached_property
    def sizes(self) -> list[int]:
        """The sizes that the plots show, in rising order."""
        return sorted({row.bytes for row in self.drawn})

    @cached_property
    def ours(self) -> list[Row]:
        """Our rows, the fastest of each size."""
        return [row for size in self.sizes if (row := self._fastest(size, ours=True))]

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Ours against the best native way, for each size that has both."""
        pairs = (
            (self._fastest(size, ours=True), self._fastest(size, ours=False)) for size in self.sizes
        )
        return [Comparison(ours, native) for ours, native in pairs if ours and native]

    @property
    def memory(self) -> str:
        """What ours does with the memory."""
        return memory(self.ours)

    def against_native(self, row: Row) -> float | None:
        """How many times as fast as the best native way one row is."""
        native = self._fastest(row.bytes, ours=False)
        return native.time / row.time if native else None

    def _fastest(self, size: int, *, ours: bool) -> Row | None:
        rows = [row for row in self.drawn if row.bytes == size and row.ours == ours]
        return min(rows, key=lambda row: row.time, default=None)


def memory(rows: list[Row]) -> str:
    """What the rows do with the memory: shares, copies, both by size, or unknown."""
    kinds = {row.shares for row in rows}
    if kinds == {True}:
        return "shares"
    if kinds == {False}:
        return "copies"
    return "shares or copies" if {True, False} <= kinds else "unknown"


def framework(name: str) -> str:
    """A framework as its makers write it; "python" stands for buffers."""
    return "Python" if name == "python" else title(name)


def failures(group: Group) -> list[tuple[str, str, list[int]]]:
    """What could not be measured: the method, why, and at which sizes."""
    lines = sorted(
        ((row.method, row.error or "no time was measured", row.bytes) for row in group.failures),
        key=lambda line: line[:2],
    )
    return [
        (method, why, sorted({line[2] for line in same}))
        for (method, why), same in groupby(lines, key=lambda line: line[:2])
    ]
