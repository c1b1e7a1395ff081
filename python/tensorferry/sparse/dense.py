"""The dense tensor of a sparse one, packed once, where it is wanted.

On the host the elements are scattered into new memory, which the target then shares. Where the
result is to be on a GPU, the parts go there, which are small, and the target's own scatter fills
the tensor. The same place twice is summed in the source's type; a wish for another type is heard
afterwards.
"""

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from tensorferry._native import (
    CopyRequiredError,
    _plan_of_array,
    _plan_of_sparse,
    _sparse_dense_compressed,
    _sparse_dense_coordinates,
    _sparse_turn_coordinates,
    plan,
    to,
)
from tensorferry.framework_register import tensor_framework
from tensorferry.sparse import frameworks
from tensorferry.sparse.bundle import Bundle, dtype_of, facts_of
from tensorferry.sparse.check import check
from tensorferry.sparse.entries import entries_of
from tensorferry.sparse.route import Wishes, decide, source_of, stored_in
from tensorferry.sparse.work import (
    GROUPED,
    HOST,
    INT32,
    UNIQUE,
    aligned,
    axes_of,
    numpy_dtype,
)

# Elements of a page of memory, about.
PAGE = 1024
# Elements that are worth being grouped before they are scattered.
MANY = 1 << 16


class Dense:
    """The way to a dense tensor: its plan, and `run`, which goes it."""

    def __init__(self, x: Any, framework: str | ModuleType, wishes: Wishes) -> None:
        self.bundle = source_of(x)
        self.x, self.wishes = x, wishes
        self.framework, self.sparse = _arrays_of(framework)
        whole = facts_of(self.bundle.values)
        landing = plan(self.bundle.values, self.framework, device=wishes.device, dtype=wishes.dtype)
        self.on_gpu = landing.device.startswith("cuda") and self.sparse is not None
        # Only its own framework knows how a batch is laid out.
        self.by_source = bool(self.bundle.batch) or not self.bundle.sparse_shape
        count = math.prod(self.bundle.shape)
        moved = count * numpy_dtype(whole.source_dtype).itemsize
        steps = [("scatter", f"each element goes to its place in a dense tensor{self._where()}")]
        if landing.dtype != whole.source_dtype:
            moved += count * numpy_dtype(landing.dtype).itemsize
            steps.append(("cast", f"the values become {landing.dtype}"))
        if wishes.copy is False:
            raise CopyRequiredError(
                f"{self.bundle.framework} {self.bundle.format} to a dense tensor needs a copy: "
                "a dense tensor is new memory\nhint: leave out copy=False"
            )
        notes = ["the same place twice is summed in the source's type"]
        if self.bundle.detached:
            notes.append("carried detached: no gradient flows back through it")
        part = _plan_of_array(
            name="dense tensor",
            is_shared=False,
            dtype=landing.dtype,
            shape=self.bundle.shape,
            bytes_moved=moved,
            extra_bytes=count * numpy_dtype(landing.dtype).itemsize,
            steps=steps,
            notes=[],
        )
        self.plan = _plan_of_sparse(
            source=self.bundle.framework,
            target=landing.target,
            source_format=self.bundle.name,
            format=None,
            is_itself=False,
            source_dtype=whole.source_dtype,
            dtype=landing.dtype,
            shape=self.bundle.shape,
            source_device=whole.source_device,
            device=landing.device,
            nnz=stored_in(self.bundle, whole),
            parts=[part],
            notes=notes,
        )

    def run(self) -> Any:
        """Goes the way."""
        wishes = self.wishes
        if self.by_source:
            made = _by_source(self.x, self.bundle)
        elif self.on_gpu:
            made = self._scattered_there()
        else:
            made = scattered_here(self.bundle)
        return to(
            made,
            self.framework,
            device=self.plan.device,
            dtype=wishes.dtype,
            writable=wishes.writable,
            stream=wishes.stream,
        )

    def _where(self) -> str:
        if self.by_source:
            return f", by {self.bundle.framework} itself"
        return f", by {self.framework} on the GPU" if self.on_gpu else ""

    def _scattered_there(self) -> Any:
        assert self.sparse is not None
        wishes = Wishes(device=self.plan.device, stream=self.wishes.stream)
        route = decide(self.x, self.sparse, wishes, format="coo", lenient=True)
        return frameworks.module_of(self.sparse).scatter(route.arrive())


def scattered_here(bundle: Bundle) -> Any:
    """A dense array on the host."""
    found = check(bundle, HOST)
    made = None
    if bundle.format in ("csr", "csc"):
        made = _sparse_dense_compressed(
            found.indptr,
            found.indices,
            bundle.values,
            bundle.shape,
            bundle.format == "csc",
            not found.unique,
            room_for(bundle.shape, bundle.values, found.count),
        )
    elif bundle.format == "coo" and found.keep is None:
        room = room_for(bundle.shape, bundle.values, found.count)
        axes = len(bundle.sparse_shape)
        made = of_coordinates(
            found.parts,
            found.laid,
            axes,
            bundle.values,
            bundle.shape,
            found.count,
            found.bits,
            room,
        )
    if made is not None:
        return made
    entries = entries_of(bundle, found, HOST)
    values = entries.summed()
    made = aligned(bundle.shape, numpy_dtype(dtype_of(bundle.values)), zero=True)
    HOST.add(made, tuple(map(entries.axis, range(len(entries.lengths)))), values)
    return made


def of_coordinates(
    parts: Sequence[Any],
    laid: str,
    axes: int,
    values: Any,
    shape: Sequence[int],
    count: int,
    bits: int,
    room: Any = None,
) -> Any:
    """The dense array of elements with coordinates, or None if their type is not added here."""
    add = not bits & UNIQUE
    if axes != 2 or bits & GROUPED or count < MANY:
        return _sparse_dense_coordinates(parts, laid, axes, values, shape, add, room)
    # Here and there in a large array each element takes as long as memory does. Grouped by rows
    # first, all of a row are written while it is in the cache.
    rows, columns = axes_of(parts, laid, 2)
    index = "int32" if bits & INT32 else "int64"
    made = _sparse_turn_coordinates(rows, columns, values, shape[0], index)
    if made is None:
        return None
    return _sparse_dense_compressed(made[0], made[1], made[2], shape, False, add, room)


def room_for(shape: tuple[int, ...], values: Any, count: int) -> Any:
    """Zeros of the system's, where most pages of a tensor stay empty; None where ours are quicker.

    Such pages are never touched, and need no memory.
    """
    if math.prod(shape) <= PAGE * max(count, 16):
        return None
    return aligned(shape, numpy_dtype(dtype_of(values)), zero=True)


def _arrays_of(framework: str | ModuleType) -> tuple[Any, str | None]:
    """Whose dense tensor it becomes, and whose parts are scattered on a GPU."""
    name = tensor_framework(framework)
    return name, name if name in frameworks.NAMES else None


def _by_source(x: Any, bundle: Bundle) -> Any:
    return x.detach().to_dense() if bundle.framework == "torch" else x.todense()
