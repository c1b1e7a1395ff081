"""What runs in workers of Ray: tasks and an actor, and a look at tensors without tensorferry.

A worker imports this module, which imports neither Ray nor a framework.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from typing import Any

FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow", "paddle")

# The framework, the type, the shape and the bytes of a tensor in row-major order.
Seen = tuple[str, str, tuple[int, ...], bytes]


def cluster_settings() -> dict[str, str]:
    """Variables of a process that starts a cluster: they are to be set before it imports Ray.

    Without a token Ray would make one in the home directory.
    """
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def environment_of(framework: str) -> dict[str, Any]:
    """A runtime environment whose workers are those of one framework."""
    return {"env_vars": {"TENSORFERRY_TEST_WORKERS": framework}}


def see(x: Any) -> Seen:
    """What a tensor is, by the functions of its own framework."""
    import numpy as np

    framework = type(x).__module__.partition(".")[0].replace("jaxlib", "jax")
    dtype = str(x.dtype).rpartition(".")[2]
    if framework == "torch":
        import torch

        plain = x.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        array = plain.view(torch.uint8).numpy()
    elif framework == "tensorflow":
        dtype, array = x.dtype.name, x.numpy()
    elif framework == "paddle":
        array = x.detach().numpy()
    else:
        array = np.asarray(x)
        dtype = array.dtype.name
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
    raw = (array.view("u1") != 0) if dtype == "bool" else array
    return framework, dtype, tuple(x.shape), raw.tobytes()


def see_and_return(tensors: dict[str, Any]) -> tuple[dict[str, Seen], dict[str, Any]]:
    """What arrived, and the tensors themselves on their way back."""
    return {name: see(x) for name, x in tensors.items()}, tensors


def get_as(refs: list[Any], framework: str, **options: Any) -> Seen:
    """What a task sees that reads a ref as another framework's."""
    import tensorferry as ferry

    return see(ferry.ray.get(refs[0], framework, **options))


def get_without(missing: str, refs: list[Any], framework: str | None) -> Any:
    """Reads a ref in a process that cannot import a framework, and returns the error's text, or
    what `ferry.ray.get` gave."""
    import ray

    import tensorferry as ferry

    assert missing not in sys.modules
    sys.modules[missing] = None  # type: ignore[assignment]
    if framework is not None:
        return see(ferry.ray.get(refs[0], framework))
    try:
        ray.get(refs[0])
    except Exception as error:
        return type(error).__name__, str(error)
    raise AssertionError(f"read without {missing}")


def loaded_frameworks() -> list[str]:
    """The frameworks that this process has imported, beside NumPy, which Ray imports."""
    return [name for name in FRAMEWORKS if name in sys.modules and name != "numpy"]


def pickles_by_tensorferry() -> bool:
    """Whether the hook has run in this process."""
    import ray.cloudpickle as cloudpickle

    from tensorferry import pickling

    ours = type(pickling.dispatch_table())
    maps = cloudpickle.CloudPickler.dispatch_table.maps
    return any(isinstance(entries, ours) for entries in maps)


def flag_process() -> None:
    """A hook of a user: says in the environment that it ran, and after which one."""
    os.environ["TENSORFERRY_TEST_HOOK"] = f"after ours: {pickles_by_tensorferry()}"


def report() -> dict[str, Any]:
    """What a worker is after its hooks ran."""
    return {
        "pickles": pickles_by_tensorferry(),
        "hook": os.environ.get("TENSORFERRY_TEST_HOOK"),
        "frameworks": loaded_frameworks(),
    }


class Holder:
    """An actor that keeps a tensor, and hands it on to others."""

    def __init__(self) -> None:
        self.x: Any = None

    def process(self) -> int:
        return os.getpid()

    def keep(self, x: Any) -> Seen:
        self.x = x
        return see(x)

    def give(self) -> Any:
        return self.x

    def take_from(self, other: Any) -> Seen:
        """Gets the tensor of another actor."""
        import ray

        return self.keep(ray.get(other.give.remote()))

    def write(self) -> Seen:
        """Fills the kept tensor in place."""
        self.x.fill_(7)
        return see(self.x)

    def seen(self) -> Seen:
        return see(self.x)

    def get_and_keep(self, refs: list[Any]) -> int:
        """Maps an object of somebody else, and returns the length of the tensor."""
        import tensorferry as ferry

        self.x = ferry.ray.get(refs[0], "numpy")
        return len(self.x)

    def put_and_keep(self, framework: str, size: int) -> Any:
        """Puts tensors of `size` bytes, keeps their refs and their memory, and returns the size of
        what it holds."""
        import numpy as np
        import ray

        import tensorferry as ferry

        values = ferry.to(np.ones(size, np.uint8), framework)
        refs = [ray.put(values) for _ in range(4)]
        self.x = refs, ferry.ray.get(refs, framework, writable=False)
        return sum(see(x)[2][0] for x in self.x[1])


class AsyncReader:
    """An actor whose methods run in an event loop."""

    async def read(self, refs: list[Any], framework: str) -> Seen:
        import tensorferry as ferry

        return see(await asyncio.to_thread(ferry.ray.get, refs[0], framework))


def tied_pair(pair: list[Any]) -> tuple[bool, list[Any]]:
    """Whether a write to the first of two tensors is seen in the second; and both."""
    first, second = pair
    first.fill_(5)
    return bool((second == 5).all()), pair
