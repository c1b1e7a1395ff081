"""A common interface to the frameworks with GPU support: making, reading and computing."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class GpuFramework:
    name: str
    make: Callable[[np.ndarray], Any]  # on the GPU, from a host array
    host: Callable[[Any], np.ndarray]
    address: Callable[[Any], int]
    on_gpu: Callable[[Any], bool]
    wait: Callable[[], None]


GPU_FRAMEWORKS: dict[str, GpuFramework] = {}


def has_gpu(name: str) -> bool:
    """Whether a framework that is installed can use a GPU."""
    if name == "jax":
        import jax

        return any(device.platform == "gpu" for device in jax.local_devices())
    if name == "tensorflow":
        import tensorflow as tf

        return bool(tf.config.list_physical_devices("GPU"))
    return True


def _torch() -> None:
    GPU_FRAMEWORKS["torch"] = GpuFramework(
        "torch",
        lambda a: torch.from_numpy(a.copy()).cuda(),
        lambda t: t.cpu().numpy(),
        lambda t: t.data_ptr(),
        lambda t: t.is_cuda,
        torch.cuda.synchronize,
    )


def _cupy() -> None:
    import cupy

    GPU_FRAMEWORKS["cupy"] = GpuFramework(
        "cupy",
        cupy.asarray,
        cupy.asnumpy,
        lambda c: c.data.ptr,
        lambda c: isinstance(c, cupy.ndarray),
        lambda: cupy.cuda.Device().synchronize(),
    )


def _jax() -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    device = jax.devices("gpu")[0]
    GPU_FRAMEWORKS["jax"] = GpuFramework(
        "jax",
        lambda a: jax.device_put(a, device),
        np.asarray,
        lambda j: j.unsafe_buffer_pointer(),
        lambda j: j.device.platform == "gpu",
        lambda: (jax.numpy.zeros(1, device=device) + 1).block_until_ready(),
    )


def _tensorflow() -> None:
    import tensorflow as tf

    def make(a: np.ndarray) -> Any:
        with tf.device("GPU:0"):
            return tf.identity(tf.constant(a))

    def address(t: Any) -> int:
        return torch.from_dlpack(tf.experimental.dlpack.to_dlpack(t)).data_ptr()

    GPU_FRAMEWORKS["tensorflow"] = GpuFramework(
        "tensorflow",
        make,
        lambda t: t.numpy(),
        address,
        lambda t: "GPU" in t.backing_device,
        tf.test.experimental.sync_devices,
    )


_torch()
for _name, _add in {"cupy": _cupy, "jax": _jax, "tensorflow": _tensorflow}.items():
    # A framework that was built without CUDA says so when it is asked for a GPU.
    if importlib.util.find_spec(_name) and has_gpu(_name):
        _add()


def stream_of(name: str) -> AbstractContextManager[Any]:
    """A block in which a framework works on a stream that waits for nobody, where it has such."""
    if name == "torch":
        return torch.cuda.stream(torch.cuda.Stream())
    if name == "cupy":
        import cupy

        return cupy.cuda.Stream(non_blocking=True)
    return nullcontext()
