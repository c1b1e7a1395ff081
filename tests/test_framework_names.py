"""Every function and command that takes a framework takes the same names, and refuses the same."""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import tensorferry as ferry
from tensorferry._native import canonical, classify, classify_type
from tensorferry._tools import cli
from tensorferry.framework_register import FRAMEWORKS, TENSOR_FRAMEWORKS

ROWS = [row for row in FRAMEWORKS.values() if row.has_dense]
NAMES = [(row.name, name) for row in ROWS for name in (row.name, *row.aliases)]
HERE = [row for row in ROWS if row.name != "cupy"]

MISSPELT = {
    "tensorfow": "tensorflow",
    "TensorFlow": "tensorflow",
    "pytroch": "pytorch",
    "nunpy": "numpy",
    "jaxx": "jax",
    "paddel": "paddle",
}


def source() -> Any:
    return np.arange(6, dtype=np.float32)


def sparse_source() -> Any:
    return scipy.sparse.csr_array(np.eye(3, dtype=np.float32))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("names") / "x.npy"
    ferry.save(path, source())
    return path


@pytest.fixture(
    params=[
        *("to", "plan", "to_async", "via", "returns", "load", "load_raw", "attach"),
        "sparse.to_dense",
    ]
)
def call(request: pytest.FixtureRequest, saved: pathlib.Path) -> Callable[[Any], Any]:
    """A call that takes a framework and gives a tensor of it, or its plan."""
    ticket = ferry.publish(source())

    def body(x: Any) -> Any:
        return x

    calls: dict[str, Callable[[Any], Any]] = {
        "to": lambda framework: ferry.to(source(), framework),
        "plan": lambda framework: ferry.plan(source(), framework),
        "to_async": lambda framework: ferry.to_async(source(), framework).result(),
        "via": lambda framework: ferry.via(framework, returns=framework)(body)(source()),
        "returns": lambda framework: ferry.via("numpy", returns=framework)(body)(source()),
        "load": lambda framework: ferry.load(saved, framework),
        "load_raw": lambda framework: ferry.load_raw(
            saved, framework, dtype="uint8", shape=(saved.stat().st_size,)
        ),
        "attach": lambda framework: ferry.attach(ticket, framework),
        "sparse.to_dense": lambda framework: ferry.sparse.to_dense(sparse_source(), framework),
    }
    return calls[request.param]


def framework_of(result: Any) -> str:
    if isinstance(result, ferry.Plan):
        return result.target
    found = classify(result)
    assert found is not None
    assert found[1] == "dense"
    return found[0]


@pytest.mark.parametrize(("name", "written"), NAMES)
def test_every_name(call: Callable[[Any], Any], name: str, written: str) -> None:
    assert canonical(written) == name
    if name == "cupy":
        with pytest.raises(ferry.FrameworkNotFoundError) as caught:
            call(written)
        assert isinstance(caught.value, ImportError)
        assert "pip install" in (caught.value.hint or "")
    else:
        assert framework_of(call(written)) == name


@pytest.mark.parametrize("name", [row.name for row in HERE])
def test_every_module(call: Callable[[Any], Any], name: str) -> None:
    row = FRAMEWORKS[name]
    modules = [row.module, *(alias for alias in row.aliases if "." in alias and alias[:3] != "tf.")]
    for module in modules:
        assert framework_of(call(importlib.import_module(module))) == name


@pytest.mark.parametrize("name", [row.name for row in ROWS])
@pytest.mark.parametrize("empty", [ferry.empty_shared, ferry.empty_aligned])
def test_every_name_for_new_memory(name: str, empty: Callable[..., Any]) -> None:
    for written in (name, *FRAMEWORKS[name].aliases):
        if name == "cupy":
            with pytest.raises(ferry.FrameworkNotFoundError):
                empty(3, "float32", framework=written)
        elif name in ("jax", "tensorflow", "mlx"):
            with pytest.raises(ferry.InvalidArgumentError, match="cannot be filled"):
                empty(3, "float32", framework=written)
        else:
            assert framework_of(empty(3, "float32", framework=written)) == name


@pytest.mark.parametrize("written", [*MISSPELT, "nonsense", "os", ""])
def test_no_framework_is_called_so(call: Callable[[Any], Any], written: str) -> None:
    with pytest.raises(ferry.InvalidArgumentError) as caught:
        call(written)
    assert f'unknown framework "{written}"' in str(caught.value)
    hint = caught.value.hint or ""
    if written in MISSPELT:
        assert hint == f'did you mean "{MISSPELT[written]}"?'
    else:
        assert "did you mean" not in hint
        assert all(name in hint for name in TENSOR_FRAMEWORKS)


@pytest.mark.parametrize("written", [3, np.ones(3), ["torch"], b"torch"])
def test_what_is_neither_a_name_nor_a_module(call: Callable[[Any], Any], written: Any) -> None:
    says = "must be a name or a module|does not name a framework"
    with pytest.raises(ferry.InvalidArgumentError, match=says) as caught:
        call(written)
    assert caught.value.hint


@pytest.mark.parametrize("written", ["scipy", "scipy.sparse", "sparse", "pydata"])
def test_frameworks_without_dense_tensors(call: Callable[[Any], Any], written: str) -> None:
    with pytest.raises(ferry.InvalidArgumentError, match="sparse tensors only") as caught:
        call(written)
    assert caught.value.hint


SPARSE_NAMES = [
    (row.name, name)
    for row in FRAMEWORKS.values()
    if row.has_sparse and row.name != "cupy"
    for name in (row.name, *row.aliases)
]


@pytest.mark.parametrize(("name", "written"), SPARSE_NAMES)
def test_every_name_for_sparse_tensors(name: str, written: str) -> None:
    assert classify(ferry.sparse.to(sparse_source(), written)) == (name, "sparse")
    assert classify(ferry.to(sparse_source(), written)) == (name, "sparse")
    assert ferry.sparse.plan(sparse_source(), written).target == name


@pytest.mark.parametrize("verb", [ferry.sparse.to, ferry.sparse.plan])
def test_no_framework_of_sparse_tensors_is_called_so(verb: Callable[..., Any]) -> None:
    for written, meant in {**MISSPELT, "scypi": "scipy", "sprase": "sparse"}.items():
        unknown = f'unknown framework "{written}"'
        with pytest.raises(ferry.InvalidArgumentError, match=unknown) as caught:
            verb(sparse_source(), written)
        assert caught.value.hint == f'did you mean "{meant}"?'
    with pytest.raises(ferry.FrameworkNotFoundError):
        verb(sparse_source(), "cp")


def test_the_names_of_distributions_are_known() -> None:
    for written, meant in {"paddlepaddle": "paddle", "cupy-cuda12x": "cupy"}.items():
        with pytest.raises(ferry.InvalidArgumentError) as caught:
            ferry.to(source(), written)
        assert caught.value.hint == f'did you mean "{meant}"?'


# The command line.

COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "plan from": lambda name: ["plan", name, "numpy", "--shape", "3"],
    "plan to": lambda name: ["plan", "numpy", name, "--shape", "3"],
    "doctor": lambda name: ["doctor", "--frameworks", f"numpy,{name}"],
    "bench from": lambda name: ["bench", "--from", name, "--to", "numpy"],
    "bench to": lambda name: ["bench", "--from", "numpy", "--to", name],
}


@pytest.mark.parametrize("command", ["plan from", "plan to"])
@pytest.mark.parametrize(("name", "written"), [pair for pair in NAMES if pair[0] != "cupy"])
def test_commands_take_every_name(capsys: Any, command: str, name: str, written: str) -> None:
    assert cli.main([*COMMANDS[command](written), "--json"]) == 0
    assert f'"{name}"' in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_other_names(capsys: Any, command: str) -> None:
    for written, meant in MISSPELT.items():
        assert cli.main(COMMANDS[command](written)) in (2, 3)
        told = capsys.readouterr().err
        assert f'unknown framework "{written}"' in told
        assert f'hint: did you mean "{meant}"?' in told
    assert cli.main(COMMANDS[command]("scipy")) in (2, 3)
    assert "sparse tensors only" in capsys.readouterr().err


# The register itself.


def test_names_are_unique() -> None:
    names = [name for row in FRAMEWORKS.values() for name in (row.name, *row.aliases)]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", [row.name for row in HERE])
def test_types_are_classified(name: str) -> None:
    made = ferry.to(source(), name)
    assert classify(made) == (name, "dense")
    assert classify_type(type(made)) == (name, "dense")


def test_sparse_and_traced_objects_are_classified() -> None:
    import jax
    import scipy.sparse
    import sparse
    import tensorflow as tf
    import torch
    from jax.experimental import sparse as jax_sparse

    eye = np.eye(3, dtype=np.float32)
    for x, framework in (
        (scipy.sparse.csr_array(eye), "scipy"),
        (scipy.sparse.csr_matrix(eye), "scipy"),
        (sparse.COO.from_numpy(eye), "sparse"),
        (torch.eye(3).to_sparse(), "torch"),
        (torch.eye(3).to_sparse_csr(), "torch"),
        (jax_sparse.BCOO.fromdense(eye), "jax"),
        (tf.sparse.from_dense(eye), "tensorflow"),
    ):
        assert classify(x) == (framework, "sparse")
    traced = []
    jax.make_jaxpr(lambda x: traced.append(classify(x)) or x)(eye)
    tf.function(lambda x: traced.append(classify(x)) or x).get_concrete_function(tf.constant(eye))
    assert traced == [("jax", "traced"), ("tensorflow", "traced")]
    assert classify(np.ma.array([1, 2])) == ("numpy", "other")
    assert classify(jax.random.key(0)) == ("jax", "opaque")
    assert [classify(x) for x in (3, "x", None, [eye], bytearray(3))] == [None] * 5
