"""Streams: the format and its versions, damaged ones, and plans."""

from __future__ import annotations

import contextlib
import io
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matrix.test_round_trips import arrays
from support.dtypes import DType, significant
from support.introspect import check_tensor

import tensorferry as ferry
from tensorferry import pickling

import jax.numpy as jnp  # isort: skip

RECORDED = Path(__file__).parent / "version_1.pickle"


def recorded_tree() -> dict[str, Any]:
    """What tests/pickling/version_1.pickle holds."""
    numbers = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    weight = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    return {
        "numpy": numbers,
        "transposed": numbers.transpose(2, 0, 1),
        "strided": numbers[:, ::2, ::-1],
        "big-endian": numbers.astype(">f8"),
        "empty": np.empty((0, 5), np.int8),
        "scalar": np.array(True),
        "torch": weight,
        "tied": weight.view(2, 3),
        "parameter": torch.nn.Parameter(torch.arange(4, dtype=torch.float64)),
        "jax": jnp.arange(5, dtype=jnp.int32),
        "weak": jnp.asarray(1.5),
        "text": "unchanged",
    }


def check_recorded(loaded: dict[str, Any]) -> None:
    expected = recorded_tree()
    assert loaded.keys() == expected.keys()
    for name in ("numpy", "transposed", "strided", "big-endian", "empty", "scalar"):
        assert loaded[name].dtype == expected[name].dtype
        assert np.array_equal(loaded[name], expected[name])
    assert loaded["transposed"].strides == expected["transposed"].strides
    assert torch.equal(loaded["torch"], expected["torch"])
    assert loaded["torch"].dtype == torch.bfloat16
    assert loaded["tied"].data_ptr() == loaded["torch"].data_ptr()
    assert isinstance(loaded["parameter"], torch.nn.Parameter)
    assert torch.equal(loaded["parameter"], expected["parameter"])
    check_tensor("jax", loaded["jax"], np.arange(5, dtype=np.int32))
    assert loaded["weak"].weak_type
    assert loaded["text"] == "unchanged"


def test_the_recorded_pickle_of_version_1_loads() -> None:
    check_recorded(pickle.loads(RECORDED.read_bytes()))


def test_new_pickles_are_read_as_the_recorded_one_is() -> None:
    file = io.BytesIO()
    pickling.Pickler(file).dump(recorded_tree())
    check_recorded(pickle.loads(file.getvalue()))


def test_a_stream_names_one_function_of_the_package() -> None:
    """What a stream names must exist for ever."""
    data, _ = pickling.dumps(recorded_tree())
    texts: list[Any] = []
    names = set()
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "STACK_GLOBAL":
            names.add(tuple(texts[-2:]))
        elif isinstance(argument, str):
            texts.append(argument)
    assert names == {("tensorferry.pickling", "_rebuild")}


@pytest.mark.parametrize("version", [2, 2**40, -1, "1", None])
def test_an_unknown_version_says_what_to_install(version: Any) -> None:
    with pytest.raises(ferry.InvalidTensorError, match=r"version .*\nhint: .*pip install"):
        pickling._rebuild(version, "whatever", "a", "later", "version", "has")


@pytest.mark.slow
def test_a_tensor_of_more_than_4_gib() -> None:
    t = torch.empty((1 << 32) + 100, dtype=torch.uint8)
    t[-3:] = torch.tensor([1, 2, 3], dtype=torch.uint8)
    data, buffers = pickling.dumps(t)
    back = pickling.loads(data, [buffers[0].raw().toreadonly()])
    assert back.shape == t.shape
    assert back.data_ptr() != t.data_ptr()
    assert back[-3:].tolist() == [1, 2, 3]


DAMAGED = {
    "too few bytes": (1, b"abc", "float32", (1,)),
    "too many bytes": (1, bytes(8), "float32", (1,)),
    "unknown type": (1, bytes(4), "float33", (1,)),
    "type of bytes": (1, bytes(4), b"float32", (1,)),
    "negative length": (1, bytes(4), "float32", (-1,)),
    "two negative lengths": (1, bytes(4), "float32", (-1, -1)),
    "overflow": (1, bytes(4), "float32", (1 << 62, 1 << 62)),
    "overflow to zero": (1, b"", "float32", (1 << 62, 4)),
    "a length beyond 64 bits": (1, bytes(4), "float32", (1 << 70,)),
    "a length that is not a number": (1, bytes(4), "float32", ("1",)),
    "a shape that is not a tuple": (1, bytes(4), "float32", [1]),
    "dimensions named twice": (1, bytes(4), "float32", (1, 1), (0, 0)),
    "dimensions out of range": (1, bytes(4), "float32", (1, 1), (0, 2)),
    "too few dimensions": (1, bytes(4), "float32", (1, 1), (0,)),
    "negative dimension": (1, bytes(4), "float32", (1, 1), (0, -1)),
    "no buffer": (1, None, "float32", (1,)),
    "a number for the buffer": (1, 5, "float32", (1,)),
    "gaps": (1, memoryview(bytes(8))[::2], "float32", (1,)),
    "no arguments": (1,),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_descriptions_are_refused(name: str) -> None:
    with pytest.raises(ferry.InvalidTensorError, match="hint: "):
        pickling._rebuild(*DAMAGED[name])


def result_or_error_text(call: Callable[[], Any]) -> Any:
    """The result, or the message of tensorferry's error. Other errors are raised."""
    try:
        return call()
    except ferry.FerryError as error:
        return str(error)


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "tensorflow", "paddle", "mlx"])
def test_many_dimensions_are_carried_or_refused(framework: str) -> None:
    result = result_or_error_text(
        lambda: pickling._rebuild(1, bytes(4), "float32", (1,) * 100)(framework)
    )
    assert "hint: " in result if isinstance(result, str) else len(result.shape) == 100


MUTATIONS = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
RECORDED_BYTES = RECORDED.read_bytes()


class NoCode(pickle.Unpickler):
    """Unpickles what streams of tensorferry need, and nothing that runs other code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("tensorferry.pickling", "_rebuild"):
            return pickling._rebuild
        raise pickle.UnpicklingError(f"{module}.{name}")


@MUTATIONS
@given(
    st.lists(st.tuples(st.integers(0, len(RECORDED_BYTES) - 1), st.integers(0, 255)), min_size=1)
)
def test_changed_bytes_raise_or_give_an_object(changes: list[tuple[int, int]]) -> None:
    """No stream crashes the process, whatever it says."""
    data = bytearray(RECORDED_BYTES)
    for offset, value in changes:
        data[offset] = value
    with contextlib.suppress(Exception):
        NoCode(io.BytesIO(data)).load()


@MUTATIONS
@given(
    st.binary(max_size=64),
    st.sampled_from(["float32", "int8", ">float64", "bool", "int4", "float8_e5m2", "x"]),
    st.lists(st.integers(-2, 2**63), max_size=4).map(tuple)
    | st.lists(st.integers(0, 4), max_size=4).map(tuple),
    st.none() | st.permutations(range(4)).map(tuple) | st.lists(st.integers(0, 5)).map(tuple),
    st.sampled_from(["numpy", "torch", "jax", "tensorflow", "paddle"]),
)
def test_any_description_is_checked_against_the_bytes(
    raw: bytes, dtype: str, shape: tuple[int, ...], order: tuple[int, ...] | None, framework: str
) -> None:
    result = result_or_error_text(lambda: pickling._rebuild(1, raw, dtype, shape, order)(framework))
    if isinstance(result, str):
        assert "hint: " in result
        return
    assert tuple(result.shape) == shape
    size = {"float32": 4, ">float64": 8}.get(dtype, 1)
    assert size * int(np.prod(shape, dtype=object)) == len(raw)


@MUTATIONS
@given(arrays())
def test_any_array_comes_back(made: tuple[DType, np.ndarray]) -> None:
    dtype, a = made
    data, buffers = pickling.dumps(a)
    for each in (buffers, [bytes(buffer.raw()) for buffer in buffers]):
        back = pickling.loads(data, each)
        assert back.dtype == a.dtype
        assert back.shape == a.shape
        assert significant(dtype, back.tobytes()) == significant(dtype, a.tobytes())


def test_plans_say_what_travels() -> None:
    t = torch.rand(100, 100)
    tree = {"whole": t, "again": t.view(100, 100), "column": t[:, 0], "turned": t.t(), "text": "x"}
    plan = pickling.plan(tree)
    assert plan.kind == "tree"
    assert [(part.action, part.bytes_moved) for part in plan.parts] == [
        ("share", 0),
        ("copy", 400),
        ("share", 0),
    ]
    assert plan.bytes_moved == 400
    assert plan.parts[1].steps[0][0] == "pack"
    assert len(pickling.dumps(tree)[1]) == len(plan.parts)
    (conjugate,) = pickling.plan(torch.ones(10, dtype=torch.complex64).conj()).parts
    assert (conjugate.action, conjugate.bytes_moved) == ("copy", 80)
    assert pickling.plan("no tensor").parts == []
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickling.plan([t, lambda: None])
    assert len(pickling.plan(t).parts) == 1
    # A plan copies nothing and leaves nothing behind.
    assert len(pickling.dumps(t)[1]) == 1
