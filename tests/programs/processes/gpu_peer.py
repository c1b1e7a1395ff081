"""What a peer process does with GPU memory on the fake driver: `Peer.run` calls these functions.

What one call keeps under a name, the next one finds there.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

import tensorferry as ferry

kept: dict[str, Any] = {}


def attach(ticket: str, framework: str, **options: Any) -> None:
    """Attaches a ticket, and keeps what it leads to."""
    kept["got"] = ferry.attach(ticket, framework, **options)


def values() -> Any:
    """The values of the GPU array that was attached."""
    return kept["got"].get().tolist()


def name_of_dtype() -> str:
    """The element type of what was attached."""
    return str(kept["got"].dtype)


def fill(value: float) -> None:
    """Writes every element of the GPU array that was attached, and waits until they are there."""
    got = kept["got"]
    got.set(np.full(got.shape, value, got.dtype))
    cupy.cuda.get_current_stream().synchronize()


def publish_got() -> str:
    """Publishes what was attached."""
    kept["ticket"] = ferry.publish(kept["got"], copy=False)
    return str(kept["ticket"])


def publish_new(size: int) -> str:
    """Publishes new memory of a GPU."""
    kept["x"] = ferry.empty_shared(size, "uint8", framework="cupy", device="cuda")
    kept["ticket"] = ferry.publish(kept["x"], copy=False)
    return str(kept["ticket"])
