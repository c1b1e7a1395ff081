"""Converts in several ways and prints the states of the fast paths as JSON.

The second argument names the frameworks that are imported first, separated by commas.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from support.subprocesses import import_frameworks

NAMES = sys.argv[2].split(",")
import_frameworks(*NAMES)

import numpy as np  # noqa: E402
from support.cases import case, main  # noqa: E402
from support.trips import go_everywhere, go_into_trees, go_sparse, states  # noqa: E402

import tensorferry as ferry  # noqa: E402


@case
def no_trip(names: str) -> None:
    """Nothing is converted, and no framework but NumPy is imported."""
    assert not {"torch", "jax", "tensorflow", "paddle", "cupy"} & sys.modules.keys()


@case
def trips_of_torch(names: str) -> None:
    """Dense and sparse trips of NumPy and PyTorch, and a tree."""
    go_everywhere(NAMES)
    go_sparse(["torch"])
    go_into_trees()


@case
def private_names_missing(names: str) -> None:
    """PyTorch lacks private names, as another version of it might."""
    import torch

    real = torch._C

    class Hidden:
        def __getattr__(self, name: str) -> Any:
            if name == "TensorBase":
                raise AttributeError(f"no {name}")
            return getattr(real, name)

    torch._C = Hidden()
    if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        del torch.Tensor.__dlpack_c_exchange_api__
    go_everywhere(["numpy", "torch"])
    torch._C = real


@case
def first_call_in_a_mode(names: str) -> None:
    """The first calls are in modes of PyTorch and in a trace of JAX."""
    import jax
    import torch

    seen = []

    class Calls(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, given: Any = (), more: Any = None
        ) -> Any:
            seen.append(function)
            return function(*given, **(more or {}))

    with torch.device("meta"), Calls():
        ferry.to(np.ones(2, np.float32), "torch")
    assert not seen, seen
    jax.jit(lambda y: (ferry.to(np.ones(2, np.float32), "jax"), y)[1])(1.0)


if __name__ == "__main__":
    main()
    print(json.dumps(states()))
