"""Whether the parts of a sparse tensor fit each other, and in which order its elements lie.

Frameworks trust what they are given: an index that is out of bounds, or row pointers that go back,
make them read memory that is not theirs. So each bundle is looked through once before its memory is
handed on. What a framework says about its own order is not believed either, it is looked up.
"""

import math
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tensorferry._native import InvalidTensor
from tensorferry.sparse.bundle import Bundle, facts_of, refuse
from tensorferry.sparse.work import Host


@dataclass
class Structure:
    """What was found, with the index arrays as the worker sees them."""

    count: int
    in_order: bool = True
    unique: bool = True
    axes: list[Any] = field(default_factory=list)
    indices: Any = None
    indptr: Any = None
    keep: Any = None
    spare: int = 0


def check(bundle: Bundle, work: Host) -> Structure:
    """Looks a bundle through; raises where its parts do not fit."""
    for name, array in bundle.index_parts:
        dtype = facts_of(array).source_dtype
        if not dtype.removeprefix("u").startswith("int"):
            _broken(bundle, f"{name} are {dtype}, and not whole numbers")
    if bundle.format == "coo":
        if bundle.batch:
            return Structure(0, bundle.in_order, bundle.unique)
        return _coordinates(bundle, work)
    return _compressed(bundle, work)


def order_of(axes: list[Any]) -> tuple[bool, bool]:
    """Whether places are in order, the first axis first, and if so, whether each is there once."""
    if len(axes[0]) < 2:
        return True, True
    less: Any = None
    equal: Any = None
    for axis in axes:
        before, after = axis[:-1], axis[1:]
        below, same = before < after, before == after
        less = below if less is None else less | (equal & below)
        equal = same if equal is None else equal & same
    in_order = bool((less | equal).all())
    return in_order, in_order and not bool(equal.any())


def _coordinates(bundle: Bundle, work: Host) -> Structure:
    lengths = bundle.sparse_shape
    parts = [work.fetch(part) for part in bundle.coordinates]
    shape = tuple(facts_of(bundle.values).shape)
    count = shape[0] if shape else -1
    found = [tuple(part.shape) for part in parts]
    expected = {
        "axes": [(len(lengths), count)],
        "points": [(count, len(lengths))],
        "apart": [(count,)] * len(lengths),
    }[bundle.laid]
    dense = bundle.shape[len(lengths) :]
    if found != expected or shape[1:] != dense:
        _broken(bundle, f"coordinates of shapes {found} do not fit values of shape {shape}")
    if bundle.laid == "apart":
        axes = parts
    else:
        whole = parts[0]
        axes = [whole[i] if bundle.laid == "axes" else whole[:, i] for i in range(len(lengths))]
    made = Structure(count, axes=axes)
    beyond: Any = None
    for axis, length in zip(axes, lengths, strict=True):
        least, most = work.ends(axis) if count else (0, -1)
        if least < 0 or (most >= length and not bundle.padded):
            wrong = least if least < 0 else most
            _broken(bundle, f"a coordinate is {wrong} on an axis of length {length}")
        if most >= length:
            over = axis >= length
            beyond = over if beyond is None else beyond | over
    if beyond is not None:
        made.keep = work.where(~beyond)
        made.spare = count - len(made.keep)
        made.axes = [work.take(axis, made.keep) for axis in axes]
        made.count = len(made.keep)
    made.in_order, made.unique = order_of(made.axes)
    return made


def _compressed(bundle: Bundle, work: Host) -> Structure:
    rows, columns = bundle.sparse_shape
    if bundle.format == "csc":
        rows, columns = columns, rows
    block: tuple[int, ...] = ()
    if bundle.blocksize is not None:
        block = bundle.blocksize
        if min(block) < 1 or rows % block[0] or columns % block[1]:
            _broken(bundle, f"blocks of {block} do not fill the shape {bundle.shape}")
        rows, columns = rows // block[0], columns // block[1]
    indptr, indices = work.fetch(bundle.indptr), work.fetch(bundle.indices)
    shape = tuple(facts_of(bundle.values).shape)
    batches = bundle.shape[: bundle.batch]
    stored = tuple(indices.shape)[-1] if indices.ndim else -1
    dense = bundle.shape[bundle.batch + 2 :]
    fits = (
        tuple(indptr.shape) == (*batches, rows + 1)
        and tuple(indices.shape) == (*batches, stored)
        and shape == (*batches, stored, *block, *dense)
    )
    if not fits:
        _broken(
            bundle,
            f"indptr of shape {tuple(indptr.shape)}, indices of {tuple(indices.shape)} and values "
            f"of {shape} do not fit each other",
        )
    made = Structure(stored, indices=indices, indptr=indptr)
    many = math.prod(batches)
    flat_indptr = indptr.reshape(many, rows + 1)
    flat_indices = indices.reshape(many, stored)
    for number in range(many):
        used = _row_pointers(bundle, flat_indptr[number], stored)
        if used != stored:
            if bundle.batch:
                refuse(
                    f"one tensor of this batch has {used} elements and another has {stored}",
                    "pass dense=True, or the tensors of the batch one by one",
                )
            made.spare, made.count = stored - used, used
            made.indices = indices = indices[:used]
            flat_indices = indices.reshape(1, used)
        _columns(bundle, made, flat_indptr[number], flat_indices[number], columns, work)
    return made


def _row_pointers(bundle: Bundle, indptr: Any, stored: int) -> int:
    """Checks row pointers, and says how many elements they lead to."""
    first, last = int(indptr[0]), int(indptr[-1])
    if first != 0:
        _broken(bundle, f"indptr begins with {first}, and not with 0")
    if bool((indptr[1:] < indptr[:-1]).any()):
        _broken(bundle, "indptr goes back")
    if last > stored or (last < stored and bundle.framework == "torch"):
        _broken(bundle, f"indptr ends with {last}, and there are {stored} elements")
    return last


def _columns(
    bundle: Bundle, made: Structure, indptr: Any, indices: Any, columns: int, work: Host
) -> None:
    count = len(indices)
    if not count:
        return
    least, most = work.ends(indices)
    if least < 0 or most >= columns:
        wrong = least if least < 0 else most
        _broken(bundle, f"an index is {wrong} where {columns} are possible")
    if count < 2:
        return
    before, after = indices[:-1], indices[1:]
    rising, above = before <= after, before < after
    ends = indptr[1:-1]
    ends = ends[(ends > 0) & (ends < count)] - 1
    ends = work.wide(ends)
    rising[ends] = True
    above[ends] = True
    in_order = bool(rising.all())
    made.in_order &= in_order
    made.unique &= in_order and bool(above.all())


def _broken(bundle: Bundle, fact: str) -> NoReturn:
    raise InvalidTensor(
        f"the {bundle.framework} {bundle.format} tensor is broken: {fact}"
        "\nhint: look at how it was made; its own framework may have trusted it unseen"
    )
