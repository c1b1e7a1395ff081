"""Tensors in files: `.npy`, `.npz`, safetensors, TensorProto and raw bytes.

`load` maps the file wherever a framework can use memory as it is, so that nothing is read before it
is used; what is written to such a tensor stays in the process. `save` writes a new file beside the
old one and puts it in its place when every byte is there. Files are never trusted, and nothing in
them is executed.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import index
from types import ModuleType
from typing import TYPE_CHECKING, Any, SupportsIndex

from tensorferry._native import (
    File,
    InvalidArgumentError,
    NotATensorError,
    Plan,
    UnsupportedDTypeError,
    classify,
    plan,
)

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

    class _LoadOptions(_Options, total=False):
        dtype: Any
        dialect: str | None
        max_decompressed_bytes: int | None

    # Whether `load` returns one tensor or a dict of them depends on the file. Its type is known
    # where `names` or `format` says it; otherwise the result is Any. An Iterable of names may be
    # one str, so only collections that cannot be are taken for several names.
    _Names = list[str] | tuple[str, ...] | set[str] | frozenset[str]
    _SingleFormat = Literal["npy", "tensorproto"]
    _NamedFormat = Literal["npz", "safetensors", "safetensors-index"]

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def inspect(
    path: Path,
    *,
    format: str | None = None,
    dtype: Any = None,
    shape: int | Sequence[int] | None = None,
    dialect: str | None = None,
    max_decompressed_bytes: int | None = None,
) -> File:
    """Reads and checks the headers of a file, and says what is in it.

    Args:
        path: The file.
        format: "npy", "npz", "safetensors", "safetensors-index", "tensorproto" or "raw"; found out
            if left out.
        dtype: The element type of raw bytes, and of .npy files by others whose type has no name
            there, such as float8.
        shape: The shape of raw bytes; one dimension if left out.
        dialect: Whose TensorProto it is, "onnx" or "tensorflow"; found out if left out.
        max_decompressed_bytes: The most bytes that compressed data may become; 4 GiB, or a hundred
            times the file's size, if left out.

    Returns:
        A File: its `format`, `tensors` (name, dtype, shape, bytes), `metadata`, and what is
        `skipped` because it cannot be carried.

    Raises:
        FileFormatError: The file breaks the rules of its format.
        OSError: The system refused the file.

    Example:
        >>> ferry.save(f"{folder}/x.npz", {"a": np.ones(2)})
        >>> ferry.inspect(f"{folder}/x.npz").format
        'npz'
    """
    name = os.fsdecode(path)
    told: dict[str, Any] = {"format": format, "dtype": dtype, "shape": _lengths(shape)}
    told |= {"dialect": dialect, "max_decompressed_bytes": max_decompressed_bytes}
    while True:
        before = _identity(name)
        try:
            return File(name, **told)
        except FileNotFoundError:
            # The files behind an index are gone when another index has taken its place.
            if before is None or before == _identity(name):
                raise


def _identity(path: str) -> tuple[int, ...] | None:
    """Which file is there now, if any."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


if TYPE_CHECKING:

    @overload
    def load(
        path: Path,
        framework: NumpyName = "numpy",
        *,
        names: str,
        format: str | None = None,
        **options: Unpack[_LoadOptions],
    ) -> NumpyArray: ...
    @overload
    def load(
        path: Path,
        framework: TorchName,
        *,
        names: str,
        format: str | None = None,
        **options: Unpack[_LoadOptions],
    ) -> TorchTensor: ...
    @overload
    def load(
        path: Path,
        framework: JaxName,
        *,
        names: str,
        format: str | None = None,
        **options: Unpack[_LoadOptions],
    ) -> JaxArray: ...
    @overload
    def load(
        path: Path,
        framework: PaddleName,
        *,
        names: str,
        format: str | None = None,
        **options: Unpack[_LoadOptions],
    ) -> PaddleTensor: ...
    @overload
    def load(
        path: Path,
        framework: MlxName,
        *,
        names: str,
        format: str | None = None,
        **options: Unpack[_LoadOptions],
    ) -> MlxArray: ...
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
        format: str | None = None,
        **options: Unpack[_LoadOptions],
    ) -> Any: ...


def load(
    path: Path,
    framework: str | ModuleType = "numpy",
    *,
    device: Any = None,
    dtype: Any = None,
    mmap: bool = True,
    names: str | Iterable[str] | None = None,
    format: str | None = None,
    dialect: str | None = None,
    max_decompressed_bytes: int | None = None,
    **wishes: Any,
) -> Any:
    """Carries tensors from a file to a framework.

    Args:
        path: The file.
        framework: The framework of the results.
        device: The device of the results; a mapped file is read while it is uploaded to a GPU.
        dtype: The element type of the results.
        mmap: Whether memory may be a map of the file, which others must not shorten meanwhile.
        names: Which tensors, by name; only these are read. One name gives one tensor.
        format: The file's format; found out if left out.
        dialect: Whose TensorProto it is, "onnx" or "tensorflow"; found out if left out.
        max_decompressed_bytes: The most bytes that compressed data may become.
        wishes: `copy`, `writable`, `stream` and `budget`, as for `to`.

    Returns:
        One tensor for files that hold one (.npy, TensorProto) and for one name; otherwise a dict of
        tensors by name.

    Raises:
        FileFormatError: The file breaks the rules of its format.
        InvalidArgumentError: The file holds raw bytes, for which there is `load_raw`.
        OSError: The system refused the file.

    Example:
        >>> ferry.save(f"{folder}/x.npy", np.arange(3))
        >>> ferry.load(f"{folder}/x.npy", "torch").tolist()
        [0, 1, 2]
    """
    from tensorferry.files.writing import format_of  # not above: the import is to be quick

    if format_of(path, format) == "raw":
        raise InvalidArgumentError(
            f"{os.fsdecode(path)} holds raw bytes, which say neither their type nor their shape"
            "\nhint: write ferry.load_raw(path, framework, dtype=..., shape=...)"
        )
    told: dict[str, Any] = {"dialect": dialect, "max_decompressed_bytes": max_decompressed_bytes}
    try:
        file = inspect(path, format=format, **told)
    except UnsupportedDTypeError:
        if dtype in (None, "default"):
            raise
        # A type that has no name in the file may be the one that is asked for.
        file = inspect(path, format=format, dtype=dtype, **told)
    wishes |= {"device": device, "dtype": dtype}
    if file.is_single:
        if names is not None:
            raise InvalidArgumentError(
                f"{os.fsdecode(path)} holds one tensor, which has no name\nhint: leave names out"
            )
        return file.load(file.tensors[0].name, framework, mmap, **wishes)
    if isinstance(names, str):
        return file.load(names, framework, mmap, **wishes)
    if names is None and file.skipped:
        name, reason = file.skipped[0]
        raise UnsupportedDTypeError(
            f"{os.fsdecode(path)}: {name!r} cannot be carried: {reason.splitlines()[0]}"
            "\nhint: pass names= with those that you want"
        )
    wanted = [tensor.name for tensor in file.tensors] if names is None else _texts(names)
    return file.load_several(wanted, framework, mmap, **wishes)


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
    **wishes: Any,
) -> Any:
    """Carries a file of raw bytes to a framework, as one tensor.

    Args:
        path: The file. All of it is the tensor, in row-major order.
        framework: The framework of the result.
        dtype: The element type of the bytes, and of the result.
        shape: The shape of the tensor; one dimension if left out.
        device: The device of the result; a mapped file is read while it is uploaded to a GPU.
        mmap: Whether memory may be a map of the file, which others must not shorten meanwhile.
        wishes: `copy`, `writable`, `stream` and `budget`, as for `to`.

    Returns:
        A tensor of the framework.

    Raises:
        FileFormatError: The file has more or fewer bytes than a tensor of that type and shape.
        InvalidArgumentError: The type or the shape is not one.
        OSError: The system refused the file.

    Example:
        >>> np.arange(6, dtype="int16").tofile(f"{folder}/x.bin")
        >>> ferry.load_raw(f"{folder}/x.bin", "torch", dtype="int16", shape=(2, 3)).tolist()
        [[0, 1, 2], [3, 4, 5]]
    """
    file = inspect(path, format="raw", dtype=dtype, shape=shape)
    return file.load(file.tensors[0].name, framework, mmap, device=device, **wishes)


def save(
    path: Path,
    x: Any,
    *,
    format: str | None = None,
    metadata: Mapping[str, str] | None = None,
    compression: int | None = None,
    dialect: str = "onnx",
    durable: bool = True,
    shard_bytes: int | None = None,
) -> None:
    """Writes a tensor, or a tree of them, to a file.

    The file appears under its name when all of it has reached the disk; until then, and if anything
    goes wrong, an old file stays as it is.

    Args:
        path: The file. One that ends in `.index.json` is the index of several safetensors files,
            which lie beside it.
        x: A tensor of any framework, on any device; or a dict, list or tuple of such, nested as you
            like: names are joined by dots.
        format: "npy", "npz", "safetensors", "safetensors-index", "tensorproto" or "raw"; by the
            file's name if left out.
        metadata: What a safetensors file is to say about itself.
        compression: Deflates the members of a .npz, at a level from 1 to 9.
        dialect: Whose TensorProto it is to be, "onnx" or "tensorflow".
        durable: Whether to wait for the disk. Without, it is left to the system when the bytes get
            there: quicker, and safe against a process that ends, but not against a power cut.
        shard_bytes: The most bytes of tensors in each file behind an index, 5 GB if left out; a
            larger tensor has one of its own.

    Returns:
        None.

    Raises:
        NotATensorError: There is something in `x` that files do not hold, such as a sparse tensor.
        UnsupportedDTypeError: The format has no name for an element type.
        OSError: The system refused the file.

    Example:
        >>> ferry.save(f"{folder}/model.safetensors", {"w": np.ones((2, 3)), "b": np.zeros(3)})
        >>> sorted(ferry.load(f"{folder}/model.safetensors", "torch"))
        ['b', 'w']
    """
    from tensorferry.files import writing

    leaves = dict(named(x)) if is_tree(x) else {writing.name_alone(path, format): x}
    plans = {name: _planned(name, leaf) for name, leaf in leaves.items()}
    said: dict[Any, Any] = dict(metadata or {})
    for key, value in said.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgumentError(
                f"the metadata {key!r}: {value!r} is not all text\nhint: pass text, such as JSON"
            )
    writing.write(
        os.fsdecode(path),
        {name: (told.dtype, list(told.shape)) for name, told in plans.items()},
        lambda name: writing.pieces_of(leaves[name], plans[name]),
        format=format,
        metadata=said,
        shard_bytes=shard_bytes,
        durable=durable,
        compression=compression,
        dialect=dialect,
    )


def _lengths(shape: Any) -> list[int] | None:
    if shape is None:
        return None
    lengths = list(shape) if isinstance(shape, Iterable) else [shape]
    if not all(isinstance(length, SupportsIndex) and index(length) >= 0 for length in lengths):
        raise InvalidArgumentError(
            f"{shape!r} is no shape\nhint: write lengths, such as (480, 640)"
        )
    return [index(length) for length in lengths]


def _texts(names: Any) -> list[str]:
    found = list(names) if isinstance(names, Iterable) else [names]
    if not all(isinstance(name, str) for name in found):
        raise InvalidArgumentError(
            f"{names!r} are no names of tensors\nhint: pass one name, or a list of names"
        )
    return found


def _planned(name: str, leaf: Any) -> Plan:
    found = classify(leaf)
    if found is not None and found[1] == "sparse":
        raise NotATensorError(
            f"{name!r} is sparse, and files hold dense tensors"
            "\nhint: save the arrays that it is made of, or what ferry.sparse.to_dense makes of it"
        )
    told = plan(leaf, "numpy")
    if told.kind != "tensor":
        raise InvalidArgumentError(
            f"{name!r} is a tree that has no names to save it by"
            "\nhint: pass dicts, lists and tuples of tensors"
        )
    return told


def is_tree(x: Any) -> bool:
    """Whether names lead to what is in it."""
    return isinstance(x, Mapping | list | tuple)


def named(x: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a tree, each by the names that lead to it."""
    seen: set[str] = set()
    parts = x.items() if isinstance(x, Mapping) else enumerate(x)
    for key, value in parts:
        if not isinstance(key, str | int) or key == "":
            raise InvalidArgumentError(
                f"a tensor cannot be saved by the key {key!r}\nhint: use names that are text"
            )
        name = f"{place}.{key}" if place else str(key)
        for found, leaf in named(value, name) if is_tree(value) else [(name, value)]:
            if found in seen:
                raise InvalidArgumentError(
                    f"two tensors would be saved as {found!r}\nhint: rename one of them"
                )
            seen.add(found)
            yield found, leaf
