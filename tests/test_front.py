"""The front door: names that `to` takes, plans, traces, errors, `out`, and what an import costs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import importlib.resources
import inspect
import pathlib
import re
import threading
import time

import jax
import jax.numpy as jnp
import ml_dtypes
import mlx.core as mx
import numpy as np
import paddle
import pytest
import tensorflow as tf
import torch
from support import subprocesses
from support.refusals import TARGETS, check_words, refused

import tensorferry as ferry

ROOT = pathlib.Path(__file__).parent.parent


def source() -> np.ndarray:
    return np.arange(6, dtype=np.float32).reshape(2, 3)


# The import.


def test_the_import_is_quick_and_imports_no_framework():
    """It is counted what is done, which takes 5 ms: 35 modules, 10,400 calls of functions."""
    modules, calls = map(int, subprocesses.run_program("front/import_cost.py").split())
    assert modules < 60
    assert calls < 20_000


def test_asking_for_a_name_imports_only_that():
    subprocesses.run_program("front/imports_on_demand.py", "named_framework")


def test_a_framework_that_is_not_installed():
    subprocesses.run_program("front/frameworks_not_installed.py")


def test_types_are_shipped():
    folder = importlib.resources.files("tensorferry")
    assert folder.joinpath("py.typed").is_file()
    stub = folder.joinpath("_native.pyi").read_text()
    for name in ("to", "plan", "trace", "register_framework", "register_container"):
        assert f"def {name}(" in stub


def test_public_names():
    assert sorted(ferry.__all__) == sorted(set(ferry.__all__))
    assert all(getattr(ferry, name) is not None for name in ferry.__all__)
    assert re.fullmatch(r"\d+\.\d+\.\d+", ferry.__version__)
    assert all(getattr(ferry, name).__doc__ for name in ferry.__all__ if name != "__version__")


@pytest.mark.parametrize("verb", [ferry.to, ferry.plan], ids=["to", "plan"])
def test_arguments_in_every_form(verb):
    x = np.arange(3.0)
    results = [
        verb(x, "torch"),
        verb(x, framework="torch"),
        verb(x=x, framework="torch"),
        verb(framework="torch", x=x),
        verb(x, "torch", copy=None, dtype=None, device=None, writable=None, stream=None),
        verb(*[x], framework=torch, budget=None),
    ]
    assert len({type(result) for result in results}) == 1
    for wrong, says in (
        (lambda: verb(), "x"),
        (lambda: verb(x), "framework"),
        (lambda: verb(framework="torch"), "x"),
        (lambda: verb(x, "torch", "cpu"), "positional"),
        (lambda: verb(x, "torch", x=x), "x"),
        (lambda: verb(x, "torch", framework="torch"), "framework"),
        (lambda: verb(x, "torch", colour=1), "colour"),
    ):
        with pytest.raises(TypeError, match=says):
            wrong()
    signature = inspect.signature(verb)
    assert list(signature.parameters)[:2] == ["x", "framework"]
    assert all(not p.default for p in list(signature.parameters.values())[2:])


# Frameworks, by any name.


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("numpy", np.ndarray),
        ("np", np.ndarray),
        (np, np.ndarray),
        ("torch", torch.Tensor),
        ("pytorch", torch.Tensor),
        (torch, torch.Tensor),
        ("jax", jax.Array),
        ("jnp", jax.Array),
        ("jax.numpy", jax.Array),
        (jax, jax.Array),
        (jnp, jax.Array),
        ("tensorflow", tf.Tensor),
        ("tf", tf.Tensor),
        (tf, tf.Tensor),
        ("paddle", paddle.Tensor),
        (paddle, paddle.Tensor),
        ("mlx", mx.array),
        ("mlx.core", mx.array),
        (mx, mx.array),
    ],
    ids=lambda x: x if isinstance(x, str) else getattr(x, "__name__", ""),
)
def test_frameworks_by_name_alias_and_module(name, kind):
    for _ in range(2):
        assert isinstance(ferry.to(source(), name), kind)
    if isinstance(name, str):
        fresh = "".join(list(name))
        assert isinstance(ferry.to(source(), fresh), kind), "another string object of the same text"


def test_frameworks_says_what_is_here():
    found = {info.name: info for info in ferry.frameworks()}
    assert set(TARGETS) <= set(found)
    assert all(found[name].installed and found[name].loaded for name in TARGETS)
    assert found["numpy"].version == np.__version__
    assert found["jax"].version == jax.__version__
    assert found["torch"].version.split("+")[0] == torch.__version__.split("+")[0]
    assert found["tensorflow"].version == tf.__version__
    assert found["torch"].title == "PyTorch"


@pytest.mark.parametrize("framework", TARGETS)
def test_the_same_framework_gives_the_source_itself(framework):
    tensor = ferry.to(source(), framework, copy=True)
    assert ferry.to(tensor, framework) is tensor
    assert ferry.plan(tensor, framework).action == "itself"
    assert ferry.to(tensor, framework, device="cpu", dtype="float32") is tensor
    copied = ferry.to(tensor, framework, copy=True)
    assert copied is not tensor
    assert type(copied) is type(tensor)
    assert ferry.to(copied, "numpy").tolist() == source().tolist()


# Element types and devices, by any name.


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("float16", "float16"),
        (np.float16, "float16"),
        (np.dtype("float16"), "float16"),
        (np.dtype("<f2"), "float16"),
        (torch.float16, "float16"),
        (torch.half, "float16"),
        (tf.float16, "float16"),
        (jnp.float16, "float16"),
        (mx.float16, "float16"),
        (paddle.float16, "float16"),
        (torch.bfloat16, "bfloat16"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (np.dtype(ml_dtypes.bfloat16), "bfloat16"),
        (jnp.bfloat16, "bfloat16"),
        (tf.bfloat16, "bfloat16"),
        (mx.bfloat16, "bfloat16"),
        (paddle.bfloat16, "bfloat16"),
        (torch.float8_e5m2, "float8_e5m2"),
        (ml_dtypes.float8_e4m3fn, "float8_e4m3fn"),
        (float, "float64"),
        (int, "int64"),
        (bool, "bool"),
        (complex, "complex128"),
        (np.bool_, "bool"),
        (torch.bool, "bool"),
        (mx.bool_, "bool"),
        (jnp.bool_, "bool"),
        (paddle.bool, "bool"),
        (np.intp, "int64"),
        (np.longlong, "int64"),
        (np.double, "float64"),
        (torch.long, "int64"),
    ],
    ids=str,
)
def test_dtypes_by_any_name(given, name):
    result = ferry.to(source(), "numpy", dtype=given)
    assert result.dtype.name == name
    assert result.tolist() == source().astype(result.dtype).tolist()


@pytest.mark.parametrize("target", TARGETS)
def test_the_default_dtype(target):
    wide = np.arange(3, dtype=np.float64)
    want = "float64" if target == "numpy" else "float32"
    assert ferry.plan(wide, target, dtype="default").dtype == want
    assert ferry.plan(source(), target, dtype="default").dtype == "float32"
    whole = ferry.plan(np.arange(3), target, dtype="default").dtype
    assert whole == ("int32" if target == "jax" else "int64")


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        "cpu:0",
        "CPU",
        "/CPU:0",
        "/device:CPU:0",
        "/job:localhost/replica:0/task:0/device:CPU:0",
        "default",
        None,
        torch.device("cpu"),
        torch.device("cpu:0"),
        jax.devices("cpu")[0],
        tf.constant(1.0).device,
        tf.config.list_logical_devices("CPU")[0].name,
        mx.Device(mx.cpu),
        paddle.CPUPlace(),
    ],
    ids=str,
)
def test_devices_by_any_name(device):
    x = source()
    assert ferry.to(x, "torch", device=device).data_ptr() == x.ctypes.data
    assert isinstance(ferry.to(x, "jax", device=device), jax.Array)


# Plans.


def test_the_plan_of_a_share():
    plan = ferry.plan(source(), "torch")
    assert (plan.source, plan.target, plan.action) == ("numpy", "torch", "share")
    assert (plan.shares, plan.bytes_moved, plan.writable) == (True, 0, True)
    assert (plan.source_dtype, plan.dtype, plan.shape) == ("float32", "float32", (2, 3))
    assert (plan.steps, plan.advice) == ([], None)
    assert str(plan).startswith("numpy -> torch: shared, no byte moves\n")
    assert "same memory" in plan.notes[0]
    assert repr(plan) == "<Plan numpy -> torch: shared, no byte moves>"


def test_the_plan_of_a_copy():
    x = source().T[::-1]
    plan = ferry.plan(x, "tensorflow", dtype="float16")
    assert (plan.action, plan.shares, plan.bytes_moved) == ("copy", False, 12)
    assert [kind for kind, _ in plan.steps][:2] == ["cast", "pack"]
    lines = str(plan).splitlines()
    assert lines[0] == "numpy -> tensorflow: copied, 12 bytes"
    assert "float32 of shape (3, 2), becomes float16" in lines[1]
    assert any("dense row-major" in line for line in lines)
    assert lines[-1].strip().startswith("to avoid the copy: ")


def test_plans_of_aliases_and_gradients():
    assert "do not write the source" in str(ferry.plan(ours(), "jax"))
    assert "immutable source" in str(ferry.plan(jnp.ones(3), "torch"))
    parameter = torch.nn.Parameter(torch.ones(3))
    assert "detached" in str(ferry.plan(parameter, "numpy"))
    assert "snapshot" in str(ferry.plan(tf.Variable([1.0, 2.0]), "numpy"))


def ours() -> np.ndarray:
    """An array in memory of ours, which is aligned by construction."""
    return ferry.to(tf.ones((4, 4)), "numpy", copy=True)


def test_the_plan_of_a_scalar_and_of_a_variable():
    """A scalar's array is nobody else's; a variable gives its value and not itself."""
    plan = ferry.plan(np.float32(3), "torch")
    assert not any("memory" in note or "write" in note for note in plan.notes)
    variable = tf.Variable([1.0, 2.0])
    plan = ferry.plan(variable, "tensorflow")
    assert plan.action == "share"
    assert "itself" not in str(plan)
    assert ferry.to(variable, "tensorflow") is not variable


def test_a_plan_moves_nothing():
    x = np.ones((1 << 20,), np.float64)
    with ferry.trace() as trips:
        plan = ferry.plan(x, "torch", dtype="float32", copy=True)
    assert plan.bytes_moved == 4 << 20
    assert "4.0 MiB" in str(plan)
    assert trips == []


# Traces.


def test_a_trace_holds_every_trip():
    x = ours()
    begin = time.perf_counter()
    with ferry.trace() as trips:
        ferry.to(x, "torch")
        ferry.to(x, "torch", copy=True)
        ferry.to([x, x[::-1]], "jax")
        ferry.to(x, "numpy")
    whole = time.perf_counter() - begin
    ferry.to(x, "torch")
    assert [trip.plan.action for trip in trips] == ["share", "copy", "share", "copy", "itself"]
    assert [trip.shares for trip in trips] == [trip.plan.shares for trip in trips]
    assert trips[1].bytes_moved == 64
    assert all(trip.seconds > 0 for trip in trips)
    assert sum(trip.seconds for trip in trips) <= whole
    assert "numpy -> torch: copied, 64 bytes" in str(trips[1])
    assert repr(trips[0]).startswith("<Trip numpy -> torch: shared")


def test_traces_nest():
    x = source()
    with ferry.trace() as outer:
        ferry.to(x, "torch")
        with ferry.trace() as inner:
            ferry.to(x, "torch")
        ferry.to(x, "torch")
    assert (len(outer), len(inner)) == (3, 1)
    assert outer[1] is inner[0]


def test_a_trace_ends_with_an_exception():
    with contextlib.suppress(KeyError), ferry.trace() as trips:
        ferry.to(source(), "torch")
        raise KeyError
    ferry.to(source(), "torch")
    assert len(trips) == 1
    with ferry.trace() as trips:
        refused(ferry.NotATensorError, TypeError, lambda: ferry.to(3, "torch"))
        ferry.to(source(), "torch")
    assert len(trips) == 1, "what failed is no trip"


def test_a_trace_belongs_to_its_thread_and_task():
    def work():
        ferry.to(source(), "torch")

    with ferry.trace() as trips:
        for run in (work, lambda: contextvars.copy_context().run(work)):
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        assert len(trips) == 0
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(work,))
        thread.start()
        thread.join()
    assert len(trips) == 1, "a thread that runs in a copy of the context is in it"

    async def one():
        with ferry.trace() as trips:
            await asyncio.sleep(0)
            work()
            await asyncio.sleep(0)
        return len(trips)

    async def all_of_them():
        return await asyncio.gather(*(one() for _ in range(5)))

    assert asyncio.run(all_of_them()) == [1] * 5


def test_a_trace_used_twice():
    trace = ferry.trace()
    with trace as first:
        ferry.to(source(), "torch")
    with trace as second:
        ferry.to(source(), "torch")
    assert (len(first), len(second)) == (1, 1)


# Errors.

ERRORS = {
    "NotATensorError": (TypeError,),
    "UnsupportedDTypeError": (TypeError,),
    "UnsupportedError": (ValueError,),
    "CopyRequiredError": (BufferError, ValueError),
    "OutOfMemoryError": (MemoryError,),
    "FrameworkNotFoundError": (ImportError,),
    "InvalidTensorError": (BufferError,),
    "BorrowError": (BufferError,),
    "InvalidArgumentError": (ValueError,),
    "FrameworkError": (RuntimeError,),
    "FileFormatError": (ValueError,),
    "TicketError": (ConnectionError,),
    "CancelledError": (concurrent.futures.CancelledError,),
    "DeadlineError": (TimeoutError,),
}


def test_every_error_is_ours_and_a_builtin():
    assert ferry.FerryError.__bases__ == (Exception,)
    assert ferry.FerryError("x").hint is None
    for name, builtins in ERRORS.items():
        kind = getattr(ferry, name)
        assert kind.__bases__ == (ferry.FerryError, *builtins)
        assert (kind.__module__, kind.__name__) == ("tensorferry", name)
    family = {name for name in ferry.__all__ if name.endswith("Error")}
    assert family == {"FerryError", *ERRORS}


def test_a_copy_that_is_not_allowed_says_why():
    cases = {
        "cast": (source(), "torch", {"dtype": "float16"}),
        "negative": (source()[::-1], "torch", {}),
        "dense": (ours().T, "tensorflow", {}),
        "gaps": (ours()[:, ::2], "jax", {}),
        "read-only": (np.frombuffer(bytes(24), np.float32), "torch", {}),
        "multiple of 64": (ours().ravel()[1:], "jax", {}),
        "byte order": (np.ones(3, ">f4"), "torch", {}),
        "scalars": (tf.constant(1.0), "numpy", {}),
        "conjugation": (torch.ones(3, dtype=torch.complex64).conj(), "numpy", {}),
        "memory that it allocated": (source(), "mlx", {}),
        "writable result": (jnp.ones(3), "torch", {"writable": True}),
    }
    for word, (x, target, options) in cases.items():
        error = refused(
            ferry.CopyRequiredError,
            ValueError,
            lambda x=x, t=target, w=options: ferry.to(x, t, copy=False, **w),
        )
        assert isinstance(error, BufferError)
        if word != "cast":
            assert word in str(error), error


def test_errors_can_be_pickled():
    import pickle

    error = refused(ferry.NotATensorError, TypeError, lambda: ferry.to(3, "torch"))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.hint) == (type(error), str(error), error.hint)
    check_words(again)
