"""What the results are to a type checker where the frameworks are installed.

The comment of a line is the type that `reveal_type` shows, or `error` where the line must be one.
`assert_type` tells types apart whose short names are equal, such as those of PyTorch and Paddle.
"""

import concurrent.futures
from collections import OrderedDict, deque
from dataclasses import dataclass
from types import ModuleType
from typing import Any, assert_type, reveal_type

import jax
import mlx.core
import numpy as np
import paddle
import scipy.sparse
import torch

import tensorferry as ferry

Array = np.ndarray[Any, np.dtype[np.float32]]


def names(x: Array) -> None:
    reveal_type(ferry.to(x, "numpy"))  # ndarray[Any, Any]
    reveal_type(ferry.to(x, "np"))  # ndarray[Any, Any]
    reveal_type(ferry.to(x, "torch"))  # Tensor
    reveal_type(ferry.to(x, "pytorch"))  # Tensor
    reveal_type(ferry.to(x, "jax"))  # Array
    reveal_type(ferry.to(x, "jnp"))  # Array
    reveal_type(ferry.to(x, "jax.numpy"))  # Array
    reveal_type(ferry.to(x, "paddle"))  # Tensor
    reveal_type(ferry.to(x, "mlx"))  # array
    reveal_type(ferry.to(x, "mlx.core"))  # array
    assert_type(ferry.to(x, "torch"), torch.Tensor)
    assert_type(ferry.to(x, "pytorch"), torch.Tensor)
    assert_type(ferry.to(x, "jax"), jax.Array)
    assert_type(ferry.to(x, "paddle"), paddle.Tensor)
    assert_type(ferry.to(x, "mlx"), mlx.core.array)
    ferry.to(x, "torch").no_such_attribute  # error
    assert_type(ferry.to(x, "torch"), paddle.Tensor)  # error
    ferry.to(x, "torch", copy="yes")  # error
    ferry.to(x, "torch", no_such_option=1)  # error
    ferry.to(x)  # error


def no_types(x: Array, name: str, module: ModuleType) -> None:
    reveal_type(ferry.to(x, "tensorflow"))  # Any
    reveal_type(ferry.to(x, "tf"))  # Any
    reveal_type(ferry.to(x, "cupy"))  # Any
    reveal_type(ferry.to(x, name))  # Any
    reveal_type(ferry.to(x, module))  # Any
    reveal_type(ferry.to(x, torch))  # Any
    reveal_type(ferry.to(x, "torch.sparse"))  # Any


def sources(
    t: torch.Tensor, j: jax.Array, p: paddle.Tensor, m: mlx.core.array, b: bytes, s: np.float32
) -> None:
    reveal_type(ferry.to(t, "numpy"))  # ndarray[Any, Any]
    reveal_type(ferry.to(j, "torch"))  # Tensor
    reveal_type(ferry.to(p, "jax"))  # Array
    reveal_type(ferry.to(m, "torch"))  # Tensor
    reveal_type(ferry.to(b, "jax"))  # Array
    reveal_type(ferry.to(s, "jax"))  # Array
    reveal_type(ferry.to(memoryview(b), "mlx", copy=True, dtype="float32"))  # array


def one_of_two(x: Array | torch.Tensor) -> None:
    reveal_type(ferry.to(x, "jax"))  # Array


@dataclass
class Pair:
    left: Array
    right: Array


def containers(x: Array, name: str, pair: Pair, q: deque[Array], o: object) -> None:
    reveal_type(ferry.to({"w": x}, "torch"))  # dict[Any, Any]
    reveal_type(ferry.to(OrderedDict(w=x), "torch"))  # dict[Any, Any]
    reveal_type(ferry.to([x, x], "torch"))  # list[Any]
    reveal_type(ferry.to((x, [x]), "torch"))  # tuple[Any, ...]
    reveal_type(ferry.to({"w": x}, "tensorflow"))  # dict[Any, Any]
    reveal_type(ferry.to([x], name))  # list[Any]
    reveal_type(ferry.to((x,), torch))  # tuple[Any, ...]
    reveal_type(ferry.to(pair, "torch"))  # Any
    reveal_type(ferry.to(q, "torch"))  # Any
    reveal_type(ferry.to(o, "torch"))  # Any


def sparse(s: scipy.sparse.csr_array) -> None:
    reveal_type(ferry.to(s, "torch"))  # Any
    reveal_type(ferry.to(s, "scipy"))  # Any
    reveal_type(ferry.to_async(s, "torch").result())  # Any


def unknown(x: Any) -> None:
    reveal_type(ferry.to(x, "torch"))  # Any
    reveal_type(ferry.to(x, "numpy"))  # Any
    reveal_type(ferry.to_async(x, "torch").result())  # Any


async def jobs(x: Array, name: str) -> None:
    job = ferry.to_async(x, "torch")
    reveal_type(job)  # Job[Tensor]
    reveal_type(job.result())  # Tensor
    reveal_type(job.result(timeout=1))  # Tensor
    reveal_type(await job)  # Tensor
    reveal_type(job.bytes_moved)  # int
    reveal_type(ferry.to_async(x, "np").result())  # ndarray[Any, Any]
    reveal_type(ferry.to_async(x, "jax").result())  # Array
    reveal_type(ferry.to_async(x, "mlx").result())  # array
    assert_type(ferry.to_async(x, "paddle"), ferry.Job[paddle.Tensor])
    reveal_type(ferry.to_async({"w": x}, "torch").result())  # dict[Any, Any]
    reveal_type(ferry.to_async([x], "torch"))  # Job[list[Any]]
    reveal_type(ferry.to_async(x, name))  # Job[Any]
    reveal_type(next(concurrent.futures.as_completed([job])).result())  # Tensor
    job.result().no_such_attribute  # error


def files(name: str, found: list[str]) -> None:
    # Whether a file holds one tensor or several is not known from its name.
    reveal_type(ferry.load("x.npy"))  # Any
    reveal_type(ferry.load("x.safetensors", "torch", device="cuda"))  # Any
    reveal_type(ferry.load("x.npz", names="w"))  # Any
    reveal_type(ferry.load("x.npz", "torch", names="layers.0.*", mmap=False))  # Any
    reveal_type(ferry.load("x.npz", "torch", nested=True, format="npz"))  # Any
    reveal_type(ferry.load("x.npz", "torch", nested=False, format="npz"))  # dict[str, Any]
    reveal_type(ferry.load("x.npz", "torch", names=["w", "b"]))  # dict[str, Any]
    reveal_type(ferry.load("x.npz", name, names=("w", "b")))  # dict[str, Any]
    reveal_type(ferry.load("x.npz", "torch", names=(one for one in found)))  # Any
    reveal_type(ferry.load("x", format="npy"))  # ndarray[Any, Any]
    reveal_type(ferry.load("x", "torch", format="npy"))  # Tensor
    reveal_type(ferry.load("x", "jax", format="tensorproto", dialect="onnx"))  # Array
    assert_type(ferry.load("x", "paddle", format="npy"), paddle.Tensor)
    reveal_type(ferry.load("x", "mlx", format="npy"))  # array
    reveal_type(ferry.load("x", "tensorflow", format="npy"))  # Any
    reveal_type(ferry.load("x", "torch", format="safetensors"))  # dict[str, Any]
    reveal_type(ferry.load("x", "torch", format=name))  # Any
    ferry.load("x.npz", "torch", names=1)  # error
    ferry.load("x.npz", nested="yes")  # error
    ferry.load("x.npy", mmap="no")  # error
    ferry.load("x.npy", no_such_option=1)  # error


def raw_files(name: str) -> None:
    reveal_type(ferry.load_raw("x.bin", dtype="float32"))  # ndarray[Any, Any]
    reveal_type(ferry.load_raw("x.bin", "torch", dtype="float32", shape=(2, 3)))  # Tensor
    reveal_type(ferry.load_raw("x.bin", "jax", dtype="float32", copy=True))  # Array
    assert_type(ferry.load_raw("x.bin", "paddle", dtype="float32"), paddle.Tensor)
    reveal_type(ferry.load_raw("x.bin", "mlx", dtype="float32"))  # array
    reveal_type(ferry.load_raw("x.bin", "tensorflow", dtype="float32"))  # Any
    reveal_type(ferry.load_raw("x.bin", name, dtype="float32"))  # Any
    ferry.load_raw("x.bin", "torch")  # error


def processes(ticket: ferry.Ticket, name: str) -> None:
    reveal_type(ferry.attach(ticket))  # ndarray[Any, Any]
    reveal_type(ferry.attach(str(ticket), "torch"))  # Tensor
    reveal_type(ferry.attach(bytes(ticket), "jax.numpy", timeout=1))  # Array
    assert_type(ferry.attach(ticket, "paddle"), paddle.Tensor)
    reveal_type(ferry.attach(ticket, "mlx"))  # array
    reveal_type(ferry.attach(ticket, "cupy"))  # Any
    reveal_type(ferry.attach(ticket, name))  # Any
    reveal_type(ferry.attach(ticket, torch))  # Any
    ferry.attach(1, "torch")  # error


def memory(name: str) -> None:
    reveal_type(ferry.empty_shared((2, 3), "float32"))  # ndarray[Any, Any]
    reveal_type(ferry.empty_shared(3, "float32", framework="torch"))  # Tensor
    reveal_type(ferry.empty_shared(3, "float32", framework="jax"))  # Array
    assert_type(ferry.empty_shared(3, "float32", framework="paddle"), paddle.Tensor)
    reveal_type(ferry.empty_shared(3, "float32", framework="mlx"))  # array
    reveal_type(ferry.empty_shared(3, "float32", framework="tf"))  # Any
    reveal_type(ferry.empty_aligned([2, 3], "float32"))  # ndarray[Any, Any]
    reveal_type(ferry.empty_aligned(3, "float32", framework="pytorch"))  # Tensor
    reveal_type(ferry.empty_aligned(3, "float32", framework="jnp"))  # Array
    assert_type(ferry.empty_aligned(3, "float32", framework="paddle"), paddle.Tensor)
    reveal_type(ferry.empty_aligned(3, "float32", framework="mlx.core"))  # array
    reveal_type(ferry.empty_aligned(3, "float32", framework=name))  # Any
    ferry.empty_shared((2, 3), "float32", "torch")  # error
