"""Every maker under the name of its source."""

from __future__ import annotations

from matrix import make_arrays, make_tensors, make_values
from matrix.cells import CASES, SOURCES, Cell, Maker, cannot_make
from support.dtypes import ALL, DType

MAKERS: dict[str, Maker] = {**make_arrays.MAKERS, **make_tensors.MAKERS, **make_values.MAKERS}
assert set(MAKERS) == set(SOURCES)


def make(source: str, case: str, dtype: DType) -> Cell | None:
    """A fresh cell, or None where the source cannot make such a thing."""
    return None if cannot_make(source, case, dtype) else MAKERS[source](dtype, case)


def dtypes_of(source: str, case: str) -> list[DType]:
    """The types in which a source makes a case."""
    return [dtype for dtype in ALL if not cannot_make(source, case, dtype)]


def pairs_of_source_and_case() -> list[tuple[str, str]]:
    """All that some type can be made in."""
    return [(source, case) for source in SOURCES for case in CASES if dtypes_of(source, case)]
