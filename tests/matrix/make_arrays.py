"""NumPy arrays of every case, and the protocols that can be spoken over their memory."""

from __future__ import annotations

import array
import mmap
from typing import Any

import numpy as np
from matrix.cells import Cell, arrange, fill, flat, form_of
from matrix.expect import SourceProperties
from support.capsules import READ_ONLY, LegacyProducer, VersionedProducer
from support.dtypes import DType, sample
from support.introspect import NumpyInspector
from support.memory import aligned, read_only_map


def can_be_written(a: np.ndarray) -> bool:
    """Whether what allocated the memory of an array lets it be written."""
    owner: Any = a
    while isinstance(owner, (np.ndarray, memoryview)):
        base = owner.base if isinstance(owner, np.ndarray) else owner.obj
        if base is None:
            return bool(owner.flags.writeable)
        owner = base
    return not memoryview(owner).readonly


def properties_of(
    framework: str, dtype: DType, a: np.ndarray, *, accidental: bool | None = None, **more: Any
) -> SourceProperties:
    """The facts of a NumPy array, under another framework's name if need be."""
    if accidental is None:
        accidental = can_be_written(a)
    frozen = not a.flags.writeable
    swapped = a.dtype.byteorder == ">" and dtype.size > 1
    return SourceProperties(
        framework,
        dtype,
        a.shape,
        a.strides,
        NumpyInspector.address(a),
        swapped=swapped,
        frozen=frozen,
        accidental=accidental,
        **more,
    )


def make_numpy(dtype: DType, case: str) -> Cell:
    """An ndarray."""
    return _cell("numpy", dtype, case, array_of(dtype, case))


def _cell(
    framework: str,
    dtype: DType,
    case: str,
    a: np.ndarray,
    wrap: Any = lambda a: a,
    accidental: bool | None = None,
) -> Cell:
    facts = properties_of(framework, dtype, a, accidental=accidental)
    return Cell(wrap(a), facts, NumpyInspector.values(a), case != "read-only map")


def array_of(dtype: DType, case: str) -> np.ndarray:
    """The array of a case that NumPy can make."""
    form = form_of(case)
    if case == "read-only map":
        mapped = read_only_map(sample(dtype, form.room))
        return np.frombuffer(mapped, np.uint8).view(dtype.numpy).reshape(form.shape)
    if case == "broken stride":
        # A field of a record: an element and one byte more from each to the next.
        raw = aligned(12 * (dtype.size + 1))
        raw[:] = np.resize(sample(dtype, 13), raw.size)
        record = np.dtype(
            {"names": ["x", "y"], "formats": [dtype.numpy, "u1"], "itemsize": dtype.size + 1}
        )
        if not dtype.is_numpys_own:
            return np.ndarray((12,), dtype.numpy, raw, 0, (dtype.size + 1,))
        return raw.view(record)["x"]
    a = arrange(dtype, fill(dtype, form), form)
    if case == "size-one dimensions":
        # No multiples of an element, and one runs backwards.
        a = np.ndarray(a.shape, dtype.numpy, a.base, 0, (-13, dtype.size, 7))
    if case == "read-only":
        a.flags.writeable = False
    if case == "big-endian":
        a = a.view(dtype.numpy.newbyteorder(">"))
    if case == "base dies":
        a = a[1:]
        assert a.base is not None
    return a


# ----- the buffer protocol


def make_memoryview(dtype: DType, case: str) -> Cell:
    """A memoryview over an array."""
    return _cell("buffer", dtype, case, array_of(dtype, case), memoryview)


def _dense(
    dtype: DType, case: str, wrap: Any, *, pokes: bool = True, accidental: bool | None = None
) -> Cell:
    """A flat buffer that `wrap` makes from bytes."""
    form = flat(form_of(case))
    values = sample(dtype, form.room).tobytes()
    made = wrap(values)
    a = np.frombuffer(made, dtype.numpy)
    return Cell(made, properties_of("buffer", dtype, a, accidental=accidental), values, pokes)


def make_bytes(dtype: DType, case: str) -> Cell:
    """A bytes object."""
    return _dense(dtype, case, bytes)


def make_bytearray(dtype: DType, case: str) -> Cell:
    """A bytearray."""
    return _dense(dtype, case, bytearray)


def make_array_array(dtype: DType, case: str) -> Cell:
    """An array.array."""
    letters = {array.array(letter).itemsize: letter for letter in "bhiq"} | {
        "float32": "f",
        "float64": "d",
    }
    letter = letters[dtype.name] if dtype.kind == "float" else letters[dtype.size]
    letter = letter.upper() if dtype.kind == "unsigned" else letter
    return _dense(dtype, case, lambda values: array.array(letter, values))


def make_mmap(dtype: DType, case: str) -> Cell:
    """A memory map: of no file and writable, or of a file and read-only."""
    if case == "read-only map":
        return _dense(
            dtype, case, lambda values: read_only_map(np.frombuffer(values, np.uint8)), pokes=False
        )

    def anonymous(values: bytes) -> mmap.mmap:
        made = mmap.mmap(-1, len(values))
        made[:] = values
        return made

    return _dense(dtype, case, anonymous, accidental=False)


# ----- DLPack and NumPy's own protocols


def _producer(kind: type, dtype: DType, case: str) -> Cell:
    form = form_of(case)
    if case == "read-only map":
        raw = np.frombuffer(read_only_map(sample(dtype, form.room)), np.uint8)
    else:
        raw = fill(dtype, form)
    a = arrange(dtype, raw, form)
    # A producer does not say who else can write its memory.
    facts = properties_of("dlpack", dtype, a, accidental=True)
    frozen = case.startswith("read-only")
    facts = SourceProperties(**{**facts.__dict__, "frozen": frozen})
    made = kind(
        dtype,
        facts.address,
        a.shape,
        form.strides,
        raw,
        versioned=kind is VersionedProducer,
        flags=READ_ONLY if frozen else 0,
        byte_offset=form.start * dtype.size,
    )
    return Cell(made, facts, NumpyInspector.values(a), case != "read-only map")


def make_dlpack_legacy(dtype: DType, case: str) -> Cell:
    """An object with `__dlpack__` of the old form."""
    return _producer(LegacyProducer, dtype, case)


def make_dlpack_versioned(dtype: DType, case: str) -> Cell:
    """An object with `__dlpack__` of the new form."""
    return _producer(VersionedProducer, dtype, case)


class WithInterface:
    """An object with `__array_interface__` and nothing else."""

    def __init__(self, a: np.ndarray) -> None:
        self._owner = a
        self.__array_interface__ = a.__array_interface__ | {"strides": a.strides}


class WithMethod:
    """An object with `__array__` and nothing else."""

    def __init__(self, a: np.ndarray) -> None:
        self._array = a

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        assert dtype is None
        assert not copy
        return self._array


def make_interface(dtype: DType, case: str) -> Cell:
    """An object with `__array_interface__`."""
    return _cell("array", dtype, case, array_of(dtype, case), WithInterface, accidental=True)


def make_method(dtype: DType, case: str) -> Cell:
    """An object with `__array__`."""
    return _cell("array", dtype, case, array_of(dtype, case), WithMethod)


MAKERS = {
    "numpy": make_numpy,
    "bytes": make_bytes,
    "bytearray": make_bytearray,
    "memoryview": make_memoryview,
    "array.array": make_array_array,
    "mmap": make_mmap,
    "dlpack legacy": make_dlpack_legacy,
    "dlpack versioned": make_dlpack_versioned,
    "array interface": make_interface,
    "array method": make_method,
}
