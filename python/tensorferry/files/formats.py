"""File formats by name, and the names of tensors that are saved alone."""

import os
from typing import Any

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def format_of(path: Any, format: str | None) -> str:
    """The given format, or the one of the file's extension, which may be unknown."""
    extension = os.path.splitext(os.fsdecode(path))[1][1:].lower()
    return format or {"bin": "raw", "json": "safetensors-index"}.get(extension, extension)


def default_name(path: Any, format: str | None) -> str:
    """The name of a tensor that is saved alone, in formats that have names."""
    names = {"npz": "arr_0", "safetensors": "tensor", "safetensors-index": "tensor"}
    return names.get(format_of(path, format), "")
