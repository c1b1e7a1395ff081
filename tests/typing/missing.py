"""What the results are to a type checker where only NumPy is installed.

The comment of a line is the type that `reveal_type` shows, or `error` where the line must be one.
"""

from typing import Any, reveal_type

import numpy as np

import tensorferry as ferry

Array = np.ndarray[Any, np.dtype[np.float32]]


def results(x: Array, ticket: ferry.Ticket) -> None:
    reveal_type(ferry.to(x, "numpy"))  # ndarray[Any, Any]
    reveal_type(ferry.to(x, "torch"))  # Any
    reveal_type(ferry.to(x, "jax"))  # Any
    reveal_type(ferry.to(x, "paddle"))  # Any
    reveal_type(ferry.to(x, "mlx"))  # Any
    reveal_type(ferry.to(x, "tensorflow"))  # Any
    reveal_type(ferry.to({"w": x}, "torch"))  # dict[Any, Any]
    reveal_type(ferry.to_async(x, "torch"))  # Job[Any]
    reveal_type(ferry.load("x.npz", "torch", names="w"))  # Any
    reveal_type(ferry.load_raw("x.bin", "jax", dtype="float32"))  # Any
    reveal_type(ferry.attach(ticket, "paddle"))  # Any
    reveal_type(ferry.empty_shared(3, "float32", framework="mlx"))  # Any
    ferry.to(x, "torch").relu()
    ferry.to(x, "numpy").no_such_attribute  # error


@ferry.via("torch")
def scale(x: Any, factor: float = 1.0) -> float:
    return factor


def decorated(x: Array) -> None:
    reveal_type(scale(x, 2.0))  # Any
    reveal_type(scale(x=x, factor=2.0))  # Any
