"""`save`: writing a tensor, or a tree of tensors, to a file.

The new file is written beside the old one, and replaces it when every byte is written.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from tensorferry._native import InvalidArgumentError, NotATensorError, Plan, classify, plan
from tensorferry.files.formats import Path, default_name


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
            whose names are joined by dots.
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
        NotATensorError: `x` holds an object that files do not support, such as a sparse tensor.
        UnsupportedDTypeError: The format does not support an element type.
        OSError: The file cannot be written.

    Example:
        >>> ferry.save(f"{folder}/model.safetensors", {"w": np.ones((2, 3)), "b": np.zeros(3)})
        >>> sorted(ferry.load(f"{folder}/model.safetensors", "torch"))
        ['b', 'w']
    """
    from tensorferry.files import writing  # deferred: fast `import tensorferry`

    leaves = dict(named_leaves(x)) if is_tree(x) else {default_name(path, format): x}
    plans = {name: _plan_leaf(name, leaf) for name, leaf in leaves.items()}
    checked: dict[Any, Any] = dict(metadata or {})
    for key, value in checked.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgumentError(
                f"the metadata {key!r}: {value!r} is not text\nhint: pass text, such as JSON"
            )
    writing.write(
        os.fsdecode(path),
        {name: (one.dtype, list(one.shape)) for name, one in plans.items()},
        lambda name: writing.read_blocks(leaves[name], plans[name]),
        format=format,
        metadata=checked,
        shard_bytes=shard_bytes,
        durable=durable,
        compression=compression,
        dialect=dialect,
    )


def _plan_leaf(name: str, leaf: Any) -> Plan:
    kind = classify(leaf)
    if kind is not None and kind[1] == "sparse":
        raise NotATensorError(
            f"{repr(name) if name else 'the tensor'} is sparse, and files hold dense tensors"
            "\nhint: save its values and indices, or the result of ferry.sparse.to_dense"
        )
    found = plan(leaf, "numpy")
    if found.kind != "tensor":
        raise InvalidArgumentError(
            f"{name!r} is a container whose elements have no names"
            "\nhint: pass dicts, lists and tuples of tensors"
        )
    return found


def is_tree(x: Any) -> bool:
    """Whether an object is a container whose elements can be named."""
    return isinstance(x, Mapping | list | tuple)


def named_leaves(x: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a tree, each with its path of keys joined by dots."""
    seen: set[str] = set()
    items = x.items() if isinstance(x, Mapping) else enumerate(x)
    for key, value in items:
        if not isinstance(key, str | int) or key == "":
            raise InvalidArgumentError(
                f"the key {key!r} cannot be part of a tensor's name\nhint: use text as keys"
            )
        name = f"{prefix}.{key}" if prefix else str(key)
        for found, leaf in named_leaves(value, name) if is_tree(value) else [(name, value)]:
            if found in seen:
                raise InvalidArgumentError(
                    f"two tensors would be saved as {found!r}\nhint: rename one of them"
                )
            seen.add(found)
            yield found, leaf
