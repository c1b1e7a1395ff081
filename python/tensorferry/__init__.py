"""Any tensor, any framework, one call.

`import tensorferry as ferry`, then `ferry.to(x, "torch")`: tensors of NumPy, CuPy, PyTorch, JAX,
TensorFlow, Paddle and MLX, and anything that speaks DLPack, the buffer protocol or an array
interface, become tensors of any of these frameworks, on the CPU and on CUDA GPUs. Memory is shared
when it can be and copied when it must be; `ferry.plan` says beforehand which and why, `ferry.trace`
what did happen.
"""

from tensorferry import tf1
from tensorferry._native import (
    CopyRequired,
    DeviceFailed,
    FerryError,
    FrameworkInfo,
    FrameworkMissing,
    FrameworkRefused,
    InvalidArgument,
    InvalidTensor,
    Memory,
    NotATensor,
    OutOfMemory,
    Parcel,
    Plan,
    TreePlan,
    Trip,
    UnsupportedDevice,
    UnsupportedDType,
    UnsupportedLayout,
    __version__,
    frameworks,
    memory,
    plan,
    register,
    register_tree,
    to,
    trace,
    trim,
)

__all__ = [
    "CopyRequired",
    "DeviceFailed",
    "FerryError",
    "FrameworkInfo",
    "FrameworkMissing",
    "FrameworkRefused",
    "InvalidArgument",
    "InvalidTensor",
    "Memory",
    "NotATensor",
    "OutOfMemory",
    "Parcel",
    "Plan",
    "TreePlan",
    "Trip",
    "UnsupportedDType",
    "UnsupportedDevice",
    "UnsupportedLayout",
    "__version__",
    "frameworks",
    "memory",
    "plan",
    "register",
    "register_tree",
    "tf1",
    "to",
    "trace",
    "trim",
]
