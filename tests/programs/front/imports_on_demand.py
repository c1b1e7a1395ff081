"""Checks which modules each step imports, from `import tensorferry` to the first calls."""

from __future__ import annotations

import array
import importlib
import sys

from support.cases import case, main
from support.errors import raised

import tensorferry as ferry


def loaded() -> set[str]:
    """The top-level packages that are imported."""
    return {name.partition(".")[0] for name in sys.modules}


@case
def named_framework() -> None:
    """A conversion imports the framework that it names, and no other."""
    assert [f.loaded for f in ferry.frameworks()] == [False] * 7, ferry.frameworks()
    assert "numpy" not in sys.modules
    got = ferry.to(array.array("f", [1, 2]), "numpy")
    assert got.tolist() == [1, 2]
    assert not {"torch", "jax", "ml_dtypes"} & loaded()


@case
def decorator() -> None:
    """`@ferry.via` imports no framework."""

    @ferry.via("torch", grad=True)
    def f(x: object) -> object:
        return x

    @ferry.via("cupy")
    def g(x: object) -> object:
        return x

    assert not {"torch", "cupy", "jax", "numpy"} & loaded()


@case
def namespace() -> None:
    """`ferry.array_namespace` imports the namespace of its argument, and no other."""
    heavy = {"numpy", "torch", "jax", "tensorflow", "cupy", "array_api_compat"}
    assert not heavy & loaded(), heavy & loaded()
    raised(ferry.InvalidArgumentError, ferry.array_namespace, 1)
    assert not heavy & loaded(), heavy & loaded()
    xp = ferry.array_namespace(importlib.import_module("numpy").ones(2))
    assert xp.__name__ == "array_api_compat.numpy"
    assert heavy & loaded() == {"numpy", "array_api_compat"}, heavy & loaded()
    assert "tensorferry.array_api.tensorflow" not in sys.modules


@case
def job() -> None:
    """The module of futures is imported by the first job."""
    assert "concurrent.futures" not in sys.modules
    job = ferry.to_async(array.array("f", [1, 2]), "numpy", copy=True)
    assert job.result().tolist() == [1, 2]
    assert type(job) is ferry.Job
    assert (ferry.Job.__module__, ferry.CancelledError.__module__) == ("tensorferry",) * 2


@case
def names() -> None:
    """Prints `dir(ferry)` after a submodule was imported, which is an attribute from then on."""
    importlib.import_module("tensorferry._tools.cli")
    print(*dir(ferry))


if __name__ == "__main__":
    main()
