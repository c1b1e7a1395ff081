"""File formats by name, and the names of tensors that are saved alone."""

import os
from typing import Any

from tensorferry._native import InvalidArgumentError

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def decode_path(path: Any) -> str:
    """A path as text."""
    try:
        return os.fsdecode(path)
    except TypeError:
        raise InvalidArgumentError(
            f"path is an object of type {type(path).__name__}, not a path"
            "\nhint: pass a str or a pathlib.Path"
        ) from None


def format_of(path: Any, format: str | None) -> str:
    """The given format, or the one of the file's extension, which may be unknown."""
    extension = os.path.splitext(decode_path(path))[1][1:].lower()
    return format or {"bin": "raw", "json": "safetensors-index"}.get(extension, extension)


def default_name(path: Any, format: str | None) -> str:
    """The name of a tensor that is saved alone, in formats that have names."""
    names = {"npz": "arr_0", "safetensors": "tensor", "safetensors-index": "tensor"}
    return names.get(format_of(path, format), "")
