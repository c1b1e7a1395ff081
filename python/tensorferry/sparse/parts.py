"""The arrays of the result: handed on as they are where both sides keep them alike, or made."""

from typing import Any

import numpy as np

from tensorferry._native import InvalidArgumentError, UnsupportedDTypeError
from tensorferry.sparse.bundle import Bundle, Rules, dtype_of, facts_of, refuse
from tensorferry.sparse.check import Structure
from tensorferry.sparse.entries import (
    LAID,
    Part,
    arrange,
    block_parts,
    compressed_parts,
    coordinate_parts,
    entries_of,
    turned_of,
    turned_parts,
)
from tensorferry.sparse.work import DENSE, IN_ORDER, INT32, INT64, UNIQUE, Host, numpy_dtype

# The greatest number of an index.
MOST = {"int32": 2**31 - 1, "int64": 2**63 - 1}


def parts_of(
    bundle: Bundle, found: Structure, work: Host, made: Bundle, rules: Rules, target: Any
) -> list[Part]:
    """The arrays of the result."""
    have = _index_dtypes(bundle, found)
    index = _index_dtype(bundle, rules, found.count, target, have)
    parts = _laid_out(bundle, found, work, made, rules, target, index)
    if have != {index}:
        for part in parts:
            if part.make is not None and part.name != "values":
                part.steps.append(("cast", cast_words(target, index, " and ".join(sorted(have)))))
    return parts


def _laid_out(
    bundle: Bundle,
    found: Structure,
    work: Host,
    made: Bundle,
    rules: Rules,
    target: Any,
    index: str,
) -> list[Part]:
    ordered = found.in_order or not rules.in_order
    alone = found.unique or not rules.unique
    same_blocks = made.blocksize == bundle.blocksize
    spare = found.spare if bundle.format == "coo" else 0
    direct = made.format == bundle.format and ordered and alone and same_blocks and not spare
    if direct and (bundle.format != "coo" or bundle.laid == rules.laid):
        made.in_order, made.unique = found.in_order, found.unique
        return _as_they_are(bundle, found, work, rules, index)
    if bundle.batch:
        refuse(
            f"the elements of this batch cannot stay as they lie: {rules.why or 'other blocks'}",
            "sort and sum them where the tensor is made, or use ferry.sparse.to_dense",
        )
    if (parts := _turned(bundle, found, work, made, rules, index)) is not None:
        return parts
    entries = entries_of(bundle, found, work)
    if made.format == "bsr":
        if made.blocksize is None or made.dense:
            raise InvalidArgumentError(
                "blocks of which size?\nhint: pass blocksize=(rows, columns)"
                if made.blocksize is None
                else "elements with dense axes cannot go into blocks\nhint: pass format='csr'"
            )
        made.in_order = made.unique = True
        return block_parts(entries, bundle.sparse_shape, made.blocksize, index)
    arrange(entries, made.format, rules)
    made.in_order, made.unique = bool(entries.bits & IN_ORDER), bool(entries.bits & UNIQUE)
    made.blocksize = None
    if made.format == "coo":
        parts = coordinate_parts(entries, rules.laid, index)
        if bundle.laid != rules.laid and bundle.format == "coo" and rules.laid != "apart":
            parts[0].steps[-1] = ("lay", _relaid(bundle, target, rules))
    else:
        rows = made.sparse_shape[1 if made.format == "csc" else 0]
        parts = compressed_parts(entries, made.format, rows, index)
    return [_packed(part, found, work, rules) for part in (entries.value_part(), *parts)]


def _turned(
    bundle: Bundle, found: Structure, work: Host, made: Bundle, rules: Rules, index: str
) -> list[Part] | None:
    """What is grouped by another axis at once, if nothing more is asked for."""
    if not work.turns or made.format not in ("csr", "csc") or bundle.format == "bsr":
        return None
    if (rules.unique and not found.unique) or (rules.in_order and bundle.format == "coo"):
        return None
    grouped = turned_of(bundle, found, work, made.format, index)
    if grouped is None:
        return None
    rows, columns = bundle.sparse_shape
    if made.format == "csc":
        rows, columns = columns, rows
    bits = grouped[0].bits(work, rows, columns)
    made.in_order, made.unique = bool(bits & IN_ORDER), bool(bits & UNIQUE)
    return turned_parts(*grouped, found, bundle, made.format, index)


def _as_they_are(
    bundle: Bundle, found: Structure, work: Host, rules: Rules, index: str
) -> list[Part]:
    """The parts of a format that both sides keep alike."""
    shape = tuple(facts_of(bundle.values).shape)
    values = Part("values", dtype_of(bundle.values), shape, array=bundle.values)
    arrays = dict(bundle.index_parts)
    if found.spare:
        values.array = work.fetch(bundle.values)[: found.count]
        values.shape = (found.count, *shape[1:])
        arrays["indices"] = found.indices
    parts = [values]
    for name, array in arrays.items():
        parts.append(Part(name, index, tuple(array.shape), array=array))
    return [_packed(part, found, work, rules) for part in parts]


def _packed(part: Part, found: Structure, work: Host, rules: Rules) -> Part:
    """A strided array is packed for frameworks whose functions count on dense ones."""
    if rules.strided or part.make is not None:
        return part
    if found.bits & DENSE and part.name != "values" and found.laid == "apart":
        return part
    # JAX and TensorFlow have dense arrays alone, and a look could mean a download.
    if type(part.array).__module__.split(".")[0] in ("jax", "jaxlib", "tensorflow"):
        return part
    seen = work.fetch(part.array)
    if not work.contiguous(seen):
        dtype = part.dtype
        part.array, part.make = None, lambda: work.pack(seen, dtype)
        part.steps.append(("pack", "strided; functions of the target count on dense memory"))
    return part


def _relaid(bundle: Bundle, target: Any, rules: Rules) -> str:
    return f"the coordinates lie {LAID[bundle.laid]}, and {target.TITLE} wants {LAID[rules.laid]}"


def _index_dtypes(bundle: Bundle, found: Structure) -> set[str]:
    """The types that the indices have."""
    if found.bits & INT32 and not found.bits & INT64:
        return {"int32"}
    if found.bits & INT64 and not found.bits & INT32:
        return {"int64"}
    return {dtype_of(array) for _, array in bundle.index_parts}


def _index_dtype(bundle: Bundle, rules: Rules, count: int, target: Any, have: set[str]) -> str:
    """The type of the indices: the source's own, unless the target asks for another."""
    if len(have) == 1:
        (widest,) = have
    else:
        widest = str(np.result_type(*map(numpy_dtype, have))) if have else "int64"
    room = max((count, *bundle.sparse_shape))
    for name in (widest, *rules.index_dtypes):
        if name in rules.index_dtypes and room <= MOST[name]:
            return name
    why = f" ({rules.why})" if rules.why.startswith("64-bit") else ""
    raise UnsupportedDTypeError(
        f"the shape {bundle.shape} with {count} elements is beyond "
        f"{' and '.join(rules.index_dtypes)}, the indices of {target.TITLE}{why}"
        "\nhint: take a part of it"
        + (", or turn on jax_enable_x64" if why else ", or another framework")
    )


def cast_words(target: Any, dtype: str, have: str) -> str:
    """Why indices change their type."""
    return f"{target.TITLE} keeps these indices as {dtype}, and they are {have}"
