"""Any tensor, any framework, one call.

`import tensorferry as ferry`, then `ferry.to(x, "torch")`: tensors of NumPy, PyTorch, JAX,
TensorFlow, Paddle and MLX, and anything that speaks DLPack, the buffer protocol or the array
interface, become tensors of any of these frameworks. Memory is shared when it can be and copied
when it must be; `ferry.plan` says beforehand which and why, `ferry.trace` what did happen.
"""

from tensorferry._native import (
    CopyRequired,
    FerryError,
    FrameworkInfo,
    FrameworkMissing,
    FrameworkRefused,
    InvalidArgument,
    InvalidTensor,
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
    plan,
    register,
    register_tree,
    to,
    trace,
)

__all__ = [
    "CopyRequired",
    "FerryError",
    "FrameworkInfo",
    "FrameworkMissing",
    "FrameworkRefused",
    "InvalidArgument",
    "InvalidTensor",
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
    "plan",
    "register",
    "register_tree",
    "to",
    "trace",
]
