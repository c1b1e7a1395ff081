"""Devices of the frameworks, and their default device."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tensorferry.framework_register import FRAMEWORKS, load


def has_cuda(framework: str) -> bool:
    """Whether an imported framework can use a GPU here."""
    if not FRAMEWORKS[framework].has_cuda:
        return False
    module = load(framework)
    try:
        return _HAS_CUDA[framework](module)
    except Exception:  # each framework raises its own class without a GPU
        return False


def _jax_has_cuda(jax: Any) -> bool:
    return bool(jax.devices("cuda"))


def _tensorflow_has_cuda(tf: Any) -> bool:
    return bool(tf.config.list_physical_devices("GPU"))


def _paddle_has_cuda(paddle: Any) -> bool:
    return bool(paddle.device.is_compiled_with_cuda() and paddle.device.cuda.device_count())


_HAS_CUDA: dict[str, Callable[[Any], bool]] = {
    "torch": lambda torch: bool(torch.cuda.is_available()),
    "cupy": lambda cupy: bool(cupy.cuda.runtime.getDeviceCount()),
    "jax": _jax_has_cuda,
    "tensorflow": _tensorflow_has_cuda,
    "paddle": _paddle_has_cuda,
}


def between(source: str, target: str, device: str) -> list[tuple[str, str]]:
    """The pairs of source and target device to measure: on the host, with a GPU, or all.

    With a GPU, both tensors are on it if both frameworks support it, else one of them.
    """
    found = []
    if device in ("cpu", "all") and "cupy" not in (source, target):
        found.append(("cpu", "cpu"))
    if device in ("cuda", "all"):
        ends = ("cuda" if has_cuda(source) else "cpu", "cuda" if has_cuda(target) else "cpu")
        if "cuda" in ends:
            found.append(ends)
    return found


@contextlib.contextmanager
def default_device(framework: str, device: str) -> Iterator[None]:
    """A block in which new tensors of a framework are on `device`."""
    if not has_cuda(framework):
        yield
        return
    module = load(framework)
    if framework == "jax":
        with module.default_device(module.devices(device)[0]):
            yield
    elif framework == "tensorflow":
        with module.device("/GPU:0" if device == "cuda" else "/CPU:0"):
            yield
    elif framework == "paddle":
        before = module.device.get_device()
        module.device.set_device("gpu:0" if device == "cuda" else "cpu")
        try:
            yield
        finally:
            module.device.set_device(before)
    else:
        yield
