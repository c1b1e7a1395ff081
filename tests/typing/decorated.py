"""What functions decorated with `via` and `agnostic` are to a type checker.

The comment of a line is the type that `reveal_type` shows, or `error` where the line must be one.
Where mypy finds less than pyright, its finding stands behind the other: a function that has Any
among its types matches several overloads, and the result is Any to mypy.
"""

from typing import Any, reveal_type

import jax
import numpy as np
import torch

import tensorferry as ferry

Array = np.ndarray[Any, np.dtype[np.float32]]


@ferry.via("torch")
def scale(x: torch.Tensor, factor: float, *, name: str = "") -> torch.Tensor:
    return x


@ferry.via("torch")
def mix(x: torch.Tensor, y: torch.Tensor, weight: float = 0.5) -> float:
    return weight


@ferry.via("torch", device="cpu")
def join(
    x: torch.Tensor, y: torch.Tensor, z: torch.Tensor | None = None, *, dim: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    return x, y


@ferry.via("torch")
def loose(x: Any, n: int, *, name: str = "") -> float:
    return 1.0


@ferry.via("torch")
async def delayed(x: torch.Tensor, n: int) -> int:
    return n


@ferry.via("jax")
def flip(x: jax.Array) -> int:
    return 1


@ferry.via("numpy", returns="keep")
def total(x: Array, n: int) -> float:
    return 1.0


@ferry.via("tensorflow")
def traced(x: Any, n: int) -> float:
    return 1.0


class Model:
    @ferry.via("torch", device="cpu")
    def run(self, x: torch.Tensor, n: int) -> int:
        return n

    @ferry.via("torch")
    def both(self, x: torch.Tensor, y: torch.Tensor, *, n: int = 1) -> torch.Tensor:
        return x

    @ferry.via("torch")
    @classmethod
    def build(cls, x: Any) -> int:
        return 1

    @ferry.via("torch")
    @staticmethod
    def norm(x: Any, n: int) -> str:
        return ""

    @staticmethod
    @ferry.via("torch")
    def inner(x: torch.Tensor, n: int) -> str:
        return ""

    @ferry.via("tensorflow")
    def traced(self, x: Any, n: int) -> int:
        return n


@ferry.agnostic
def mean(xp: Any, x: Any, n: int) -> float:
    return 1.0


@ferry.agnostic(device="cpu")
def largest(xp: Any, x: Any, *, axis: int = 0) -> float:
    return 1.0


class Statistics:
    @ferry.agnostic
    def mean(self, xp: Any, x: Any) -> int:
        return 1


def functions(x: Array, t: torch.Tensor, j: jax.Array) -> None:
    # A result that is a tensor of the body's framework goes to that of the caller.
    reveal_type(scale(x, 2.0))  # Any
    reveal_type(scale(t, 2.0, name="a"))  # Any
    reveal_type(scale(j, factor=2.0))  # Any
    reveal_type(scale(x=x, factor=2.0))  # Any
    reveal_type(mix(x, j))  # float
    reveal_type(mix(x, t, weight=0.1))  # float
    reveal_type(mix(x, y=t))  # float
    reveal_type(mix(x=x, y=j, weight=0.1))  # float
    reveal_type(join(x, j))  # Any
    reveal_type(join(x, j, t, dim=1))  # Any
    reveal_type(join(x, j, z=t, dim=1))  # Any
    reveal_type(loose(x, 1, name="x"))  # float, mypy: Any
    reveal_type(flip(t))  # int
    reveal_type(total(t, 1))  # float
    reveal_type(traced(x, 1))  # float
    scale(x, "no")  # error
    scale(x)  # error
    scale(x, 2.0, name=1)  # error
    scale(x, 2.0, no_such_option=1)  # error
    mix(x, j, "no")  # error
    join(x, j, t, dim="no")  # error
    loose(x, "no")  # error, mypy: nothing
    total(x, "no")  # error
    traced(x, "no")  # error


def methods(model: Model, x: Array, j: jax.Array) -> None:
    reveal_type(model.run(x, 1))  # int
    reveal_type(model.run(x=x, n=1))  # int
    reveal_type(model.both(x, j))  # Any
    reveal_type(model.both(x, j, n=2))  # Any
    reveal_type(Model.run(model, x, 1))  # int
    reveal_type(Model.build(x))  # int, mypy: Any
    reveal_type(Model.norm(x, 1))  # str, mypy: Any
    reveal_type(Model.inner(x, 1))  # str
    reveal_type(model.inner(x, 1))  # str
    reveal_type(model.traced(x, 1))  # int
    model.run(x, "no")  # error
    model.both(x, j, n="no")  # error
    Model.norm(x, "no")  # error, mypy: nothing
    model.inner(x, "no")  # error


async def coroutines(x: Array) -> None:
    reveal_type(await delayed(x, 1))  # int
    await delayed(x, "no")  # error


def agnostic(x: Array, j: jax.Array) -> None:
    reveal_type(mean(x, 1))  # float
    reveal_type(mean(j, n=1))  # float
    reveal_type(largest(j, axis=1))  # float
    reveal_type(Statistics().mean(x))  # int
    mean(x)  # error
    mean(x, "no")  # error
    largest(x, axis="no")  # error
