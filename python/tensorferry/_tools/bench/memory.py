"""Peak memory of one call, in excess of the memory used before.

On the host the kernel records the peak resident set size of a process, and resets it on request.
Cached memory is released first, so that the call has to allocate. On a GPU the frameworks' own
statistics are used. Resident set sizes are imprecise: calls that use less than 1 MiB cannot be
measured.
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

MIN_MEASURED_BYTES = 1 << 20
TRIES = 2
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def extra_bytes(
    prepare: Callable[[], Callable[[], Any]], frameworks: tuple[str, ...], *, on_gpu: bool
) -> int | None:
    """The peak bytes of a call, the minimum of several tries; None if the system does not tell.

    `prepare` returns the call for each try. Memory that the first call of a method allocates once
    must have been allocated before.
    """
    found = []
    for _ in range(TRIES):
        call = prepare()
        release_caches(frameworks)
        before = _reset_gpu_peaks(frameworks) if on_gpu else {}
        resident = _status("VmRSS")
        if resident is None or not _reset_peak():
            return None
        result = call()
        peak = _status("VmHWM")
        if peak is None:
            return None
        on_gpu_bytes = sum(_gpu_peak(name) - bytes_before for name, bytes_before in before.items())
        del result
        found.append(max(0, peak - resident) + max(0, on_gpu_bytes))
    return min(found)


def release_caches(frameworks: tuple[str, ...]) -> None:
    """Releases the cached memory of the frameworks, of tensorferry and of malloc."""
    gc.collect()
    ferry.empty_cache()
    for name in frameworks:
        with contextlib.suppress(Exception):  # some allocators cannot release memory
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


def _reset_gpu_peaks(frameworks: tuple[str, ...]) -> dict[str, int]:
    """Resets the peak of each framework; the bytes that it uses on the GPU."""
    found = {}
    for name in set(frameworks):
        with contextlib.suppress(Exception):  # a framework without a GPU has no statistics
            found[name] = _reset_peak_bytes(name, load(name))
    return found


def _reset_peak_bytes(name: str, module: Any) -> int:
    if name == "torch":
        module.cuda.reset_peak_memory_stats()
        return int(module.cuda.memory_allocated())
    if name == "tensorflow":
        module.config.experimental.reset_memory_stats("GPU:0")
        return int(module.config.experimental.get_memory_info("GPU:0")["current"])
    return _used_bytes(name, module)


def _gpu_peak(name: str) -> int:
    """The peak of a framework since the reset; its current use if it records no peak."""
    module = load(name)
    if name == "torch":
        return int(module.cuda.max_memory_allocated())
    if name == "tensorflow":
        return int(module.config.experimental.get_memory_info("GPU:0")["peak"])
    return _used_bytes(name, module)


def _used_bytes(name: str, module: Any) -> int:
    if name == "cupy":
        return int(module.get_default_memory_pool().used_bytes())
    if name == "jax":
        return int(module.devices("cuda")[0].memory_stats()["bytes_in_use"])
    if name == "paddle":
        return int(module.device.cuda.memory_allocated())
    raise LookupError(f"{name} has no GPU memory statistics")
