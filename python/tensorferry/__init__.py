"""Any tensor, any framework, one call.

`import tensorferry as ferry`, then `ferry.to(x, "torch")`: tensors of NumPy, CuPy, PyTorch, JAX,
TensorFlow, Paddle and MLX, and anything that speaks DLPack, the buffer protocol or an array
interface, become tensors of any of these frameworks, on the CPU and on CUDA GPUs. Memory is shared
when it can be and copied when it must be; `ferry.plan` says beforehand which and why, `ferry.trace`
what did happen. `ferry.publish` and `ferry.attach` hand them to other processes; `ferry.via`,
`ferry.agnostic` and `ferry.namespace` are for functions that take anybody's.
"""

from typing import TYPE_CHECKING, Any

from tensorferry._native import (
    BadFile,
    Cancelled,
    CopyRequired,
    DeviceFailed,
    FerryError,
    File,
    FileFailed,
    FileTensor,
    FrameworkInfo,
    FrameworkMissing,
    FrameworkRefused,
    InvalidArgument,
    InvalidTensor,
    Job,
    Memory,
    NotATensor,
    OutOfMemory,
    Parcel,
    Plan,
    Ticket,
    TicketRefused,
    TimedOut,
    TreePlan,
    Trip,
    UnsupportedDevice,
    UnsupportedDType,
    UnsupportedLayout,
    __version__,
    attach,
    empty,
    frameworks,
    memory,
    plan,
    publish,
    register,
    register_tree,
    start,
    to,
    trace,
    trim,
)
from tensorferry.decorators import agnostic, via
from tensorferry.files import inspect, load, save
from tensorferry.namespace import namespace

if TYPE_CHECKING:
    from tensorferry import tf1

__all__ = [
    "BadFile",
    "Cancelled",
    "CopyRequired",
    "DeviceFailed",
    "FerryError",
    "File",
    "FileFailed",
    "FileTensor",
    "FrameworkInfo",
    "FrameworkMissing",
    "FrameworkRefused",
    "InvalidArgument",
    "InvalidTensor",
    "Job",
    "Memory",
    "NotATensor",
    "OutOfMemory",
    "Parcel",
    "Plan",
    "Ticket",
    "TicketRefused",
    "TimedOut",
    "TreePlan",
    "Trip",
    "UnsupportedDType",
    "UnsupportedDevice",
    "UnsupportedLayout",
    "__version__",
    "agnostic",
    "attach",
    "empty",
    "frameworks",
    "inspect",
    "load",
    "memory",
    "namespace",
    "plan",
    "publish",
    "register",
    "register_tree",
    "save",
    "start",
    "tf1",
    "to",
    "trace",
    "trim",
    "via",
]


def __getattr__(name: str) -> Any:
    """`tf1` is imported when somebody asks for it, to keep the import of the package quick."""
    if name == "tf1":
        import importlib

        return importlib.import_module("tensorferry.tf1")
    raise AttributeError(f"module 'tensorferry' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "tf1"})
