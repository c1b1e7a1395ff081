"""The most memory that one call takes beyond what was there before.

On the host the kernel keeps the highest count of pages that a process ever had, and resets it when
asked. Idle memory is given back first, by the allocators that can, so that a call that needs memory
has to get it anew. On a GPU the frameworks' own statistics count. Pages are coarse, and some
kernels count them late on each core: below a MiB there is nothing to be seen.
"""

import contextlib
import ctypes
import gc
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorferry as ferry
from tensorferry.framework_register import load

LEAST = 1 << 20
TRIES = 2
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def extra(
    prepare: Callable[[], Callable[[], Any]], frameworks: tuple[str, ...], *, on_gpu: bool
) -> int | None:
    """The bytes that a call took at its peak: the least of a few tries; None where none can tell.

    `prepare` gives the call for each try. What a call sets up once and for all, somebody has to
    have set up before.
    """
    found = []
    for _ in range(TRIES):
        call = prepare()
        give_back(frameworks)
        before = _gpu_before(frameworks) if on_gpu else {}
        resident = _status("VmRSS")
        if resident is None or not _reset_peak():
            return None
        result = call()
        peak = _status("VmHWM")
        if peak is None:
            return None
        there = sum(_gpu_peak(name) - bytes_before for name, bytes_before in before.items())
        del result
        found.append(max(0, peak - resident) + max(0, there))
    return min(found)


def give_back(frameworks: tuple[str, ...]) -> None:
    """Gives back what lies idle."""
    gc.collect()
    ferry.empty_cache()
    for name in frameworks:
        with contextlib.suppress(Exception):  # an allocator that has no such word keeps its memory
            _TRIMS[name](load(name))
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _trim_cupy(cupy: Any) -> None:
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()


_TRIMS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda numpy: None,
    "torch": lambda torch: torch.cuda.is_initialized() and torch.cuda.empty_cache(),
    "cupy": _trim_cupy,
    "jax": lambda jax: None,
    "tensorflow": lambda tf: None,
    "paddle": lambda paddle: paddle.device.cuda.empty_cache(),
    "mlx": lambda mx: mx.clear_cache(),
}


def _status(key: str) -> int | None:
    found = re.search(rf"^{key}:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _reset_peak() -> bool:
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def _gpu_before(frameworks: tuple[str, ...]) -> dict[str, int]:
    """The bytes that each framework uses on the GPU, after its peak was set back to that."""
    found = {}
    for name in set(frameworks):
        with contextlib.suppress(Exception):  # one without a GPU has no statistics of it
            found[name] = _used(name, load(name))
    return found


def _used(name: str, module: Any) -> int:
    if name == "torch":
        module.cuda.reset_peak_memory_stats()
        return int(module.cuda.memory_allocated())
    if name == "tensorflow":
        module.config.experimental.reset_memory_stats("GPU:0")
        return int(module.config.experimental.get_memory_info("GPU:0")["current"])
    return _in_use(name, module)


def _gpu_peak(name: str) -> int:
    """The most that a framework used since; where it does not tell, what it uses now."""
    module = load(name)
    if name == "torch":
        return int(module.cuda.max_memory_allocated())
    if name == "tensorflow":
        return int(module.config.experimental.get_memory_info("GPU:0")["peak"])
    return _in_use(name, module)


def _in_use(name: str, module: Any) -> int:
    if name == "cupy":
        return int(module.get_default_memory_pool().used_bytes())
    if name == "jax":
        return int(module.devices("cuda")[0].memory_stats()["bytes_in_use"])
    if name == "paddle":
        return int(module.device.cuda.memory_allocated())
    raise LookupError(f"{name} has no memory on a GPU")
