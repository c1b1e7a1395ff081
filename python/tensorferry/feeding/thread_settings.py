"""Settings of a thread that a feeder takes over from its consumer."""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

__all__ = ["ThreadSettings"]


class ThreadSettings:
    """The settings of the thread that creates it, for another thread to run under.

    Context variables, JAX's x64 and default device, and the current CUDA device. A framework that
    is not imported has no settings, nor has one that another thread is importing.
    """

    def __init__(self) -> None:
        self._context = contextvars.copy_context()
        self._managers = [*_jax_settings(), *_cuda_device()]

    def run(self, function: Callable[[], None]) -> None:
        """Calls the function under the settings. Only once: a context manager enters once."""

        def call() -> None:
            with contextlib.ExitStack() as stack:
                for manager in self._managers:
                    stack.enter_context(manager())
                function()

        self._context.run(call)


Manager = Callable[[], AbstractContextManager[Any]]


def _jax_settings() -> list[Manager]:
    jax: Any = sys.modules.get("jax")
    if not hasattr(jax, "config") or not hasattr(jax, "default_device"):
        return []
    has_x64, device = jax.config.jax_enable_x64, jax.config.jax_default_device
    return [lambda: _enable_x64(jax)(has_x64), lambda: jax.default_device(device)]


def _enable_x64(jax: ModuleType) -> Any:
    """The context manager, which older versions have as an experiment."""
    holder = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
    return holder.enable_x64


def _cuda_device() -> list[Manager]:
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "cuda") and torch.cuda.is_initialized():
        index = torch.cuda.current_device()
        return [lambda: torch.cuda.device(index)]
    cupy: Any = sys.modules.get("cupy")
    if hasattr(cupy, "cuda") and cupy.cuda.is_available():
        index = cupy.cuda.runtime.getDevice()
        return [lambda: cupy.cuda.Device(index)]
    return []
