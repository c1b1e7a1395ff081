"""Round trips of anything: whatever the shape, the strides and the type, what comes back is what
went."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from matrix.cells import Cell
from matrix.check import check
from matrix.make_arrays import properties_of
from support.dtypes import ALL, DType, sample, significant
from support.introspect import FRAMEWORKS, INSPECTORS, NumpyInspector, has_dtype, x64
from support.memory import aligned

import tensorferry as ferry

EXAMPLES = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def arrays(
    draw: st.DrawFn, dtypes: list[DType] | None = None, max_rank: int = 5
) -> tuple[DType, np.ndarray]:
    """A NumPy array of any type over memory of any alignment: its dimensions in any order in
    memory, with gaps, backwards, repeated, of length one with a stride of any kind; read-only or
    not, in either byte order."""
    dtype = draw(st.sampled_from(dtypes or ALL))
    shape = draw(st.lists(st.integers(0, 5), max_size=max_rank))
    order = draw(st.permutations(range(len(shape))))
    strides = [0] * len(shape)
    reach, low = dtype.size, 0
    for axis in order:
        kind = draw(
            st.sampled_from(("next", "next", "next", "gap", "backwards", "repeat", "broken"))
        )
        gap = {"gap": draw(st.integers(1, 3)) * dtype.size, "broken": draw(st.integers(1, 3))}.get(
            kind, 0
        )
        step = 0 if kind == "repeat" else reach + gap
        if shape[axis] == 1:
            step = draw(st.sampled_from((step, 0, -step, 13, -7)))
        length = max(0, shape[axis] - 1) * abs(step)
        strides[axis] = -step if kind == "backwards" else step
        if kind == "backwards":
            low += length if shape[axis] > 1 else 0
        reach += length
    raw = aligned(reach + low + dtype.size, past=draw(st.sampled_from((0, 0, 0, 1, 4, 8, 16, 32))))
    raw[:] = np.resize(sample(dtype, max(1, raw.size // dtype.size) + 1), raw.size)
    a = np.ndarray(tuple(shape), dtype.numpy, raw, low, tuple(strides))
    if dtype.is_numpys_own and dtype.swap_unit > 1 and draw(st.booleans()):
        a = a.view(dtype.numpy.newbyteorder(draw(st.sampled_from(("<", ">", ">")))))
    if draw(st.integers(0, 3)) == 0:
        a.flags.writeable = False
    return dtype, a


@pytest.mark.parametrize("target", FRAMEWORKS)
@EXAMPLES
@given(arrays())
def test_any_array_is_carried_as_the_rules_say(target: str, made: tuple[DType, np.ndarray]) -> None:
    dtype, a = made
    check(Cell(a, properties_of("numpy", dtype, a), NumpyInspector.values(a)), target)


@pytest.mark.parametrize("target", FRAMEWORKS)
@EXAMPLES
@given(
    arrays(),
    st.sampled_from((None, True, False)),
    st.sampled_from((None, True, False)),
    st.sampled_from((None, "default", *(dtype for dtype in ALL))),
)
def test_any_option_is_applied_by_the_rules(
    target: str,
    made: tuple[DType, np.ndarray],
    copy: bool | None,
    writable: bool | None,
    wanted: DType | str | None,
) -> None:
    dtype, a = made
    cell = Cell(a, properties_of("numpy", dtype, a), NumpyInspector.values(a))
    check(cell, target, copy=copy, writable=writable, dtype=wanted)


@pytest.mark.parametrize("other", FRAMEWORKS)
@pytest.mark.parametrize("home", FRAMEWORKS)
@EXAMPLES
@given(arrays())
def test_there_and_back(home: str, other: str, made: tuple[DType, np.ndarray]) -> None:
    dtype, a = made
    assume(has_dtype(home, dtype) and has_dtype(other, dtype))
    wanted = significant(dtype, NumpyInspector.values(a))
    with x64(True):
        x = ferry.to(a, home)
        there = ferry.to(x, other)
        back = ferry.to(there, home)
    for name, tensor in ((home, x), (other, there), (home, back)):
        look = INSPECTORS[name]
        assert look.dtype(tensor) == dtype.name
        assert look.shape(tensor) == a.shape
        assert significant(dtype, look.values(tensor)) == wanted
    assert type(back) is type(x)


@pytest.mark.parametrize("target", FRAMEWORKS)
@EXAMPLES
@given(arrays(max_rank=3), st.sampled_from(ALL))
def test_a_cast_of_any_layout_is_the_cast_of_the_dense_one(
    target: str, made: tuple[DType, np.ndarray], wanted: DType
) -> None:
    dtype, a = made
    assume(has_dtype(target, wanted) and not (target == "jax" and wanted.is_64_bit))
    assume(dtype.casts_to(wanted))
    dense = np.frombuffer(NumpyInspector.values(a), dtype.numpy).reshape(a.shape)
    result = ferry.to(a, target, dtype=wanted.name)
    reference = ferry.to(dense, "numpy", dtype=wanted.name, copy=True)
    assert significant(wanted, INSPECTORS[target].values(result)) == significant(
        wanted, reference.tobytes()
    )
