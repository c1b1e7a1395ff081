"""`save`: writing a tensor, or a tree of tensors, to a file.

The new file is written beside the old one, and replaces it when every byte is written.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from tensorferry._native import (
    FerryError,
    InvalidArgumentError,
    NotATensorError,
    Plan,
    _library_hint,
    classify,
    plan,
    to,
)
from tensorferry.files.formats import Path, decode_path, default_name, format_of
from tensorferry.files.trees import (
    TREE_KEY,
    Leaf,
    is_tree,
    is_value,
    record,
    tree_leaves,
    with_stored,
)

# The formats that record the tree around the tensors, with its numbers and text.
_RECORDING_FORMATS = ("safetensors", "safetensors-index")

_VALUE_HINT = "save it as .safetensors, or leave it out"
_NUMBER_HINT = "save it as .safetensors, leave it out, or pass numpy.asarray(x)"


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
    """Writes a tensor, or a tree of tensors, to a file.

    The file is replaced atomically when all of it is on disk; until then, and after an error, an
    old file stays unchanged.

    Args:
        path: The file. A name that ends in `.index.json` is the index of several safetensors files,
            which are written to the same folder.
        x: A tensor of any framework, on any device; or nested dicts, lists and tuples of tensors,
            whose names are joined by dots. Safetensors files also keep the tree itself, with the
            numbers, text and None in it: `load(path, nested=True)` returns it. Named tuples come
            back as tuples, other mappings as dicts, NumPy scalars and bytes as tensors.
        format: "npy", "npz", "safetensors", "safetensors-index", "tensorproto" or "raw"; by the
            file's name by default.
        metadata: The metadata of a safetensors file.
        compression: The level, 1 to 9, at which the members of a .npz are deflated.
        dialect: The TensorProto message type, "onnx" or "tensorflow".
        durable: Whether to wait until the bytes are on disk (fsync). False is faster, and safe
            against the end of the process, but not against a power failure.
        shard_bytes: The maximum bytes of tensors in each file of an index, 5 GB by default; a
            larger tensor has a file of its own.

    Returns:
        None.

    Raises:
        NotATensorError: `x` is None, a number or text; or it holds an object that the file cannot
            keep, such as a sparse tensor, or a number in another format than safetensors.
        UnsupportedDTypeError: The format does not support an element type.
        OSError: The file cannot be written.

    Example:
        >>> ferry.save(f"{folder}/model.safetensors", {"w": np.ones((2, 3)), "b": np.zeros(3)})
        >>> sorted(ferry.load(f"{folder}/model.safetensors", "torch"))
        ['b', 'w']
        >>> ferry.save(f"{folder}/step.safetensors", {"epoch": 3, "layers": [np.ones(2)]})
        >>> ferry.load(f"{folder}/step.safetensors", nested=True)
        {'epoch': 3, 'layers': [array([1., 1.])]}
    """
    from tensorferry.files import writing  # deferred: fast `import tensorferry`

    if is_tree(path) and isinstance(x, str | bytes | os.PathLike):
        raise InvalidArgumentError(
            "path is a tree of tensors, and x is a path"
            "\nhint: the path comes first: ferry.save(path, tensors)"
        )
    if is_value(x):
        array = "" if isinstance(x, str | None) else ", such as numpy.asarray(x)"
        raise NotATensorError(
            f"x is {_describe_value(x)}, not a tensor or a tree of tensors"
            f"\nhint: pass a tensor{array}, or a dict, list or tuple of tensors"
        )
    name = decode_path(path)
    x = with_stored(x)
    leaves = list(tree_leaves(x)) if is_tree(x) else [Leaf(default_name(path, format), "", x)]
    keeps_tree = format_of(path, format) in _RECORDING_FORMATS
    tensors = {leaf.name: leaf for leaf in leaves if not (keeps_tree and is_value(leaf.value))}
    planned = {leaf.name: _plan_leaf(leaf, name) for leaf in tensors.values()}
    writing.write(
        name,
        {name: (one.dtype, list(one.shape)) for name, (_, one) in planned.items()},
        lambda name: writing.read_blocks(*planned[name]),
        format=format,
        metadata=_check_metadata(metadata),
        tree=record(x) if keeps_tree else None,
        shard_bytes=shard_bytes,
        durable=durable,
        compression=compression,
        dialect=dialect,
    )


def _check_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    checked: dict[Any, Any] = dict(metadata or {})
    for key, value in checked.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgumentError(
                f"the metadata {key!r}: {value!r} is not text\nhint: pass text, such as JSON"
            )
        if key == TREE_KEY:
            raise InvalidArgumentError(
                f"the metadata key {key} is reserved for the tree of the tensors"
                "\nhint: use another key"
            )
    return checked


def _plan_leaf(leaf: Leaf, file: str) -> tuple[Any, Plan]:
    """The value of a leaf that has to be a tensor, and its plan.

    Where only a conversion tells type and shape, the value is the converted one.
    """
    place = f"at {leaf.path}: " if leaf.path else ""
    if is_value(leaf.value):
        raise NotATensorError(
            f"{file}: {place}{_describe_value(leaf.value)} is not a tensor, and only safetensors "
            "files keep numbers and text"
            f"\nhint: {_VALUE_HINT if isinstance(leaf.value, str | None) else _NUMBER_HINT}"
        )
    kind = classify(leaf.value)
    if kind is not None and kind[1] == "sparse":
        raise NotATensorError(
            f"{place}the tensor is sparse, and files hold dense tensors"
            "\nhint: save its values and indices, or the result of ferry.sparse.to_dense"
        )
    value = leaf.value
    try:
        found = plan(value, "numpy")
        if found.kind == "tensor" and found.dtype == "unknown":
            value = to(value, "numpy")
            found = plan(value, "numpy")
    except FerryError as error:
        fact, hint = str(error).splitlines()[0], error.hint or ""
        if "dataclass" in hint:  # the advice of `to`, which accepts more containers than files
            hint = "save dicts, lists and tuples of tensors, numbers and text"
        error.args = (f"{place}{fact}\nhint: {hint}",)
        raise
    if found.kind != "tensor":
        hint = _library_hint(value) or "pass dicts, lists and tuples of tensors"
        raise InvalidArgumentError(
            f"{place}{type(value).__name__} is a container, "
            "and only dicts, lists and tuples are saved"
            f"\nhint: {hint}"
        )
    return value, found


def _describe_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{type(value).__name__} of {len(value)} characters"


def named_leaves(x: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of a tree, each with its path of keys joined by dots."""
    for leaf in tree_leaves(x):
        yield leaf.name, leaf.value
