"""Reading tensors from files: `inspect`, `load` and `load_raw`.

`load` maps the file wherever a framework can use memory as it is, so that nothing is read before it
is used; writes to such a tensor stay in the process. Files are never trusted, and nothing in them
is executed.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from operator import index
from types import ModuleType
from typing import TYPE_CHECKING, Any, SupportsIndex

from tensorferry._native import File, InvalidArgumentError, UnsupportedDTypeError
from tensorferry.files.formats import Path, decode_path, format_of
from tensorferry.files.selection import select_names
from tensorferry.files.trees import nest, rebuild

if TYPE_CHECKING:
    from typing import Literal, TypedDict, Unpack, overload

    from tensorferry._framework_types import (
        JaxArray,
        JaxName,
        MlxArray,
        MlxName,
        NumpyArray,
        NumpyName,
        PaddleName,
        PaddleTensor,
        TorchName,
        TorchTensor,
    )

    class _Options(TypedDict, total=False):
        device: Any
        mmap: bool
        copy: bool | None
        writable: bool | None
        stream: Any
        budget: int | None

    class _NestedOptions(_Options, total=False):
        dtype: Any
        dialect: str | None
        max_decompressed_bytes: int | None

    class _LoadOptions(_NestedOptions, total=False):
        nested: Literal[False]

    # Whether `load` returns one tensor or a dict of tensors depends on the file. `names` or
    # `format` may determine it; otherwise the result is Any. So it is for one str, which may be a
    # name or a pattern. An Iterable of names may be one str, so only collections that cannot be a
    # str count as several names.
    _Names = list[str] | tuple[str, ...] | set[str] | frozenset[str]
    _SingleFormat = Literal["npy", "tensorproto"]
    _NamedFormat = Literal["npz", "safetensors", "safetensors-index"]


def inspect(
    path: Path,
    *,
    format: str | None = None,
    dtype: Any = None,
    shape: int | Sequence[int] | None = None,
    dialect: str | None = None,
    max_decompressed_bytes: int | None = None,
) -> File:
    """Reads and validates the headers of a file, and lists its tensors.

    Args:
        path: The file.
        format: "npy", "npz", "safetensors", "safetensors-index", "tensorproto" or "raw"; detected
            by default.
        dtype: The element type of raw bytes, and of .npy files whose header cannot name the type,
            such as float8.
        shape: The shape of raw bytes; one dimension by default.
        dialect: The TensorProto message type, "onnx" or "tensorflow"; detected by default.
        max_decompressed_bytes: The maximum size of decompressed data; by default 4 GiB or 100 times
            the size of the file, whichever is larger.

    Returns:
        A File with `format`, `tensors` (name, dtype, shape, bytes), `metadata` and `skipped`
        (entries that cannot be converted).

    Raises:
        FileFormatError: The file violates its format.
        OSError: The file cannot be opened or read.

    Example:
        >>> ferry.save(f"{folder}/x.npz", {"a": np.ones(2)})
        >>> ferry.inspect(f"{folder}/x.npz").format
        'npz'
    """
    name = decode_path(path)
    options: dict[str, Any] = {"format": format, "dtype": dtype, "shape": _parse_shape(shape)}
    options |= {"dialect": dialect}
    options |= {"max_decompressed_bytes": _parse_limit(max_decompressed_bytes)}
    while True:
        before = _identity(name)
        try:
            return File(name, **options)
        except FileNotFoundError:
            # The files of an index are removed when another index replaces it: try the new one.
            if before is None or before == _identity(name):
                raise


def _identity(path: str) -> tuple[int, ...] | None:
    """Identifies the file that has this path now; None if it does not exist."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # a path with a NUL byte is a ValueError
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


if TYPE_CHECKING:

    @overload
    def load(
        path: Path,
        framework: str | ModuleType = "numpy",
        *,
        names: str,
        format: str | None = None,
        **options: Unpack[_LoadOptions],
    ) -> Any: ...
    @overload
    def load(
        path: Path,
        framework: str | ModuleType = "numpy",
        *,
        nested: Literal[True],
        names: None = None,
        format: str | None = None,
        **options: Unpack[_NestedOptions],
    ) -> Any: ...
    @overload
    def load(
        path: Path,
        framework: str | ModuleType = "numpy",
        *,
        names: _Names,
        format: str | None = None,
        **options: Unpack[_LoadOptions],
    ) -> dict[str, Any]: ...
    @overload
    def load(
        path: Path,
        framework: NumpyName = "numpy",
        *,
        names: None = None,
        format: _SingleFormat,
        **options: Unpack[_LoadOptions],
    ) -> NumpyArray: ...
    @overload
    def load(
        path: Path,
        framework: TorchName,
        *,
        names: None = None,
        format: _SingleFormat,
        **options: Unpack[_LoadOptions],
    ) -> TorchTensor: ...
    @overload
    def load(
        path: Path,
        framework: JaxName,
        *,
        names: None = None,
        format: _SingleFormat,
        **options: Unpack[_LoadOptions],
    ) -> JaxArray: ...
    @overload
    def load(
        path: Path,
        framework: PaddleName,
        *,
        names: None = None,
        format: _SingleFormat,
        **options: Unpack[_LoadOptions],
    ) -> PaddleTensor: ...
    @overload
    def load(
        path: Path,
        framework: MlxName,
        *,
        names: None = None,
        format: _SingleFormat,
        **options: Unpack[_LoadOptions],
    ) -> MlxArray: ...
    @overload
    def load(
        path: Path,
        framework: str | ModuleType = "numpy",
        *,
        names: None = None,
        format: _NamedFormat,
        **options: Unpack[_LoadOptions],
    ) -> dict[str, Any]: ...
    @overload
    def load(
        path: Path,
        framework: str | ModuleType = "numpy",
        *,
        names: str | Iterable[str] | None = None,
        nested: bool = False,
        format: str | None = None,
        **options: Unpack[_NestedOptions],
    ) -> Any: ...


def load(
    path: Path,
    framework: str | ModuleType = "numpy",
    *,
    device: Any = None,
    dtype: Any = None,
    mmap: bool = True,
    names: str | Iterable[str] | None = None,
    nested: bool = False,
    format: str | None = None,
    dialect: str | None = None,
    max_decompressed_bytes: int | None = None,
    **options: Any,
) -> Any:
    """Loads the tensors of a file into a framework.

    Args:
        path: The file.
        framework: The framework of the results.
        device: The device of the results; a mapped file is read while it is uploaded to a GPU.
        dtype: The element type of the results.
        mmap: Whether to map the file into memory; it must not be truncated while tensors use it.
        names: The tensors to read, by names and by patterns such as "layers.0.*" (`fnmatch`); all
            by default. One name gives one tensor, one pattern a dict.
        nested: Whether to return the tree that was saved. A safetensors file of `save` keeps it,
            with its numbers and text. Other files give nested dicts by the dots in the names: a
            list then is a dict with the keys "0", "1" and so on.
        format: The file's format; detected by default.
        dialect: The TensorProto message type, "onnx" or "tensorflow"; detected by default.
        max_decompressed_bytes: The maximum size of decompressed data, as for `inspect`.
        options: `copy`, `writable`, `stream` and `budget`, as for `to`.

    Returns:
        One tensor for files that hold one (.npy, TensorProto) and for one name; with `nested` a
        tree; otherwise a dict of tensors by name.

    Raises:
        FileFormatError: The file violates its format.
        InvalidArgumentError: The file has no tensor of that name, or holds raw bytes; use
            `load_raw`.
        OSError: The file cannot be opened or read.

    Example:
        >>> ferry.save(f"{folder}/x.npy", np.arange(3))
        >>> ferry.load(f"{folder}/x.npy", "torch").tolist()
        [0, 1, 2]
        >>> ferry.save(f"{folder}/m.npz", {"layers": [{"w": np.ones(2), "b": np.ones(1)}]})
        >>> sorted(ferry.load(f"{folder}/m.npz", names="layers.0.*"))
        ['layers.0.b', 'layers.0.w']
    """
    name = decode_path(path)
    if format_of(path, format) == "raw":
        # Checkpoints of PyTorch are often named .bin: the error about the content comes first.
        with suppress(InvalidArgumentError):
            inspect(path, format=format)
        raise InvalidArgumentError(
            f"{name} holds raw bytes without a type and a shape"
            "\nhint: write ferry.load_raw(path, framework, dtype=..., shape=...)"
        )
    limits: dict[str, Any] = {"dialect": dialect, "max_decompressed_bytes": max_decompressed_bytes}
    try:
        file = inspect(path, format=format, **limits)
    except UnsupportedDTypeError:
        if dtype in (None, "default"):
            raise
        # A type that the file cannot name may be the requested one.
        file = inspect(path, format=format, dtype=dtype, **limits)
    options |= {"device": device, "dtype": dtype}
    if nested and names is not None:
        raise InvalidArgumentError(
            f"{name}: nested=True loads the whole tree, and names= selects tensors"
            "\nhint: pass only one of the two"
        )
    if file.is_single:
        if names is not None:
            raise InvalidArgumentError(
                f"{name} holds one tensor without a name\nhint: leave names out"
            )
        return file.load(file.tensors[0].name, framework, mmap, **options)
    if names is None and file.skipped:
        skipped, reason = file.skipped[0]
        raise UnsupportedDTypeError(
            f"{name}: {skipped!r} cannot be converted: {reason.splitlines()[0]}"
            "\nhint: pass names= without it" + (", and leave out nested=True" if nested else "")
        )
    chosen = select_names(file, names)
    if isinstance(names, str) and chosen == [names]:
        return file.load(names, framework, mmap, **options)
    tensors = file.load_several(chosen, framework, mmap, **options)
    if not nested:
        return tensors
    return nest(tensors, name) if file._tree is None else rebuild(file._tree, tensors, name)


if TYPE_CHECKING:

    @overload
    def load_raw(
        path: Path,
        framework: NumpyName = "numpy",
        *,
        dtype: Any,
        shape: int | Sequence[int] | None = None,
        **options: Unpack[_Options],
    ) -> NumpyArray: ...
    @overload
    def load_raw(
        path: Path,
        framework: TorchName,
        *,
        dtype: Any,
        shape: int | Sequence[int] | None = None,
        **options: Unpack[_Options],
    ) -> TorchTensor: ...
    @overload
    def load_raw(
        path: Path,
        framework: JaxName,
        *,
        dtype: Any,
        shape: int | Sequence[int] | None = None,
        **options: Unpack[_Options],
    ) -> JaxArray: ...
    @overload
    def load_raw(
        path: Path,
        framework: PaddleName,
        *,
        dtype: Any,
        shape: int | Sequence[int] | None = None,
        **options: Unpack[_Options],
    ) -> PaddleTensor: ...
    @overload
    def load_raw(
        path: Path,
        framework: MlxName,
        *,
        dtype: Any,
        shape: int | Sequence[int] | None = None,
        **options: Unpack[_Options],
    ) -> MlxArray: ...
    @overload
    def load_raw(
        path: Path,
        framework: str | ModuleType = "numpy",
        *,
        dtype: Any,
        shape: int | Sequence[int] | None = None,
        **options: Unpack[_Options],
    ) -> Any: ...


def load_raw(
    path: Path,
    framework: str | ModuleType = "numpy",
    *,
    dtype: Any,
    shape: int | Sequence[int] | None = None,
    device: Any = None,
    mmap: bool = True,
    **options: Any,
) -> Any:
    """Loads a file of raw bytes into a framework, as one tensor.

    Args:
        path: The file. Its whole content is the tensor, in row-major order.
        framework: The framework of the result.
        dtype: The element type of the bytes, and of the result.
        shape: The shape of the tensor; one dimension by default.
        device: The device of the result; a mapped file is read while it is uploaded to a GPU.
        mmap: Whether to map the file into memory; it must not be truncated while tensors use it.
        options: `copy`, `writable`, `stream` and `budget`, as for `to`.

    Returns:
        A tensor of the framework.

    Raises:
        FileFormatError: The file's size does not match the type and shape.
        InvalidArgumentError: The type or the shape is invalid.
        OSError: The file cannot be opened or read.

    Example:
        >>> np.arange(6, dtype="int16").tofile(f"{folder}/x.bin")
        >>> ferry.load_raw(f"{folder}/x.bin", "torch", dtype="int16", shape=(2, 3)).tolist()
        [[0, 1, 2], [3, 4, 5]]
    """
    file = inspect(path, format="raw", dtype=dtype, shape=shape)
    return file.load(file.tensors[0].name, framework, mmap, device=device, **options)


def _parse_shape(shape: Any) -> list[int] | None:
    if shape is None:
        return None
    lengths = list(shape) if isinstance(shape, Iterable) else [shape]
    if not all(isinstance(x, SupportsIndex) and 0 <= index(x) < 1 << 63 for x in lengths):
        raise InvalidArgumentError(
            f"{shape!r} is not a shape\nhint: write lengths, such as (480, 640)"
        )
    return [index(length) for length in lengths]


def _parse_limit(given: Any) -> int | None:
    if given is None or (isinstance(given, SupportsIndex) and 0 <= index(given) < 1 << 64):
        return None if given is None else index(given)
    raise InvalidArgumentError(
        f"max_decompressed_bytes is {given!r}, not a number of bytes"
        "\nhint: leave it out, or pass a number such as 8 * 10**9"
    )
