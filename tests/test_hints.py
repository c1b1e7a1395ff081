"""Following a hint works: the call that it describes succeeds, and does not raise the next error.

Each case is a call that fails, words of its hint, and the call as the hint says it.
"""

from __future__ import annotations

import ast
import datetime
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import jax
import jax.numpy as jnp
import mlx.core as mx
import numpy as np
import onnxruntime as ort
import pytest
import scipy.sparse
import tensorflow as tf
import torch
import xarray as xr
from support.followed_hints import follow
from support.refusals import fact_and_hint

import tensorferry as ferry

DOUBLES = np.arange(6.0).reshape(2, 3)
FLOATS = DOUBLES.astype(np.float32)


class Case(NamedTuple):
    fails: Callable[[], Any]
    words: str
    works: Callable[[], Any]


def to(x: Any, framework: str, **options: Any) -> Callable[[], Any]:
    return lambda: ferry.to(x, framework, **options)


def to_sparse(x: Any, framework: str, **options: Any) -> Callable[[], Any]:
    return lambda: ferry.sparse.to(x, framework, **options)


READ_ONLY = np.arange(3.0)
READ_ONLY.setflags(write=False)
OUT = np.empty((2, 3), np.float32)
CSR = scipy.sparse.eye_array(4, dtype=np.float32).tocsr()

CONVERSIONS = {
    "a type that JAX lacks": Case(
        to(DOUBLES, "jax"), 'dtype="default"', to(DOUBLES, "jax", dtype="default")
    ),
    "a type that MLX lacks": Case(
        to(DOUBLES * 1j, "mlx"), 'dtype="complex64"', to(DOUBLES * 1j, "mlx", dtype="complex64")
    ),
    "a number": Case(to(3, "torch"), "numpy.asarray(x)", to(np.asarray(3), "torch")),
    "a module": Case(
        to(torch.nn.Linear(2, 2), "numpy"),
        "x.state_dict()",
        to(torch.nn.Linear(2, 2).state_dict(), "numpy"),
    ),
    "a masked array": Case(
        to(np.ma.masked_array([1, 2], [0, 1]), "torch"),
        "x.filled(value)",
        to(np.ma.masked_array([1, 2], [0, 1]).filled(0), "torch"),
    ),
    "a misspelt framework": Case(to(FLOATS, "torhc"), '"torch"', to(FLOATS, "torch")),
    "a device instead of a framework": Case(
        to(FLOATS, "cpu"), 'pass device="cpu"', to(FLOATS, "torch", device="cpu")
    ),
    "a misspelt type": Case(
        to(FLOATS, "torch", dtype="flaot16"), '"float16"', to(FLOATS, "torch", dtype="float16")
    ),
    "a type of NumPy's codes": Case(
        to(FLOATS, "torch", dtype="u2"), '"uint16"', to(FLOATS, "torch", dtype="uint16")
    ),
    "a short name of a type": Case(
        to(FLOATS, "torch", dtype="bf16"), '"bfloat16"', to(FLOATS, "torch", dtype="bfloat16")
    ),
    "a misspelt device": Case(
        to(FLOATS, "torch", device="cpuu"), '"cpu"', to(FLOATS, "torch", device="cpu")
    ),
    "a second CPU": Case(
        to(FLOATS, "torch", device="cpu:1"), 'device="cpu"', to(FLOATS, "torch", device="cpu")
    ),
    "a copy that was forbidden": Case(
        to(FLOATS[::-1], "torch", copy=False), "leave out copy=False", to(FLOATS[::-1], "torch")
    ),
    "a copy of read-only memory": Case(
        to(READ_ONLY, "torch", copy=False), "leave out copy=False", to(READ_ONLY, "torch")
    ),
    "a cast that was forbidden": Case(
        to(FLOATS, "torch", copy=False, dtype="float16"), "leave out dtype", to(FLOATS, "torch")
    ),
    "a cast to a type that the target has": Case(
        to(np.arange(3), "jax", copy=False, dtype="default"),
        "create the source with the type of the result",
        to(np.arange(3, dtype="int32"), "jax", dtype="default"),
    ),
    "a writable result of JAX": Case(
        to(FLOATS, "jax", writable=True),
        "convert to numpy or torch",
        to(FLOATS, "torch", writable=True),
    ),
    "a read-only result of PyTorch": Case(
        to(FLOATS, "torch", writable=False),
        "convert to numpy or jax",
        to(FLOATS, "numpy", writable=False),
    ),
    "a budget": Case(
        to(FLOATS, "torch", copy=True, budget=23),
        "raise the budget",
        to(FLOATS, "torch", copy=True, budget=24),
    ),
    "a stream on the host": Case(
        to(FLOATS, "torch", stream=0), "leave stream out", to(FLOATS, "torch")
    ),
    "out of another type": Case(
        to(DOUBLES, "numpy", out=OUT), "pass dtype=", to(DOUBLES, "numpy", out=OUT, dtype="float32")
    ),
    "a structured array": Case(
        to(np.zeros(3, "i4,f8"), "torch"),
        'numpy.asarray(x)["name"]',
        to(np.zeros(3, "i4,f8")["f0"], "torch"),
    ),
    "a sparse format that JAX lacks": Case(
        to_sparse(CSR, "jax", format="csc"), "coo, csr", to_sparse(CSR, "jax", format="csr")
    ),
    "blocks without a size": Case(
        to_sparse(CSR, "scipy", format="bsr"),
        "blocksize=(rows, columns)",
        to_sparse(CSR, "scipy", format="bsr", blocksize=(2, 2)),
    ),
    "a sparse tensor for NumPy": Case(
        to_sparse(CSR, "numpy"),
        'ferry.sparse.to_dense(x, "numpy")',
        lambda: ferry.sparse.to_dense(CSR, "numpy"),
    ),
}


@pytest.mark.parametrize("case", CONVERSIONS.values(), ids=CONVERSIONS)
def test_conversions(case):
    check(case)


def check(case: Case) -> None:
    with pytest.raises(ferry.FerryError) as caught:
        case.fails()
    assert case.words in fact_and_hint(caught.value)[1]
    assert case.works() is not None


# Objects whose hint is an expression.


class Table:
    """Has `__array__` alone."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.array


DATES = np.array(["2020-01-01", "2020-01-02"], "M8[D]")
FILE = h5py.File("hints", "w", driver="core", backing_store=False)
FILE["numbers"], FILE["empty"], FILE["text"] = [1.0, 2.0], h5py.Empty("f4"), ["b", "a"]
FILE["fields"] = np.ones(2, [("name", "f4")])
FILE["dates"] = DATES.astype(h5py.opaque_dtype(DATES.dtype))
FILE["bytes"] = np.void(b"ab")
REFERENCES = FILE.create_dataset("references", 1, h5py.ref_dtype)
REFERENCES[0] = FILE["numbers"].ref
REGIONS = np.array([FILE["numbers"].regionref[1:]], h5py.regionref_dtype)
ROWS = FILE.create_dataset("rows", 2, h5py.vlen_dtype(np.int32))
ROWS[0], ROWS[1] = [1, 2], [3]
FILE.create_group("group")["inside"] = [1.0, 2.0]
TICKS = DATES.view("int64").tolist()
XARRAY = xr.DataArray(DATES.astype("M8[ns]"))

FOLLOWED = {
    "dates": (DATES, TICKS),
    "durations": (DATES - DATES[0], [0, 1]),
    "dates of xarray": (XARRAY, XARRAY.values.view("int64").tolist()),
    "dates of h5py": (FILE["dates"], TICKS),
    "fields": (np.ones(2, [("name", "f4")]), [1, 1]),
    "fields of h5py": (FILE["fields"], [1, 1]),
    "fields of xarray": (xr.DataArray(np.ones(2, [("name", "f4")])), [1, 1]),
    "a value of bytes": (np.void(b"ab"), [97, 98]),
    "a value of bytes in h5py": (FILE["bytes"], [97, 98]),
    "every second value of bytes": (np.array([b"ab", b"cd", b"ef"], "V2")[::2], [97, 98, 101, 102]),
    "bytes without a type": (np.ones((1, 2), "i1").view("V2"), [[1, 1]]),
    "bytes behind __array__": (Table(np.ones((1, 2), "i1").view("V2")), [[1, 1]]),
    "gradients of integers": (np.zeros(2, jax.dtypes.float0), [0, 0]),
    "elements without bytes": (np.zeros(2, "V0"), [0, 0]),
    "text": (np.array(["b", "a", "b"]), [1, 0, 1]),
    "bytes": (np.array([b"b", b"a", b"b"]), [1, 0, 1]),
    "variable text": (np.array(["b", "a"], np.dtypes.StringDType()), [1, 0]),
    "rows": (np.array([np.arange(2), np.arange(3)], object), [0, 1, 0, 1, 2]),
    "rows of rows": (np.array([[np.arange(2)], [np.arange(3)]], object), [0, 1, 0, 1, 2]),
    "references of h5py": (REFERENCES, [[1, 2]]),
    "references": (REFERENCES[:], [[1, 2]]),
    "a reference": (REFERENCES[0], [1, 2]),
    "a reference to a region": (REGIONS[0], [2]),
    "references to regions": (REGIONS, [[2]]),
    "rows of h5py": (ROWS, [1, 2, 3]),
    "numbers as objects": (np.array([1, 2.5], object), [1, 2.5]),
    "a dataset without values": (FILE["empty"], []),
    "Empty": (h5py.Empty("f4"), []),
    "an xarray Dataset": (xr.Dataset({"a": ("x", [1.0])}), {"a": [1.0]}),
    "a group": (FILE["group"], {"inside": [1.0, 2.0]}),
    "a masked array": (np.ma.masked_array([1, 2], [0, 1]), [1, 0]),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_the_expression_of_a_hint(name):
    x, values = FOLLOWED[name]
    for call in (ferry.to, ferry.plan):
        with pytest.raises(ferry.FerryError) as caught:
            call(x, "torch")
    found = ferry.to(follow(caught.value, x=x, value=0, file=FILE), "torch")
    assert jax.tree.map(lambda tensor: tensor.tolist(), found) == values


def objects(*values: Any) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array


OBJECTS = {
    "text": (objects("b", "a"), [1, 0]),
    "text of h5py": (FILE["text"], [1, 0]),
    "text of h5py as str": (FILE["text"].asstr(), [1, 0]),
    "text and nothing": (objects("b", None, "a", "b"), [1, 2, 0, 1]),
    "bytes": (objects(b"a", b"\xff"), [1, 0]),
    "numbers and text": (objects(2, "a", 2), [1, 0, 1]),
    "dicts": (objects({"a": 1}, {"b": 2}, {"a": 1}), [0, 1, 0]),
    "dates": (objects(datetime.date(2021, 1, 1), datetime.date(2020, 1, 1)), [1, 0]),
    "text of xarray": (xr.DataArray(objects("a", None)), [0, 1]),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_the_hint_for_objects_numbers_them(name):
    x, values = OBJECTS[name]
    for call in (ferry.to, ferry.plan):
        with pytest.raises(ferry.UnsupportedDTypeError) as caught:
            call(x, "torch")
    assert ferry.to(follow(caught.value, way=1, x=x), "torch").tolist() == values


OUTS = {
    "bytearray": bytearray(FLOATS.nbytes),
    "memoryview": memoryview(np.zeros_like(FLOATS)),
    "OrtValue": ort.OrtValue.ortvalue_from_numpy(np.zeros_like(FLOATS)),
    "DataArray": xr.DataArray(np.zeros_like(FLOATS)),
}


@pytest.mark.parametrize("name", OUTS)
def test_out_over_the_memory_of_another_object(name):
    out, x = OUTS[name], torch.from_numpy(FLOATS)
    with pytest.raises(ferry.InvalidArgumentError) as caught:
        ferry.to(x, "torch", out=out)
    found = follow(caught.value, x=x, out=out, dtype="float32")
    assert '"numpy" as the target' in caught.value.hint
    ferry.to(x, "numpy", out=found)
    np.testing.assert_array_equal(np.frombuffer(ferry.to(out, "numpy"), "f4"), FLOATS.ravel())


def test_out_that_is_a_dataset():
    out = FILE.create_dataset("out", (2, 3), "f4")
    for framework in ("numpy", "torch"):
        with pytest.raises(ferry.InvalidArgumentError) as caught:
            ferry.to(torch.from_numpy(FLOATS), framework, out=out)
        _, hint = fact_and_hint(caught.value)
        assert hint.startswith("write ")
        exec(
            hint.removeprefix("write "), {"ferry": ferry, "x": torch.from_numpy(FLOATS), "out": out}
        )
        np.testing.assert_array_equal(out, FLOATS)


# Functions whose results the caller's framework cannot hold.


def doubles(x: Any) -> Any:
    return np.arange(3.0)


def complex_doubles(x: Any) -> Any:
    return np.arange(3.0) * 1j


def returns_of(hint: str) -> Any:
    """The argument that a hint names, such as returns={"framework": "same"}."""
    found = re.search(r"returns=(\{.*?\})", hint)
    assert found, hint
    return ast.literal_eval(found[1])


CALLERS = {"jax": (jnp.ones(3), doubles), "mlx": (mx.ones(3), complex_doubles)}


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("options", [{}, {"dtype": "default"}, {"dtype": "float64"}])
def test_a_result_that_cannot_return(caller, options):
    x, function = CALLERS[caller]
    with pytest.raises(ferry.UnsupportedDTypeError) as caught:
        ferry.via("numpy", **options)(function)(x)
    fact, hint = fact_and_hint(caught.value)
    assert f"the result of {function.__name__}" in fact
    # An option of the arguments would not help.
    assert "dtype=" not in hint
    result = ferry.via("numpy", **options, returns=returns_of(hint))(function)(x)
    assert type(result) is type(x)
    np.testing.assert_array_equal(ferry.to(result, "numpy"), function(x))


def test_a_result_that_cannot_go_to_a_named_framework():
    with pytest.raises(ferry.UnsupportedDTypeError) as caught:
        ferry.via("torch", returns="jax")(lambda x: x.double())(FLOATS)
    returns = returns_of(fact_and_hint(caught.value)[1])
    assert returns["framework"] == "jax"
    result = ferry.via("torch", returns=returns)(lambda x: x.double())(FLOATS)
    assert result.dtype == jnp.float32


def test_integers_through_a_narrower_framework_return_home():
    """What a default width makes of the arguments is a type that every caller has."""
    for x in (torch.arange(3), np.arange(3), tf.range(3, dtype=tf.int64)):
        with pytest.raises(ferry.UnsupportedDTypeError) as caught:
            ferry.via("jax")(lambda x: x + 1)(x)
        assert 'dtype="default"' in fact_and_hint(caught.value)[1]
        result = ferry.via("jax", dtype="default")(lambda x: x + 1)(x)
        assert type(result) is type(x)
        assert ferry.to(result, "numpy").tolist() == [1, 2, 3]


def test_an_agnostic_result_that_cannot_return():
    @ferry.agnostic
    def mean(xp, x):
        return np.asarray(ferry.to(x, "numpy"), dtype=np.float64)

    with pytest.raises(ferry.UnsupportedDTypeError) as caught:
        mean(jnp.ones(3))
    fact, hint = fact_and_hint(caught.value)
    assert "the result of " in fact
    assert "return float32 from the function" in hint


def test_a_differentiated_result_that_cannot_return():
    x = jnp.ones(3)
    with pytest.raises(ferry.UnsupportedDTypeError) as caught:
        ferry.via("torch", grad=True)(lambda x: x.double())(x)
    assert "return float32 from the function" in fact_and_hint(caught.value)[1]
    assert ferry.via("torch", grad=True)(lambda x: x.double().float())(x).dtype == jnp.float32


# Files.


def files(folder: Path) -> dict[str, Case]:
    path = folder / "x.npz"
    ferry.save(path, {"weight": FLOATS, "bias": FLOATS})
    (folder / "x.npy").write_bytes(path.read_bytes())
    (folder / "x").write_bytes(path.read_bytes())
    (folder / "x.raw").write_bytes(bytes(24))
    np.save(folder / "float8.npy", np.zeros(3, "V1"))
    tree = {"epoch": 3, "w": FLOATS}
    ferry.save(folder / "tree.safetensors", tree)
    return {
        "another format": Case(
            lambda: ferry.load(folder / "x.npy"),
            'format="npz"',
            lambda: ferry.load(folder / "x.npy", format="npz"),
        ),
        "raw bytes": Case(
            lambda: ferry.load(folder / "x.raw"),
            "ferry.load_raw(path, framework, dtype=..., shape=...)",
            lambda: ferry.load_raw(folder / "x.raw", "torch", dtype="float32", shape=(2, 3)),
        ),
        "a type without a name": Case(
            lambda: ferry.load(folder / "float8.npy"),
            'dtype="float8_e4m3fn"',
            lambda: ferry.load(folder / "float8.npy", dtype="float8_e4m3fn"),
        ),
        "a misspelt name": Case(
            lambda: ferry.load(path, names="wieght"),
            "'weight'",
            lambda: ferry.load(path, names="weight"),
        ),
        "a number by its name": Case(
            lambda: ferry.load(folder / "tree.safetensors", names="epoch"),
            "pass nested=True instead of names",
            lambda: ferry.load(folder / "tree.safetensors", nested=True)["epoch"],
        ),
        "the path after the tensors": Case(
            lambda: ferry.save(tree, folder / "y.safetensors"),  # type: ignore[arg-type]
            "ferry.save(path, tensors)",
            lambda: ferry.save(folder / "y.safetensors", tree) or path,
        ),
        "a folder that does not exist": Case(
            lambda: ferry.save(folder / "new" / "y.npy", FLOATS),
            f"create the folder {folder / 'new'} first",
            lambda: ((folder / "new").mkdir(), ferry.save(folder / "new" / "y.npy", FLOATS)),
        ),
        "two tensors": Case(
            lambda: ferry.save(folder / "y.npy", [FLOATS, FLOATS]),
            "save them as .npz or safetensors",
            lambda: ferry.save(folder / "y.npz", [FLOATS, FLOATS]) or path,
        ),
        "a number": Case(
            lambda: ferry.save(folder / "y.npz", tree),
            "save it as .safetensors",
            lambda: ferry.save(folder / "y.safetensors", tree) or path,
        ),
        "a number as a tensor": Case(
            lambda: ferry.save(folder / "y.npz", tree),
            "numpy.asarray(x)",
            lambda: ferry.save(folder / "y.npz", tree | {"epoch": np.asarray(3)}) or path,
        ),
        "an unknown extension": Case(
            lambda: ferry.save(folder / "y", FLOATS),
            'format="npy"',
            lambda: ferry.save(folder / "y", FLOATS, format="npy") or path,
        ),
        "metadata that is not text": Case(
            lambda: ferry.save(folder / "y.safetensors", FLOATS, metadata={"a": [1]}),  # type: ignore[dict-item]
            "pass text, such as JSON",
            lambda: ferry.save(folder / "y.safetensors", FLOATS, metadata={"a": "[1]"}) or path,
        ),
    }


def test_files(tmp_path):
    for case in files(tmp_path).values():
        check(case)
