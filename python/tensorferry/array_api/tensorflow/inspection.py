"""The properties of the namespace: `xp.__array_namespace_info__()`."""

from __future__ import annotations

from typing import Any

from tensorferry.array_api.tensorflow import dtypes
from tensorferry.array_api.tensorflow.tensors import DType, tf


class NamespaceInfo:
    """The inspection functions of the standard."""

    def capabilities(self) -> dict[str, Any]:
        """The capabilities. Most TensorFlow operations support up to eight dimensions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}

    def default_device(self) -> str:
        """TensorFlow's default device: the first GPU, if there is one."""
        found = [device for device in self.devices() if "GPU" in device]
        return found[0] if found else self.devices()[0]

    def devices(self) -> list[str]:
        """The CPU and the GPUs, by TensorFlow's names."""
        return [
            device.name
            for device in tf.config.list_logical_devices()
            if device.device_type in ("CPU", "GPU")
        ]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """The default types of Python numbers and of indices."""
        return {
            "real floating": dtypes.DEFAULT_FLOAT,
            "complex floating": dtypes.DEFAULT_COMPLEX,
            "integral": dtypes.DEFAULT_INTEGER,
            "indexing": dtypes.int64,
        }

    def dtypes(
        self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """The standard's types by name; optionally of one or several kinds."""
        order = (
            dtypes.bool,
            *dtypes.SIGNED,
            *dtypes.UNSIGNED,
            dtypes.float32,
            dtypes.float64,
            *dtypes.COMPLEXES,
        )
        return {dtype.name: dtype for dtype in order if kind is None or dtypes.isdtype(dtype, kind)}


def __array_namespace_info__() -> NamespaceInfo:  # noqa: N807 (the standard's name)
    """Devices, types and capabilities."""
    return NamespaceInfo()
