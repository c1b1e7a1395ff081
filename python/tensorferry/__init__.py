"""Any tensor, any framework, one call.

`import tensorferry as ferry`, then `ferry.to(x, "torch")` converts tensors of NumPy, CuPy, PyTorch,
JAX, TensorFlow, Paddle and MLX, and objects that support DLPack, the buffer protocol or an array
interface, to any of these frameworks, on the CPU and on CUDA GPUs. Memory is shared if possible and
copied otherwise; `ferry.plan` explains a conversion beforehand, `ferry.trace` records conversions.
`ferry.publish` and `ferry.attach` share tensors with other processes; `ferry.via`, `ferry.agnostic`
and `ferry.array_namespace` are for functions that accept tensors of any framework.
"""

from typing import TYPE_CHECKING, Any

from tensorferry._native import (
    _C_API as _C_API,
)
from tensorferry._native import (
    BorrowError,
    CopyRequiredError,
    DeadlineError,
    ExportedTensor,
    FerryError,
    File,
    FileFormatError,
    FileTensor,
    FrameworkError,
    FrameworkInfo,
    FrameworkNotFoundError,
    InvalidArgumentError,
    InvalidTensorError,
    MemoryStats,
    NotATensorError,
    OutOfMemoryError,
    Plan,
    Ticket,
    TicketError,
    Trip,
    UnsupportedDTypeError,
    UnsupportedError,
    __version__,
    attach,
    empty_aligned,
    empty_cache,
    empty_shared,
    frameworks,
    memory_stats,
    plan,
    publish,
    register_container,
    register_framework,
    to,
    to_async,
    trace,
)
from tensorferry.array_api.namespace import array_namespace
from tensorferry.files import inspect, load, load_raw, save
from tensorferry.functions.decorators import agnostic, via

if TYPE_CHECKING:
    from tensorferry import arrow, dask, pickling, ray, sparse, tf1
    from tensorferry.extensions import get_include
    from tensorferry.feeding import Feed, FeedStats, feed
    from tensorferry.jobs import CancelledError, Job

__all__ = [
    "BorrowError",
    "CancelledError",
    "CopyRequiredError",
    "DeadlineError",
    "ExportedTensor",
    "Feed",
    "FeedStats",
    "FerryError",
    "File",
    "FileFormatError",
    "FileTensor",
    "FrameworkError",
    "FrameworkInfo",
    "FrameworkNotFoundError",
    "InvalidArgumentError",
    "InvalidTensorError",
    "Job",
    "MemoryStats",
    "NotATensorError",
    "OutOfMemoryError",
    "Plan",
    "Ticket",
    "TicketError",
    "Trip",
    "UnsupportedDTypeError",
    "UnsupportedError",
    "__version__",
    "agnostic",
    "array_namespace",
    "arrow",
    "attach",
    "dask",
    "empty_aligned",
    "empty_cache",
    "empty_shared",
    "feed",
    "frameworks",
    "get_include",
    "inspect",
    "load",
    "load_raw",
    "memory_stats",
    "pickling",
    "plan",
    "publish",
    "ray",
    "register_container",
    "register_framework",
    "save",
    "sparse",
    "tf1",
    "to",
    "to_async",
    "trace",
    "via",
]

#: Names that are imported at first access, to keep the import of the package fast.
_LAZY = {
    "CancelledError": "tensorferry.jobs",
    "Feed": "tensorferry.feeding",
    "FeedStats": "tensorferry.feeding",
    "Job": "tensorferry.jobs",
    "arrow": "tensorferry.arrow",
    "dask": "tensorferry.dask",
    "feed": "tensorferry.feeding",
    "get_include": "tensorferry.extensions",
    "pickling": "tensorferry.pickling",
    "ray": "tensorferry.ray",
    "sparse": "tensorferry.sparse",
    "tf1": "tensorferry.tf1",
}


def __getattr__(name: str) -> Any:
    """Imports a public name at its first access."""
    if name not in _LAZY:
        raise AttributeError(f"module 'tensorferry' has no attribute {name!r}")
    import importlib

    module = importlib.import_module(_LAZY[name])
    value = getattr(module, name, module)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
