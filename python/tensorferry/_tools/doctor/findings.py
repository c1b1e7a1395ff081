"""What the doctor finds, as data: one class for each part of the report."""

from dataclasses import dataclass
from typing import Literal

State = Literal["works", "absent", "fails", "crashes", "hangs"]
Outcome = Literal["itself", "shared", "copied", "impossible", "failed", "wrong", "crashed", "hung"]

FAILURES = frozenset({"failed", "wrong", "crashed", "hung"})


@dataclass(frozen=True)
class Device:
    """A place that a framework holds tensors in: `cpu`, `cuda:0`."""

    name: str
    title: str | None = None


@dataclass(frozen=True)
class Framework:
    """One framework, imported in a process of its own."""

    name: str
    state: State
    version: str | None = None
    seconds: float | None = None
    devices: tuple[Device, ...] = ()
    for_cuda: bool = False
    """Whether this build is meant for GPUs, and should see those that there are."""
    note: str | None = None
    """What it says about GPUs that it does not use."""
    fact: str | None = None
    hint: str | None = None

    def holds(self, device: str) -> bool:
        """Whether it has tensors there."""
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
    """The CUDA version that it speaks."""
    release: str | None = None
    gpus: tuple[Gpu, ...] = ()
    fact: str | None = None
    hint: str | None = None


@dataclass(frozen=True)
class Pinned:
    """Whether downloads get pinned memory; `absent` where no framework holds GPU memory."""

    state: State
    framework: str | None = None
    pinned_bytes: int | None = None
    fact: str | None = None
    hint: str | None = None


@dataclass(frozen=True)
class Machine:
    """Where all this was found."""

    tensorferry: str
    python: str
    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    huge_pages: str
    locked_memory_bytes: int | None
    """The limit; `None` where there is none."""
    pool_limit_bytes: int


@dataclass(frozen=True)
class Cell:
    """One thing to try: a source in its place, a target in its own."""

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
    """What came of it."""

    outcome: Outcome
    fact: str | None = None
    """Why it was copied, is not possible, or is wrong."""
    hint: str | None = None
    memory: str | None = None
    """`seen` where both addresses were compared, or else why they were not."""

    @property
    def is_failure(self) -> bool:
        """Whether it should have been otherwise."""
        return self.outcome in FAILURES


@dataclass(frozen=True)
class ImportOrder:
    """Modules imported in one process, one after the other."""

    modules: tuple[str, ...]
    state: State
    fact: str | None = None
    hint: str | None = None


@dataclass(frozen=True)
class Conflict:
    """Frameworks that do not live in one process."""

    frameworks: tuple[str, ...]
    """In the order in which they were imported."""
    fact: str
    hint: str
    works_as: tuple[str, ...] | None = None
    """The order in which they can be imported together, where there is one."""


PathState = Literal["unused", "active", "disabled", "missing", "failed"]


@dataclass(frozen=True)
class FastPath:
    """A private API of a framework, and whether it was used when tensors were carried."""

    name: str
    framework: str
    calls: str
    fallback: str
    """The public functions that do the same."""
    state: PathState
    reason: str | None = None
    """Why it is off."""
