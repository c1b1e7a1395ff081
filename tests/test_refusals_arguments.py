"""Things that are no tensors, and arguments that mean nothing."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import math
import pathlib
import types
import uuid

import numpy as np
import pytest
import torch
from support.refusals import TARGETS, refused

import tensorferry as ferry

NO_TENSORS = [
    0,
    3,
    True,
    2.5,
    1j,
    "text",
    "",
    None,
    ...,
    NotImplemented,
    object(),
    int,
    object,
    np.ndarray,
    torch.Tensor,
    type("Speaker", (), {"__dlpack__": None, "__array__": None}),
    math,
    np,
    len,
    lambda: None,
    {1, 2},
    frozenset((1,)),
    range(3),
    slice(3),
    iter([1]),
    (x for x in (1,)),
    fractions.Fraction(1, 2),
    decimal.Decimal(1),
    datetime.date(2026, 1, 1),
    pathlib.Path("x"),
    ValueError("x"),
    torch.float32,
    np.dtype("float32"),
    torch.device("cpu"),
    torch.nn.Linear(2, 2),
]


def kind(thing):
    """A name for a case that is the same in every process."""
    return thing if isinstance(thing, str) else type(thing).__name__


@pytest.mark.filterwarnings("ignore:an object of type torch.nn.modules:UserWarning")
@pytest.mark.parametrize("thing", NO_TENSORS, ids=kind)
def test_no_tensor_at_all(thing):
    for target in TARGETS:
        refused(ferry.NotATensorError, TypeError, lambda target=target: ferry.to(thing, target))
    refused(ferry.NotATensorError, TypeError, lambda: ferry.plan(thing, "torch"))
    tree = [np.ones(2), {"k": thing}]
    assert ferry.to(tree, "torch")[1]["k"] is thing, "in a tree it is a leaf"


def test_the_fact_names_the_type_and_the_hint_fits():
    error = refused(ferry.NotATensorError, TypeError, lambda: ferry.to(3, "torch"))
    assert "int" in str(error).split("\n")[0]
    assert "asarray" in error.hint
    colour = enum.Enum("Colour", "RED").RED
    error = refused(ferry.NotATensorError, TypeError, lambda: ferry.to(colour, "jax"))
    assert "feed" not in error.hint
    error = refused(ferry.NotATensorError, TypeError, lambda: ferry.to(uuid.UUID(int=0), "jax"))
    assert "uuid.UUID" in str(error)


SOURCE = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("name", ["torhc", "", "cuda", "numpy ", "tensorferry", "os", "Torch"])
def test_unknown_frameworks(name):
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.to(SOURCE, name))
    module = types.ModuleType(name)
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.to(SOURCE, module))


@pytest.mark.parametrize(
    "thing", [None, 3, object(), b"torch", ["torch"], ("torch",), {}], ids=kind
)
def test_frameworks_that_are_no_names(thing):
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.to(SOURCE, thing))


UNKNOWN_DTYPES = [
    *("", "float", "f4", "float33", "Float32", "object", "qint8", "torch.float31"),
    *(object, str, list, np.longdouble, torch.device, torch.complex32, torch.qint8),
    *(np.dtype(code) for code in ("O", "datetime64[s]", "S3", ">f4", [("a", "i4")])),
    *(3, 2.5, b"float32", (), object(), SOURCE),
]


@pytest.mark.parametrize("dtype", UNKNOWN_DTYPES, ids=kind)
def test_unknown_dtypes(dtype):
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.to(SOURCE, "torch", dtype=dtype))


@pytest.mark.parametrize("dtype", ["float", "floaty", "int", "uint", "float6"])
def test_a_name_that_several_types_are_close_to_is_not_guessed(dtype):
    error = refused(
        ferry.InvalidArgumentError, ValueError, lambda: ferry.to(SOURCE, "torch", dtype=dtype)
    )
    assert "did you mean" not in error.hint
    assert "float32" in error.hint


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *(("flaot32", "float32"), ("float33", "float32"), ("bf16", "bfloat16"), ("u2", "uint16")),
        *(("floot64", "float64"), ("uint31", "uint32"), ("half", "float16"), ("bool_", "bool")),
    ],
)
def test_one_closest_type_is_suggested(written, meant):
    error = refused(
        ferry.InvalidArgumentError, ValueError, lambda: ferry.to(SOURCE, "torch", dtype=written)
    )
    assert error.hint == f'did you mean "{meant}"?'


@pytest.mark.parametrize(
    ("call", "written", "meant"),
    [
        (lambda **options: ferry.to(SOURCE, "torch", **options), "writeable", "writable"),
        (lambda **options: ferry.to([SOURCE], "torch", **options), "divice", "device"),
        (lambda **options: ferry.to(SOURCE, "torch", **options), "progres", "progress"),
        (lambda **options: ferry.plan(SOURCE, "torch", **options), "dtyp", "dtype"),
        (lambda **options: ferry.plan(SOURCE, "torch", **options), "progres", None),
        (lambda **options: ferry.publish(SOURCE, **options), "copi", "copy"),
        (lambda **options: ferry.publish(SOURCE, **options), "steam", None),
        (lambda **options: ferry.to(SOURCE, "torch", **options), "nonsense", None),
    ],
)
def test_a_misspelt_keyword_is_a_plain_type_error(call, written, meant):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{written}'") as caught:
        call(**{written: None})
    assert not isinstance(caught.value, ferry.FerryError)
    assert ("did you mean" in str(caught.value)) == (meant is not None)
    assert meant is None or f"did you mean '{meant}'?" in str(caught.value)


def test_a_misspelt_keyword_of_load(tmp_path):
    ferry.save(tmp_path / "x.npy", SOURCE)
    with pytest.raises(TypeError, match=r"'writeable'\nhint: did you mean 'writable'\?"):
        ferry.load(tmp_path / "x.npy", writeable=True)


@pytest.mark.parametrize(
    "device", ["", "cpuu", "cpu:", "cpu:x", "cpu:-1", 0, object(), b"cpu", ()], ids=kind
)
def test_unknown_devices(device):
    refused(
        ferry.InvalidArgumentError, ValueError, lambda: ferry.to(SOURCE, "torch", device=device)
    )


@pytest.mark.parametrize(
    "device", ["cuda", "cuda:1", "gpu", "GPU:0", "/GPU:0", "rocm", torch.device("cuda"), "metal"]
)
def test_devices_out_of_reach(device):
    refused(ferry.UnsupportedError, ValueError, lambda: ferry.to(SOURCE, "torch", device=device))


@pytest.mark.parametrize(
    "wrong",
    [
        {"copy": "yes"},
        {"copy": 1},
        {"copy": SOURCE},
        {"writable": "no"},
        {"writable": 0},
        {"budget": "1 MB"},
        {"budget": -1},
        {"budget": 2**64},
        {"budget": 1.5},
        {"stream": 1},
        {"stream": object()},
        {"out": 3},
        {"out": "x"},
    ],
    ids=lambda wrong: " ".join(f"{name}={kind(value)}" for name, value in wrong.items()),
)
def test_arguments_of_a_wrong_kind(wrong):
    error = refused(
        ferry.InvalidArgumentError, Exception, lambda: ferry.to(SOURCE, "torch", **wrong)
    )
    assert isinstance(error, TypeError | ValueError)
    if "out" not in wrong:
        refused(ferry.InvalidArgumentError, Exception, lambda: ferry.plan(SOURCE, "torch", **wrong))


def test_budgets():
    call = lambda budget, **wish: ferry.to(SOURCE, "torch", copy=True, budget=budget, **wish)  # noqa: E731
    for budget, wish in ((0, {}), (23, {}), (24, {"dtype": "float64"})):
        refused(ferry.OutOfMemoryError, MemoryError, lambda b=budget, w=wish: call(b, **w))
    assert call(24).tolist() == SOURCE.tolist()
    assert ferry.to(SOURCE, "torch", budget=0).data_ptr() == SOURCE.ctypes.data, "a share is free"


@pytest.mark.parametrize("target", ["jax", "tensorflow", "mlx"])
def test_immutable_targets_cannot_promise_to_be_written(target):
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.to(SOURCE, target, writable=True))
    assert ferry.to(SOURCE, target, writable=False) is not None


@pytest.mark.parametrize("target", ["torch", "paddle"])
def test_writable_targets_cannot_promise_to_be_read_only(target):
    refused(
        ferry.InvalidArgumentError, ValueError, lambda: ferry.to(SOURCE, target, writable=False)
    )


def read_only(array):
    array.flags.writeable = False
    return array


OUTS = {
    "wrong shape": ("numpy", np.zeros((3, 2), np.float32), {}),
    "wrong rank": ("numpy", np.zeros(6, np.float32), {}),
    "another dtype": ("numpy", np.zeros((2, 3), np.float64), {}),
    "dtype against out": ("numpy", np.zeros((2, 3), np.float32), {"dtype": "float64"}),
    "another framework": ("torch", np.zeros((2, 3), np.float32), {}),
    "read-only": ("numpy", read_only(np.zeros((2, 3), np.float32)), {}),
    "overlapping itself": (
        "numpy",
        np.lib.stride_tricks.as_strided(SOURCE.copy(), (2, 3), (4, 4)),
        {},
    ),
    "broadcast": ("torch", torch.zeros(3).expand(2, 3), {}),
    "bytes": ("numpy", bytes(24), {}),
    "masked": ("numpy", np.ma.zeros((2, 3), np.float32), {}),
    "a tree": ("numpy", [np.zeros((2, 3), np.float32)], {}),
    "the other byte order": ("numpy", np.zeros((2, 3), ">f4"), {}),
    "copy=False": ("numpy", np.zeros((2, 3), np.float32), {"copy": False}),
    "not a leaf": ("torch", torch.zeros(2, 3, requires_grad=True) * 1, {}),
    "negative bit": ("torch", torch._neg_view(torch.zeros(2, 3)), {}),
}


@pytest.mark.parametrize("name", OUTS)
def test_outs_that_cannot_be_filled(name):
    target, out, options = OUTS[name]
    before = repr(out)
    refused(
        ferry.InvalidArgumentError, ValueError, lambda: ferry.to(SOURCE, target, out=out, **options)
    )
    assert repr(out) == before


def test_immutable_tensors_are_no_outs():
    for target in ("jax", "tensorflow", "mlx"):
        out = ferry.to(np.zeros((2, 3), np.float32), target, copy=True)
        refused(
            ferry.InvalidArgumentError,
            ValueError,
            lambda target=target, out=out: ferry.to(SOURCE, target, out=out),
        )
        assert ferry.to(out, "numpy").tolist() == [[0, 0, 0], [0, 0, 0]]


def test_a_share_of_an_immutable_tensor_is_no_out():
    """NumPy holds it as read-only; torch cannot, and writes where its users asked it to."""
    share = ferry.to(ferry.to(SOURCE, "jax", copy=True), "numpy")
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.to(SOURCE, "numpy", out=share))
