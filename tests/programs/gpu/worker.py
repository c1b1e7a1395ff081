"""Serves calls of its functions by a pipe: one JSON line for a call, one for its answer.

`gpu.worker_process.Worker` starts it. The process keeps one tensor, one ticket and one trace
between the calls. It needs no other file of the tests.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorferry as ferry

# The modules of a framework, in the order in which the frameworks live together.
MODULES = {
    "numpy": (),
    "torch": ("torch",),
    "cupy": ("cupy",),
    "jax": ("jax", "jax.numpy"),
    "tensorflow": ("torch", "tensorflow"),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {}
# What a process keeps: "framework", and what the functions leave.
kept: dict[str, Any] = {}


def served(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function callable by its name."""
    FUNCTIONS[function.__name__] = function
    return function


def module(name: str) -> Any:
    """A module that was imported by `start`."""
    return sys.modules[name]


def on_gpu(array: np.ndarray[Any, Any]) -> Any:
    """A copy of a host array on the GPU, made by the framework of this process."""
    framework = kept["framework"]
    if framework == "torch":
        return module("torch").from_numpy(array).cuda()
    if framework == "cupy":
        return module("cupy").asarray(array)
    if framework == "jax":
        jax = module("jax")
        return jax.device_put(array, jax.devices("gpu")[0])
    tf = module("tensorflow")
    return tf.constant(array) + tf.constant(0, array.dtype)


def on_host(x: Any) -> np.ndarray[Any, Any]:
    """A host array of a tensor of the framework of this process."""
    framework = kept["framework"]
    if framework == "torch":
        x = x.cpu().numpy()
    elif framework == "cupy":
        x = module("cupy").asnumpy(x)
    elif framework == "tensorflow":
        x = x.numpy()
    return np.asarray(x)


def publish_tensor(**options: Any) -> str:
    """Publishes the tensor; the ticket is kept."""
    kept["ticket"] = ferry.publish(kept["x"], **options)
    return str(kept["ticket"])


@served
def start(framework: str) -> None:
    """Imports a framework."""
    kept["framework"] = framework
    for name in MODULES[framework]:
        importlib.import_module(name)


@served
def publish(count: int, **options: Any) -> str:
    """Publishes the numbers from 0 to `count` as float32, from the GPU."""
    kept["x"] = on_gpu(np.arange(count, dtype="float32"))
    return publish_tensor(**options)


@served
def publish_again(**options: Any) -> str:
    """Publishes the tensor that was attached."""
    return publish_tensor(**options)


@served
def publish_host_memory(count: int) -> str:
    """Publishes the numbers from 0 to `count`, which are in host memory, on the GPU."""
    kept["x"] = np.arange(count, dtype="float32")
    return publish_tensor(device="cuda")


@served
def fill(count: int, value: float) -> None:
    """Keeps an array of one value in host memory."""
    kept["x"] = np.full(count, value, "float32")


@served
def publish_filled() -> str:
    """Publishes the array of `fill` on the GPU."""
    return publish_tensor(device="cuda")


@served
def attach(ticket: str, **options: Any) -> Any:
    """Attaches a tensor and gives its values."""
    kept["x"] = ferry.attach(ticket, kept["framework"], **options)
    return on_host(kept["x"]).tolist()


@served
def attach_unread(ticket: str) -> None:
    """Attaches a tensor and does not look at its values."""
    kept["x"] = ferry.attach(ticket, kept["framework"])


@served
def total() -> float:
    """The sum of the tensor, computed by its framework."""
    return float(kept["x"].sum())


@served
def item(index: int) -> float:
    """One element of the tensor."""
    return float(kept["x"][index])


@served
def device() -> str:
    """What the framework calls the device of the tensor."""
    return str(kept["x"].device)


@served
def write_first(value: float) -> None:
    """Writes the first element, and waits until it is written."""
    kept["x"][0] = value
    if kept["framework"] == "torch":
        module("torch").cuda.synchronize()
    else:
        module("cupy").cuda.Device().synchronize()


@served
def forget() -> None:
    """Releases what is kept."""
    for name in ("x", "ticket", "state"):
        kept.pop(name, None)


@served
def begin_trace() -> None:
    """Begins a trace."""
    kept["context"] = ferry.trace()
    kept["trips"] = kept["context"].__enter__()


@served
def end_trace() -> list[bool]:
    """Ends the trace; whether each trip shared memory."""
    kept.pop("context").__exit__(None, None, None)
    return [trip.plan.shares for trip in kept.pop("trips")]


@served
def make_zeros(count: int) -> None:
    """Keeps a tensor of PyTorch on the GPU, which is written when this returns."""
    torch = module("torch")
    kept["x"] = torch.zeros(count, device="cuda")
    torch.cuda.synchronize()


@served
def publish_behind_work(value: float, cycles: int) -> str:
    """Queues GPU work of `cycles` cycles and a write of the tensor, and publishes it."""
    torch = module("torch")
    torch.cuda._sleep(cycles)
    kept["event"] = torch.cuda.Event()
    kept["event"].record()
    kept["x"].fill_(value)
    return publish_tensor()


@served
def is_busy() -> bool:
    """Whether the work of `publish_behind_work` still runs."""
    return not kept["event"].query()


@served
def write_by_the_driver() -> list[int]:
    """Writes the tensor by the driver itself, past every framework; gives what the driver says."""
    cuda = ctypes.CDLL("libcuda.so.1")
    capsule = kept["x"].__dlpack__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = ctypes.c_uint64.from_address(get(capsule, b"dltensor")).value
    queued = cuda.cuMemsetD8_v2(ctypes.c_uint64(address), 1, ctypes.c_size_t(4))
    return [queued, cuda.cuCtxSynchronize()]


@served
def compute() -> float:
    """Computes something else with CuPy."""
    return float(module("cupy").arange(5).sum())


@served
def publish_state(count: int) -> str:
    """Publishes a state dictionary of PyTorch with `count` tensors."""
    torch = module("torch")
    kept["state"] = {
        f"layer.{i}": torch.full((100 + i,), float(i), device="cuda") for i in range(count)
    }
    kept["ticket"] = ferry.publish(kept["state"])
    return str(kept["ticket"])


@served
def attach_state(ticket: str) -> list[float]:
    """Attaches a state dictionary; the sum of each tensor."""
    kept["state"] = ferry.attach(ticket, kept["framework"], copy=False)
    return [float(x.sum()) for x in kept["state"].values()]


def serve() -> None:
    """Answers calls until the pipe is closed."""
    replies = os.fdopen(os.dup(1), "w")
    # Output of frameworks goes to stderr, so that it is not read as a reply.
    os.dup2(2, 1)
    for line in sys.stdin:
        name, arguments, options = json.loads(line)
        try:
            answer = {"answer": FUNCTIONS[name](*arguments, **options)}
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(answer) + "\n")
        replies.flush()


if __name__ == "__main__":
    serve()
