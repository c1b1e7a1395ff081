"""What will happen to a sparse tensor, and why, as objects and as sentences."""

from dataclasses import dataclass, field
from html import escape
from typing import Any


@dataclass(frozen=True)
class PartPlan:
    """What will happen to one of the arrays: values, coordinates, indices, indptr."""

    name: str
    action: str
    dtype: str
    shape: tuple[int, ...]
    bytes_moved: int
    steps: list[tuple[str, str]]
    notes: list[str]

    @property
    def shares(self) -> bool:
        """Whether no byte moves."""
        return self.action != "copy"

    def as_dict(self) -> dict[str, Any]:
        """All of it, for programs."""
        return {
            "name": self.name,
            "action": self.action,
            "shares": self.shares,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "bytes_moved": self.bytes_moved,
            "steps": [list(step) for step in self.steps],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        head = f"{self.name} ({self.dtype}, {self.shape}): "
        if self.shares:
            return head + "shared, no byte moves"
        lines = [head + f"copied, {count_of(self.bytes_moved, 'byte')}"]
        lines += [f"  {i}. {verb}: {why}" for i, (verb, why) in enumerate(self.steps, 1)]
        return "\n".join(lines)


@dataclass(frozen=True)
class SparsePlan:
    """What `ferry.sparse.to` will do with the same arguments.

    `action` is "itself", "share" if every part is shared, and otherwise "copy"; `parts` has a
    PartPlan for each array. `format` is None for a dense result. It prints as an explanation.
    """

    source: str
    target: str
    source_format: str
    format: str | None
    action: str
    source_dtype: str
    dtype: str
    shape: tuple[int, ...]
    source_device: str
    device: str
    stored: int
    parts: list[PartPlan] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def shares(self) -> bool:
        """Whether no byte moves."""
        return self.action != "copy"

    @property
    def bytes_moved(self) -> int:
        """How many bytes are written, in all parts."""
        return sum(part.bytes_moved for part in self.parts)

    def as_dict(self) -> dict[str, Any]:
        """All of it, for programs."""
        names = ["source", "target", "source_format", "format", "action", "shares"]
        names += ["source_dtype", "dtype", "source_device", "device", "stored", "bytes_moved"]
        made = {name: getattr(self, name) for name in names}
        made["shape"] = list(self.shape)
        made["parts"] = [part.as_dict() for part in self.parts]
        made["notes"] = list(self.notes)
        return made

    def _headline(self) -> str:
        what = self.format or "dense"
        road = f"{self.source} {self.source_format} -> {self.target} {what}: "
        if self.action == "itself":
            return road + "nothing to do, the source itself comes back"
        if self.shares:
            return road + "shared, no byte moves"
        shared = sum(part.shares for part in self.parts)
        moved = count_of(self.bytes_moved, "byte")
        if shared:
            return road + f"{shared} of {len(self.parts)} parts shared, {moved} copied"
        return road + f"copied, {moved}"

    def __str__(self) -> str:
        becomes = "" if self.dtype == self.source_dtype else f", becomes {self.dtype}"
        stored = count_of(self.stored, "stored element")
        lines = [self._headline()]
        lines.append(f"  {self.source_dtype} of shape {self.shape}, {stored}{becomes}")
        if self.source_device != self.device:
            lines.append(f"  from {self.source_device} to {self.device}")
        if self.action != "itself":
            for part in self.parts:
                lines += ["  " + line for line in str(part).splitlines()]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<SparsePlan {self._headline()}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def count_of(number: int, what: str) -> str:
    """A number of things, in words."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
