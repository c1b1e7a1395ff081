"""Data classes of the doctor's findings, one for each part of the report."""

from dataclasses import dataclass
from typing import Literal

State = Literal["works", "absent", "fails", "crashes", "hangs"]
Outcome = Literal["itself", "shared", "copied", "impossible", "failed", "wrong", "crashed", "hung"]

FAILURES = frozenset({"failed", "wrong", "crashed", "hung"})


@dataclass(frozen=True)
class Device:
    """A device of a framework: `cpu`, `cuda:0`."""

    name: str
    title: str | None = None


@dataclass(frozen=True)
class Framework:
    """One framework, imported in its own process."""

    name: str
    state: State
    version: str | None = None
    seconds: float | None = None
    devices: tuple[Device, ...] = ()
    for_cuda: bool = False
    """Whether it is built for GPUs and should find them."""
    note: str | None = None
    """Why it does not use a GPU, as far as it says."""
    fact: str | None = None
    hint: str | None = None

    def supports(self, device: str) -> bool:
        """Whether it has the device."""
        return any(device == one.name for one in self.devices)


@dataclass(frozen=True)
class Gpu:
    """A GPU, as the driver describes it."""

    index: int
    name: str | None
    memory_bytes: int | None
    capability: str | None


@dataclass(frozen=True)
class Driver:
    """The CUDA driver."""

    state: State
    cuda: str | None = None
    """The CUDA version that it supports."""
    release: str | None = None
    gpus: tuple[Gpu, ...] = ()
    fact: str | None = None
    hint: str | None = None


@dataclass(frozen=True)
class Pinned:
    """Whether downloads use pinned memory; `absent` if no framework supports a GPU."""

    state: State
    framework: str | None = None
    pinned_bytes: int | None = None
    fact: str | None = None
    hint: str | None = None


@dataclass(frozen=True)
class Machine:
    """The machine."""

    tensorferry: str
    python: str
    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    huge_pages: str
    locked_memory_bytes: int | None
    """The limit; `None` if unlimited."""
    pool_limit_bytes: int


@dataclass(frozen=True)
class Cell:
    """One conversion: a source on its device, a target on its own."""

    source: str
    target: str
    origin: str
    destination: str

    def __str__(self) -> str:
        if self.origin == self.destination == "cpu":
            return f"{self.source} to {self.target}"
        return f"{self.source} on {self.origin} to {self.target} on {self.destination}"


@dataclass(frozen=True)
class Result:
    """The outcome of a conversion."""

    outcome: Outcome
    fact: str | None = None
    """Why it was copied, is impossible, or failed."""
    hint: str | None = None
    memory: str | None = None
    """`seen` if both addresses were compared, or the reason why not."""

    @property
    def is_failure(self) -> bool:
        """Whether the conversion should have worked."""
        return self.outcome in FAILURES


@dataclass(frozen=True)
class ImportOrder:
    """Modules imported in one process, in this order."""

    modules: tuple[str, ...]
    state: State
    fact: str | None = None
    hint: str | None = None


@dataclass(frozen=True)
class Conflict:
    """Frameworks that cannot be imported in one process."""

    frameworks: tuple[str, ...]
    """In the order in which they were imported."""
    fact: str
    hint: str
    works_as: tuple[str, ...] | None = None
    """An order in which they can be imported together, if there is one."""


@dataclass(frozen=True)
class Problem:
    """A problem, a warning or a notice."""

    fact: str
    hint: str | None = None
    where: tuple[str, ...] = ()


PathState = Literal["unused", "active", "disabled", "missing", "failed"]


@dataclass(frozen=True)
class FastPath:
    """A private API of a framework, and whether conversions used it."""

    name: str
    framework: str
    calls: str
    fallback: str
    """The public functions that replace it."""
    state: PathState
    reason: str | None = None
    """Why it is not active."""
