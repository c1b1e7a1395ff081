"""Reading tensors without tensorferry: an inspector for each framework."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from support.capsules import Peek, dense_strides, peek
from support.dtypes import NAMED, DType


def _here(name: str) -> Any:
    """A framework, where it is installed: the tests on a GPU take what there is. (Those on the host
    need all of them, and load them first.)"""
    found = importlib.util.find_spec(name.partition(".")[0])
    return importlib.import_module(name) if found else None


paddle = _here("paddle")
mx = _here("mlx.core")
cupy = _here("cupy")
jax = _here("jax")
jnp = _here("jax.numpy")
tf = _here("tensorflow")

FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow", "paddle", "mlx")

TYPES = {
    "numpy": np.ndarray,
    "torch": torch.Tensor,
    "cupy": cupy and cupy.ndarray,
    "jax": jax and jax.Array,
    "tensorflow": tf and tf.Tensor,
    "paddle": paddle and paddle.Tensor,
    "mlx": mx and mx.array,
}


@contextlib.contextmanager
def x64(on: bool):
    """JAX with 64-bit types on or off."""
    if hasattr(jax, "enable_x64"):
        context = jax.enable_x64(on)
    else:
        from jax.experimental import enable_x64

        context = enable_x64(on)
    with context:
        yield


class NumpyInspector:
    """A NumPy array."""

    @staticmethod
    def dtype(x: np.ndarray) -> str:
        return x.dtype.name

    @staticmethod
    def shape(x: np.ndarray) -> tuple[int, ...]:
        return x.shape

    @staticmethod
    def address(x: np.ndarray) -> int:
        return x.__array_interface__["data"][0]

    @staticmethod
    def strides(x: np.ndarray) -> tuple[int, ...]:
        return x.strides

    @staticmethod
    def values(x: np.ndarray) -> bytes:
        raw = x.tobytes()
        if x.dtype.byteorder != ">" or x.dtype.itemsize == 1:
            return raw
        unit = x.dtype.itemsize // (2 if x.dtype.kind == "c" else 1)
        return np.frombuffer(raw, f"u{unit}").byteswap().tobytes()


class TorchInspector:
    """A torch tensor."""

    @staticmethod
    def dtype(x: torch.Tensor) -> str:
        return str(x.dtype).removeprefix("torch.")

    @staticmethod
    def shape(x: torch.Tensor) -> tuple[int, ...]:
        return tuple(x.shape)

    @staticmethod
    def address(x: torch.Tensor) -> int:
        return x.data_ptr()

    @staticmethod
    def strides(x: torch.Tensor) -> tuple[int, ...]:
        return tuple(step * x.element_size() for step in x.stride())

    @staticmethod
    def values(x: torch.Tensor) -> bytes:
        plain = x.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        return plain.view(torch.uint8).cpu().numpy().tobytes()


class CupyInspector:
    """A CuPy array."""

    @staticmethod
    def dtype(x: cupy.ndarray) -> str:
        return x.dtype.name

    @staticmethod
    def shape(x: cupy.ndarray) -> tuple[int, ...]:
        return x.shape

    @staticmethod
    def address(x: cupy.ndarray) -> int:
        return x.data.ptr

    @staticmethod
    def strides(x: cupy.ndarray) -> tuple[int, ...]:
        return x.strides

    @staticmethod
    def values(x: cupy.ndarray) -> bytes:
        return x.get().tobytes()


class JaxInspector:
    """A JAX array."""

    @staticmethod
    def dtype(x: jax.Array) -> str:
        return x.dtype.name

    @staticmethod
    def shape(x: jax.Array) -> tuple[int, ...]:
        return x.shape

    @staticmethod
    def address(x: jax.Array) -> int:
        return x.unsafe_buffer_pointer()

    @staticmethod
    def strides(x: jax.Array) -> tuple[int, ...] | None:
        seen = JaxInspector._peek(x)
        return None if seen is None else seen.strides

    @staticmethod
    def _peek(x: jax.Array) -> Peek | None:
        """What its capsule says; packed types have none, and in older versions float8 has none."""
        try:
            return peek(x.__dlpack__())
        except RuntimeError as error:
            if "has no DLPack equivalent" not in str(error):
                raise
            return None

    @staticmethod
    def values(x: jax.Array) -> bytes:
        return np.asarray(x).tobytes()

    @staticmethod
    def values_now(x: jax.Array) -> bytes:
        """The memory itself: `np.asarray` of a JAX array may be a copy that JAX keeps."""
        if next(iter(x.devices())).platform == "gpu":
            return TorchInspector.values(torch.from_dlpack(x))
        seen = None if NAMED[x.dtype.name].is_narrow else JaxInspector._peek(x)
        if seen is None:
            return JaxInspector.values(x)
        size = x.dtype.itemsize
        if 0 in seen.shape:
            return b""
        reach = size + sum((n - 1) * step for n, step in zip(seen.shape, seen.strides, strict=True))
        memory = (ctypes.c_ubyte * reach).from_address(seen.address)
        return np.ndarray(seen.shape, f"V{size}", memory, strides=seen.strides).tobytes()


class TensorFlowInspector:
    """An eager TensorFlow tensor."""

    @staticmethod
    def dtype(x: tf.Tensor) -> str:
        return x.dtype.name

    @staticmethod
    def shape(x: tf.Tensor) -> tuple[int, ...]:
        return tuple(x.shape)

    @staticmethod
    def address(x: tf.Tensor) -> int:
        # TensorFlow has no public word for it. This array is over the tensor's own memory for every
        # dtype, but a scalar comes as a number and 65 dimensions do not come at all: a flat tensor
        # over the same memory has the address too.
        if "GPU" in x.backing_device:
            return peek(tf.experimental.dlpack.to_dlpack(x)).address
        plain = x if 0 < x.shape.rank <= 64 else tf.reshape(x, [-1])
        return plain._numpy_internal().ctypes.data

    @staticmethod
    def strides(x: tf.Tensor) -> tuple[int, ...]:
        return dense_strides(tuple(x.shape), NAMED[x.dtype.name].size)

    @staticmethod
    def values(x: tf.Tensor) -> bytes:
        return x.numpy().tobytes()

    @staticmethod
    def values_now(x: tf.Tensor) -> bytes:
        """The memory itself: TensorFlow keeps what it has brought home from a GPU once."""
        if "GPU" not in x.backing_device:
            return TensorFlowInspector.values(x)
        return TorchInspector.values(torch.from_dlpack(tf.experimental.dlpack.to_dlpack(x)))


class PaddleInspector:
    """A Paddle tensor."""

    @staticmethod
    def dtype(x: paddle.Tensor) -> str:
        return str(x.dtype).removeprefix("paddle.")

    @staticmethod
    def shape(x: paddle.Tensor) -> tuple[int, ...]:
        return tuple(x.shape)

    @staticmethod
    def address(x: paddle.Tensor) -> int:
        return x.data_ptr()

    @staticmethod
    def strides(x: paddle.Tensor) -> tuple[int, ...]:
        return tuple(step * NAMED[PaddleInspector.dtype(x)].size for step in x.strides)

    @staticmethod
    def values(x: paddle.Tensor) -> bytes:
        # bfloat16 arrives as uint16 and float8 as int8: the bytes are what counts.
        return x.detach().numpy().tobytes()


class MlxInspector:
    """An MLX array."""

    @staticmethod
    def dtype(x: mx.array) -> str:
        return str(x.dtype).removeprefix("mlx.core.").removesuffix("_")

    @staticmethod
    def shape(x: mx.array) -> tuple[int, ...]:
        return tuple(x.shape)

    @staticmethod
    def address(x: mx.array) -> int:
        return MlxInspector._peek(x).address

    @staticmethod
    def strides(x: mx.array) -> tuple[int, ...]:
        return MlxInspector._peek(x).strides

    @staticmethod
    def _peek(x: mx.array) -> Peek:
        # Older versions export no bfloat16; its bits have the same memory and strides.
        return peek((x.view(mx.uint16) if x.dtype == mx.bfloat16 else x).__dlpack__())

    @staticmethod
    def values(x: mx.array) -> bytes:
        if x.dtype == mx.bfloat16:
            x = mx.contiguous(x).view(mx.uint16)
        return np.array(x).tobytes()


INSPECTORS: dict[str, Any] = {
    "numpy": NumpyInspector,
    "torch": TorchInspector,
    "cupy": CupyInspector,
    "jax": JaxInspector,
    "tensorflow": TensorFlowInspector,
    "paddle": PaddleInspector,
    "mlx": MlxInspector,
}


def check_tensor(framework: str, x: Any, values: np.ndarray) -> None:
    """Checks that x is a tensor of the framework, and its type, its shape and its bits."""
    look = INSPECTORS[framework]
    assert isinstance(x, TYPES[framework])
    assert look.dtype(x) == values.dtype.name
    assert look.shape(x) == values.shape
    assert look.values(x) == values.tobytes()


def values_now(framework: str, x: Any) -> bytes:
    """The values as they are in memory at this moment."""
    look = INSPECTORS[framework]
    return getattr(look, "values_now", look.values)(x)


def torch_dtype(dtype: DType) -> torch.dtype | None:
    """PyTorch's own type; its 4-bit types are names without operations and count as missing."""
    return None if dtype.is_narrow else getattr(torch, dtype.name, None)


def has_dtype(framework: str, dtype: DType) -> bool:
    """Whether this version of the framework holds the type and exchanges it with others."""
    return dtype.name in _dtypes_of(framework)


_found: dict[str, frozenset[str]] = {}


def _dtypes_of(framework: str) -> frozenset[str]:
    if framework not in _found:
        _found[framework] = frozenset(name for name in NAMED if _ASK[framework](NAMED[name]))
    return _found[framework]


def _exports(make: Callable[[], object]) -> bool:
    """Whether a framework's own DLPack takes one of its own tensors. Older versions of PyTorch
    and JAX have 8-bit floats and do not."""
    try:
        make()
    except RuntimeError as error:
        if "DLPack" not in str(error) and "dlpack" not in str(error):
            raise
        return False
    return True


def names_dtype(framework: str, dtype: DType) -> bool:
    """Whether this version of PyTorch or JAX has such tensors, exchanged or not."""
    if framework == "torch":
        return torch_dtype(dtype) is not None
    # float6 has a name in some versions of JAX and no memory in any.
    return dtype.name not in ("float6_e2m3fn", "float6_e3m2fn") and hasattr(jnp, dtype.name)


def _ask_torch(dtype: DType) -> bool:
    own = torch_dtype(dtype)
    return own is not None and _exports(
        lambda: torch.utils.dlpack.to_dlpack(torch.zeros(1, dtype=own))
    )


def _ask_cupy(dtype: DType) -> bool:
    """NumPy's own, and from version 14 on bfloat16. (It has arrays of a float8 or two, by accident,
    and exchanges none.)"""
    if dtype.is_numpys_own:
        return True
    try:
        return dtype.name == "bfloat16" and cupy.zeros(1, dtype.numpy).dtype == dtype.numpy
    except (TypeError, ValueError, NotImplementedError):
        return False


def _ask_jax(dtype: DType) -> bool:
    if not names_dtype("jax", dtype):
        return False
    is_float8 = dtype.kind == "float" and dtype.bits == 8
    return not is_float8 or _exports(lambda: jnp.zeros(1, dtype.numpy).__dlpack__())


def _ask_tensorflow(dtype: DType) -> bool:
    return hasattr(
        tf if dtype.is_numpys_own or dtype.name == "bfloat16" else tf.dtypes.experimental,
        dtype.name,
    )


def _ask_paddle(dtype: DType) -> bool:
    """Paddle has names for types whose tensors it cannot make, and takes some types as others:
    try."""
    own = torch_dtype(dtype)
    if own is None:
        return False
    try:
        made = paddle.utils.dlpack.from_dlpack(
            torch.utils.dlpack.to_dlpack(torch.zeros(2, dtype=own))
        )
        return (
            PaddleInspector.dtype(made) == dtype.name
            and len(PaddleInspector.values(made)) == 2 * dtype.size
        )
    except (RuntimeError, NotImplementedError, TypeError, BufferError, ValueError):
        return False


_ASK = {
    "numpy": lambda dtype: True,
    "torch": _ask_torch,
    "cupy": _ask_cupy,
    "jax": _ask_jax,
    "tensorflow": _ask_tensorflow,
    "paddle": _ask_paddle,
    "mlx": lambda dtype: hasattr(mx, "bool_" if dtype.name == "bool" else dtype.name),
}
