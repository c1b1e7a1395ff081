"""Whether the parts of a sparse tensor fit each other, and in which order its elements lie.

Frameworks trust what they are given: an index that is out of bounds, or row pointers that go back,
make them read memory that is not theirs. So each bundle is looked through once before its memory is
handed on. What a framework says about its own order is not believed either, it is looked up.
"""

import math
from dataclasses import dataclass
from typing import Any, NoReturn

from tensorferry._native import InvalidTensorError
from tensorferry.sparse.bundle import Bundle, dtype_of, facts_of, refuse
from tensorferry.sparse.work import (
    BEGINS,
    BEYOND,
    DENSE,
    DOES_NOT_FIT,
    ENDS,
    GOES_BACK,
    IN_ORDER,
    INT32,
    INT64,
    UNIQUE,
    Host,
    axes_of,
)

ALL = IN_ORDER | UNIQUE | DENSE


@dataclass
class Structure:
    """What was found, with the index arrays as the worker sees them.

    `bits` are those of `work`; `parts` lie as `laid` says.
    """

    count: int
    bits: int = ALL
    parts: tuple[Any, ...] = ()
    laid: str = "apart"
    indices: Any = None
    indptr: Any = None
    keep: Any = None
    spare: int = 0

    @property
    def in_order(self) -> bool:
        """Whether the elements are in order."""
        return bool(self.bits & IN_ORDER)

    @property
    def unique(self) -> bool:
        """Whether each place is there once."""
        return bool(self.bits & UNIQUE)


def check(bundle: Bundle, work: Host) -> Structure:
    """Looks a bundle through; raises where its parts do not fit."""
    for name, array in bundle.index_parts:
        dtype = dtype_of(array)
        if not dtype.removeprefix("u").startswith("int"):
            broken(bundle, f"{name} are {dtype}, and not whole numbers")
    if bundle.format == "coo":
        if bundle.batch:
            told = (IN_ORDER if bundle.in_order else 0) | (UNIQUE if bundle.unique else 0)
            return Structure(0, told | DENSE)
        return _coordinates(bundle, work)
    return _compressed(bundle, work)


def _coordinates(bundle: Bundle, work: Host) -> Structure:
    lengths = bundle.sparse_shape
    parts = tuple(work.fetch(part) for part in bundle.coordinates)
    shape = facts_of(bundle.values).shape
    count = shape[0] if shape else -1
    found = [tuple(part.shape) for part in parts]
    expected = {
        "axes": [(len(lengths), count)],
        "points": [(count, len(lengths))],
        "apart": [(count,)] * len(lengths),
    }[bundle.laid]
    if found != expected or shape[1:] != bundle.shape[len(lengths) :]:
        broken(bundle, f"coordinates of shapes {found} do not fit values of shape {shape}")
    fault, number, axis, count, bits = work.look_coordinates(parts, bundle.laid, lengths)
    if fault == BEGINS or (fault == BEYOND and not bundle.padded):
        broken(bundle, f"a coordinate is {number} on an axis of length {lengths[axis]}")
    if fault == BEYOND:
        return _without_padding(parts, bundle.laid, lengths, count, work)
    return Structure(count, bits, parts, bundle.laid)


def _without_padding(
    parts: tuple[Any, ...], laid: str, lengths: tuple[int, ...], count: int, work: Host
) -> Structure:
    axes = axes_of(parts, laid, len(lengths))
    within: Any = None
    for axis, length in zip(axes, lengths, strict=True):
        below = axis < length
        within = below if within is None else within & below
    keep = work.where(within)
    kept = tuple(work.take(axis, keep) for axis in axes)
    bits = work.look_coordinates(kept, "apart", lengths)[4]
    return Structure(len(keep), bits, kept, keep=keep, spare=count - len(keep))


def _compressed(bundle: Bundle, work: Host) -> Structure:
    rows, columns = bundle.sparse_shape
    if bundle.format == "csc":
        rows, columns = columns, rows
    block: tuple[int, ...] = ()
    if bundle.blocksize is not None:
        block = bundle.blocksize
        if min(block) < 1 or rows % block[0] or columns % block[1]:
            broken(bundle, f"blocks of {block} do not fill the shape {bundle.shape}")
        rows, columns = rows // block[0], columns // block[1]
    indptr, indices = work.fetch(bundle.indptr), work.fetch(bundle.indices)
    shape = facts_of(bundle.values).shape
    batches = bundle.shape[: bundle.batch]
    stored = tuple(indices.shape)[-1] if indices.ndim else -1
    dense = bundle.shape[bundle.batch + 2 :]
    fits = (
        tuple(indptr.shape) == (*batches, rows + 1)
        and tuple(indices.shape) == (*batches, stored)
        and shape == (*batches, stored, *block, *dense)
    )
    if not fits:
        broken(
            bundle,
            f"indptr of shape {tuple(indptr.shape)}, indices of {tuple(indices.shape)} and values "
            f"of {shape} do not fit each other",
        )
    made = Structure(stored, ALL | INT32 | INT64, indices=indices, indptr=indptr)
    many = math.prod(batches)
    pointers = indptr.reshape(many, rows + 1) if batches else indptr[None]
    places = indices.reshape(many, stored) if batches else indices[None]
    for number in range(many):
        found = work.look_compressed(pointers[number], places[number], rows, columns)
        made.bits &= found[3]
        used = _used(bundle, found, stored, columns)
        if used != stored:
            if bundle.batch:
                refuse(
                    f"one tensor of this batch has {used} elements and another has {stored}",
                    "use ferry.sparse.to_dense, or pass the tensors of the batch one by one",
                )
            made.spare, made.count, made.indices = stored - used, used, indices[:used]
    return made


def _used(bundle: Bundle, found: tuple[int, int, int, int], stored: int, columns: int) -> int:
    """How many elements the pointers lead to; raises where something is wrong."""
    fault, number, used, _ = found
    if fault == BEGINS:
        broken(bundle, f"indptr begins with {number}, and not with 0")
    if fault == GOES_BACK:
        broken(bundle, "indptr goes back")
    if fault == BEYOND:
        broken(bundle, f"an index is {number} where {columns} are possible")
    assert fault != DOES_NOT_FIT
    last = number if fault == ENDS else used
    if fault == ENDS or (last < stored and bundle.framework == "torch"):
        broken(bundle, f"indptr ends with {last}, and there are {stored} elements")
    return used


def broken(bundle: Bundle, fact: str) -> NoReturn:
    """Raises what says that a tensor is not well formed."""
    raise InvalidTensorError(
        f"the {bundle.framework} {bundle.format} tensor is broken: {fact}"
        "\nhint: look at how it was made; its own framework may have trusted it unseen"
    )
