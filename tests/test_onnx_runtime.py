"""Values of ONNX Runtime: what owns their memory, booleans, and values that are no tensors."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support.followed_hints import follow
from support.introspect import FRAMEWORKS
from support.memory import churn
from support.refusals import refused_everywhere

import tensorferry as ferry


def value(array: np.ndarray) -> Any:
    return ort.OrtValue.ortvalue_from_numpy(array)


class Model:
    """A model of one node, over the input `x`."""

    def __init__(self, node: str, output: Any, **attributes: Any) -> None:
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)]
        nodes = [helper.make_node(node, ["x"], ["y"], **attributes)]
        graph = helper.make_graph(nodes, "graph", inputs, [helper.make_value_info("y", output)])
        opsets = [helper.make_opsetid("", 21)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        self.session = ort.InferenceSession(model.SerializeToString())
        self.inputs = {"x": np.array([[0.0, 1.0, 2.0]], np.float32)}

    def value(self) -> Any:
        inputs = {name: value(array) for name, array in self.inputs.items()}
        return self.session.run_with_ort_values(None, inputs)[0]


def tensor_of(kind: int) -> Any:
    return helper.make_tensor_type_proto(kind, None)


def test_the_array_behind_a_value_outlives_the_result() -> None:
    """The capsule does not hold the array."""
    source = value(np.arange(3e6))
    result = ferry.to(source, "numpy")
    assert result.ctypes.data == source.data_ptr()
    seen = weakref.ref(source)
    del source
    churn(8 * 3_000_000)
    assert seen() is not None
    assert result[:4].tolist() == [0, 1, 2, 3]
    assert result[-1] == 3e6 - 1
    del result
    gc.collect()
    assert seen() is None


def test_the_inner_value_is_refused() -> None:
    value = ort.OrtValue.ortvalue_from_numpy(np.arange(3.0))
    for call in (ferry.to, ferry.plan):
        with pytest.raises(ferry.NotATensorError, match="does not own its memory") as caught:
            call(value._ortvalue, "numpy")
        assert "x.numpy()" in caught.value.hint
    copied = ferry.to(value._ortvalue.numpy(), "torch")
    del value
    assert copied.tolist() == [0, 1, 2]


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_booleans(target: str) -> None:
    mask = np.array([[True, False], [False, True]])
    plan = ferry.plan(value(mask), target)
    assert (plan.source_dtype, plan.dtype, plan.shape) == ("bool", "bool", (2, 2))
    result = ferry.to({"mask": [value(mask)]}, target)["mask"][0]
    back = ferry.to(result, "numpy")
    assert back.dtype == bool
    assert back.tolist() == mask.tolist()


def test_booleans_of_every_entry_point(tmp_path) -> None:
    mask = np.array([True, False, True])
    source = value(mask)
    assert ferry.to(source, "numpy").ctypes.data == source.data_ptr()
    with ferry.publish(source) as ticket:
        assert ferry.attach(ticket, "numpy").dtype == bool
    ferry.save(tmp_path / "x.npy", source)
    assert ferry.load(tmp_path / "x.npy", "numpy").tolist() == mask.tolist()
    assert ferry.to_async(source, "numpy").result().dtype == bool
    assert ferry.via("torch")(lambda x: x.logical_not())(source).tolist() == [False, True, False]
    assert ferry.to(value(mask.astype(np.uint8)), "numpy").dtype == np.uint8


SEQUENCE = helper.make_sequence_type_proto(tensor_of(TensorProto.FLOAT))
NOT_DENSE = {
    "tensor(string)": Model("Cast", tensor_of(TensorProto.STRING), to=TensorProto.STRING),
    "seq(tensor(float))": Model("SequenceConstruct", SEQUENCE),
}


@pytest.mark.parametrize("kind", NOT_DENSE)
def test_values_that_are_not_dense(kind: str) -> None:
    model = NOT_DENSE[kind]
    x = model.value()
    error = refused_everywhere(ferry.NotATensorError, TypeError, x)
    assert kind in str(error)
    found = follow(error, x=x, session=model.session, inputs=model.inputs)
    result = ferry.to(found, "numpy")
    values = result if isinstance(result, np.ndarray) else result[0][0]
    np.testing.assert_array_equal(values.reshape(1, 3), [[0, 1, 2]])


def test_sparse_values() -> None:
    device = ort.OrtDevice.make("cpu", 0)
    numbers, coordinates = np.array([1.5, 2.5], np.float32), np.array([0, 4])
    sparse = ort.SparseTensor.sparse_coo_from_numpy(np.array([3, 3]), numbers, coordinates, device)
    x = ort.OrtValue.ort_value_from_sparse_tensor(sparse)
    error = refused_everywhere(ferry.NotATensorError, TypeError, x)
    assert ferry.to(follow(error, x=x), "torch").tolist() == [1.5, 2.5]


def test_types_that_onnx_runtime_does_not_export() -> None:
    x = Model("Cast", tensor_of(TensorProto.INT4), to=TensorProto.INT4).value()
    error = refused_everywhere(ferry.NotATensorError, TypeError, x)
    assert "tensor(int4)" in str(error)
    assert "Cast" in error.hint  # type: ignore[attr-defined]
    cast = Model("Cast", tensor_of(TensorProto.DOUBLE), to=TensorProto.DOUBLE).value()
    assert ferry.to(cast, "numpy").tolist() == [[0.0, 1.0, 2.0]]


def test_an_optional_without_a_value() -> None:
    output = helper.make_value_info(
        "y", helper.make_optional_type_proto(tensor_of(TensorProto.FLOAT))
    )
    node = helper.make_node("Optional", [], ["y"], type=tensor_of(TensorProto.FLOAT))
    opsets = [helper.make_opsetid("", 18)]
    graph = helper.make_graph([node], "graph", [], [output])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    session = ort.InferenceSession(model.SerializeToString())
    x = session.run_with_ort_values(None, {})[0]
    error = refused_everywhere(ferry.NotATensorError, TypeError, x)
    assert "x.has_value()" in error.hint  # type: ignore[attr-defined]
    assert not x.has_value()
