"""The oracle: what must happen to a tensor, worked out from the rules and not from the library.

The rules are those of the design: share when the target can use the memory as it lies and nobody
is harmed, copy when not, and name an error when the target cannot hold the tensor in any form.
What each target can use are facts about the frameworks, each found by trying (the reasons stand
beside them).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
from support.dtypes import NAMED, DType
from support.introspect import has_dtype

import tensorferry as ferry
from tensorferry._native import _fast_path_enabled


@dataclass(frozen=True)
class SourceProperties:
    """What the maker of a source knows about it."""

    framework: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In bytes."""
    address: int
    swapped: bool = False
    """Whether elements are in the other byte order."""
    frozen: bool = False
    """Whether somebody relies on the memory not being written, or writing it is impossible."""
    immutable: bool = False
    """Whether the source's framework promises that values never change."""
    reused: bool = False
    """Whether the framework hands the same memory to others later (TensorFlow's scalars)."""
    snapshot: bool = False
    """Whether it is a variable, whose value is taken at the call."""
    accidental: bool = False
    """Whether the allocator promises less than 64 bytes of alignment, or is not known."""
    pending: bool = False
    """Whether the values are not in memory yet (conjugate and negative bits, packed elements)."""
    grad: bool = False
    """Whether it requires a gradient."""
    device: str = "cpu"
    """Where the memory is: "cpu" or "cuda"."""

    @property
    def count(self) -> int:
        """How many elements there are."""
        count = 1
        for length in self.shape:
            count *= length
        return count


@dataclass(frozen=True)
class Target:
    """What a framework can use."""

    strides: str
    """"any", "whole" (of elements), "forward" (those, not backwards), "gapless" (any order of
    dimensions) or "dense"."""
    alignment: int
    rank: int
    users: str
    """"flagged": may write unless told not to; "write": may always; "read": never may."""
    copies: bool = False
    """Whether it keeps tensors in memory of its own only."""
    packs: tuple[str, ...] = ()
    """Types that it copies: they are kept several to a byte, or no public function shares them."""
    default_is_narrow: bool = False
    """Whether its users get 32-bit floats when they name no width."""
    devices: tuple[str, ...] = ("cpu",)
    """Where it can hold memory."""
    host_only: tuple[str, ...] = ()
    """Types that it holds in host memory alone."""
    drops_on_own_threads: bool = False
    """Whether it releases tensors on threads that Python did not create."""


BOTH = ("cpu", "cuda")
SMALL_FLOATS = tuple(name for name in NAMED if name.startswith(("float8_", "float6_", "float4_")))
NARROW = ("int4", "uint4", "float4_e2m1fn")

TARGETS = {
    # NumPy marks arrays as read-only, takes any stride, any alignment and either byte order; 64
    # dimensions.
    "numpy": Target("any", 1, 64, "flagged"),
    # PyTorch raises on negative strides, cannot express broken ones, and knows no read-only memory.
    # Elements must be aligned to their size, complex ones too: its loops use instructions that trap
    # otherwise.
    "torch": Target("forward", 1, 64, "write", default_is_narrow=True, devices=BOTH),
    # CuPy is as NumPy, but cannot express broken strides nor read-only memory, and stops at 32
    # dimensions.
    "cupy": Target("whole", 1, 32, "write", devices=("cuda",)),
    # JAX shares what is aligned to 64 bytes and has no gaps; 4-bit types are packed inside.
    "jax": Target(
        "gapless",
        64,
        64,
        "read",
        packs=NARROW,
        devices=BOTH,
        host_only=NARROW,
        drops_on_own_threads=True,
    ),
    # TensorFlow takes row-major memory only and aborts on memory that is not aligned to 64 bytes.
    # The types that its DLPack lacks come in as arrays, which are host memory.
    "tensorflow": Target(
        "dense",
        64,
        254,
        "read",
        default_is_narrow=True,
        devices=BOTH,
        host_only=("int4", "uint4", *SMALL_FLOATS),
        # The public function copies them.
        packs=()
        if _fast_path_enabled("tensorflow.eager_tensor")
        else ("int4", "uint4", *SMALL_FLOATS),
        drops_on_own_threads=True,
    ),
    # Paddle is as PyTorch in this, and stops at nine dimensions.
    "paddle": Target("forward", 1, 9, "write", default_is_narrow=True),
    # MLX copies whatever comes in. Its arrays are values: `a += 1` leaves other holders of the
    # memory alone.
    "mlx": Target("forward", 1, 64, "read", copies=True, default_is_narrow=True),
}


@dataclass(frozen=True)
class Outcome:
    """What must happen."""

    action: str | None
    dtype: DType
    writable: bool
    """Whether the result may be written."""
    error: type[Exception] | None = None
    why: tuple[str, ...] = ()


def expect(
    facts: SourceProperties,
    target: str,
    *,
    copy: bool | None = None,
    writable: bool | None = None,
    dtype: DType | str | None = None,
) -> Outcome:
    """What `ferry.to(x, target, ...)` must do with a source of which these are the facts."""
    takes = TARGETS[target]
    wanted = expected_dtype(facts, target, dtype)

    def fails(error: type[Exception], why: str) -> Outcome:
        return Outcome(None, wanted, False, error, (why,))

    if writable is True and takes.users == "read":
        return fails(ferry.InvalidArgumentError, "tensors of the target are never written")
    if writable is False and takes.users == "write":
        return fails(ferry.InvalidArgumentError, "tensors of the target can always be written")
    harmless = not (facts.frozen or facts.immutable or facts.snapshot)
    if facts.framework == target and not copy and wanted == facts.dtype:
        asked_in_vain = (
            target == "jax" and dtype is not None and wanted.is_64_bit and not is_x64_on()
        )
        native = dtype is None or not facts.swapped
        if native and not asked_in_vain and writable in (None, harmless):
            # Of a variable the value comes back, which is another object over the same memory.
            action = "share" if facts.snapshot else "itself"
            may_write = takes.users == "write" or (takes.users == "flagged" and harmless)
            return Outcome(action, wanted, may_write)
    if not has_dtype(target, wanted) or (target == "jax" and wanted.is_64_bit and not is_x64_on()):
        return fails(ferry.UnsupportedDTypeError, "the target lacks the type")
    if not facts.dtype.casts_to(wanted):
        return fails(ferry.UnsupportedDTypeError, "the imaginary part would be lost")
    if facts.device in takes.devices and facts.device == "cuda" and wanted.name in takes.host_only:
        return fails(ferry.UnsupportedDTypeError, "the target lacks the type on a GPU")
    if len(facts.shape) > takes.rank:
        return fails(ferry.UnsupportedError, "too many dimensions")
    why = reasons_to_copy(
        facts, takes, wanted, copy, writable, keeps_order=target == "numpy" and dtype is None
    )
    if why and copy is False:
        return Outcome(None, wanted, False, ferry.CopyRequiredError, why)
    if why:
        return Outcome("copy", wanted, takes.users != "read" and writable is not False, None, why)
    may_write = takes.users == "write" or (takes.users == "flagged" and harmless)
    return Outcome("share", wanted, may_write and writable is not False)


def reasons_to_copy(
    facts: SourceProperties,
    takes: Target,
    wanted: DType,
    copy: bool | None,
    writable: bool | None,
    keeps_order: bool,
) -> tuple[str, ...]:
    """Every fact that forbids the target to use the memory as it lies."""
    harmful = facts.frozen or facts.immutable or facts.snapshot
    needs = 1 if takes.strides == "any" else max(takes.alignment, wanted.size)
    moved = facts.device not in takes.devices
    in_place = not moved and not facts.pending
    # What malloc decides is not relied on: where a share would let a later write through by chance,
    # a copy is made, unless the caller asks for the share.
    chance = facts.accidental and takes.users == "read" and takes.alignment > 16
    off = in_place and facts.count > 0 and facts.address % needs != 0
    facts_against = {
        "asked for": copy is True,
        "another device": moved,
        "another type": wanted != facts.dtype,
        "values are pending": facts.pending,
        "other byte order": facts.swapped and not keeps_order,
        "strides": in_place and not strides_fit(facts, takes.strides),
        "alignment": off and (copy is False or not chance),
        "the target's own memory": takes.copies,
        "packed in the target": wanted.name in takes.packs,
        # Paddle releases imported memory under a lock, and cannot tell it from its own.
        "released under a lock": facts.framework == "paddle" and takes.drops_on_own_threads,
        "writing it would do harm": facts.reused
        or (facts.frozen and takes.users == "write")
        or (writable is True and harmful),
    }
    why = tuple(reason for reason, holds in facts_against.items() if holds)
    if not why and chance and copy is None and facts.count > 0:
        return ("aligned by chance",)
    return why


def strides_fit(facts: SourceProperties, kind: str) -> bool:
    """Whether a target that takes strides of this kind takes these. Where there is one step or
    none they do not count."""
    if facts.count == 0 or kind == "any":
        return True
    steps = [(step, n) for n, step in zip(facts.shape, facts.strides, strict=True) if n > 1]
    if kind in ("forward", "whole"):
        whole = all(step % facts.dtype.size == 0 for step, _ in steps)
        return whole and (kind == "whole" or all(step >= 0 for step, _ in steps))
    reach = facts.dtype.size
    for step, n in sorted(steps) if kind == "gapless" else reversed(steps):
        if step != reach:
            return False
        reach *= n
    return True


def expected_dtype(facts: SourceProperties, target: str, dtype: DType | str | None) -> DType:
    """The type of the result."""
    if dtype is None:
        return facts.dtype
    if dtype != "default":
        return dtype if isinstance(dtype, DType) else NAMED[dtype]
    if target == "jax":
        return facts.dtype if is_x64_on() else facts.dtype.narrowed
    narrows = TARGETS[target].default_is_narrow and facts.dtype.kind in ("float", "complex")
    return facts.dtype.narrowed if narrows else facts.dtype


def is_x64_on() -> bool:
    """Whether JAX has 64-bit types at this moment."""
    return bool(jax.config.jax_enable_x64)
