"""The tree around the tensors of a file: their names, its record, and how it is rebuilt.

A file of several tensors is flat. The name of a tensor is its path of keys and indices, joined by
dots. Names do not tell a list from a dict, and have no room for numbers and text. Safetensors files
therefore keep a record of the tree under the metadata key `tensorferry.tree`, as JSON:

- A dict is an object, a list an array; a number, text, true, false and null are themselves.
- A tensor is the text "$"; its name follows from its path. Other text that begins with "$" has one
  more "$" in front.
- `{"$tuple": [...]}` is a tuple, `{"$dict": [[key, value], ...]}` a dict with a key that is not
  text or begins with "$", `{"$float": "nan"}` a float that JSON lacks, and `{"$complex": [re, im]}`
  a complex number, as text.
- "$names" as the whole record is a dict of the tensors by their names, such as a state dict.

There is no record where the names alone describe the tree: nested dicts whose keys are text without
dots, and nothing but tensors in them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tensorferry._native import (
    FileFormatError,
    InvalidArgumentError,
    _is_refused,
    _stored,
    classify,
)

TREE_KEY = "tensorferry.tree"

# As in `ferry.to`: a tree that contains itself exceeds it.
MAX_TREE_DEPTH = 100

_TENSOR = "$"
_ALL_BY_NAME = "$names"

# Stands for a tensor where only its place in the tree matters.
_TENSOR_IN_FILE = object()


class Leaf(NamedTuple):
    """A tensor, or a number or text, in a tree."""

    name: str
    #: The path as Python writes it, such as `['layers'][0]`.
    path: str
    value: Any


def is_tree(x: Any) -> bool:
    """Whether an object is a container whose elements can be named, and not a group of arrays."""
    return isinstance(x, Mapping | list | tuple) and not _is_refused(x)


def with_stored(x: Any, depth: int = 0) -> Any:
    """The tree with a dict of columns in place of each table, which a stream yields once.

    A parameter of Flax is the tensor in it.
    """
    if depth <= MAX_TREE_DEPTH and is_tree(x):
        if isinstance(x, Mapping):
            return {key: with_stored(value, depth + 1) for key, value in x.items()}
        items = [with_stored(value, depth + 1) for value in x]
        return items if isinstance(x, list) else tuple(items)
    stored = _stored(x)
    return x if stored is None else stored


def is_value(x: Any) -> bool:
    """Whether a leaf is a number or text, which a record keeps. A NumPy scalar is a tensor."""
    if x is None or type(x) in (bool, int, float, complex, str):
        return True
    return isinstance(x, int | float | complex | str) and classify(x) is None


def tree_leaves(x: Any) -> Iterator[Leaf]:
    """The leaves of a tree, in order, with their names."""
    seen: set[str] = set()
    for leaf in _leaves(x, "", "", 0):
        if leaf.name in seen:
            raise InvalidArgumentError(
                f"two values of the tree would be saved as {leaf.name!r}\nhint: rename one of them"
            )
        seen.add(leaf.name)
        yield leaf


def _leaves(x: Any, prefix: str, path: str, depth: int) -> Iterator[Leaf]:
    if depth > MAX_TREE_DEPTH:
        raise InvalidArgumentError(
            f"the tree is nested more than {MAX_TREE_DEPTH} levels deep"
            "\nhint: check that no container contains itself"
        )
    for given, value in x.items() if isinstance(x, Mapping) else enumerate(x):
        key = _without_subclass(given)
        if not isinstance(key, str | int) or key == "" or not _is_encodable(key):
            place = f"at {path}: " if path else ""
            raise InvalidArgumentError(
                f"{place}the key {key!r} cannot be part of a tensor's name\nhint: use text as keys"
            )
        name, place = f"{prefix}.{key}" if prefix else str(key), f"{path}[{key!r}]"
        if is_tree(value):
            yield from _leaves(value, name, place, depth + 1)
        else:
            yield Leaf(name, place, value)


def _without_subclass(x: Any) -> Any:
    """Text or an integer without its subclass: JSON and `str` disagree about enums."""
    if isinstance(x, str):
        return str.__str__(x)
    return int(x) if isinstance(x, int) and not isinstance(x, bool) else x


def _is_encodable(key: Any) -> bool:
    """Whether a key is text without lone surrogates, or a number."""
    try:
        str(key).encode()
    except UnicodeEncodeError:
        return False
    return True


def record(tree: Any) -> str | None:
    """The record of a tree whose keys are valid; None where the names alone describe it."""
    if _follows_from_names(tree):
        return None
    import json  # deferred: fast `import tensorferry`

    is_flat = isinstance(tree, Mapping) and not any(
        is_tree(value) or is_value(value) or not isinstance(key, str) for key, value in tree.items()
    )
    encoded = _ALL_BY_NAME if is_flat and tree else _encode(tree)
    try:
        return json.dumps(encoded, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise InvalidArgumentError(
            f"the tree has a number that JSON cannot hold: {error}\nhint: save it as text"
        ) from None


def _follows_from_names(tree: Any) -> bool:
    if not isinstance(tree, Mapping) or not tree:
        return False
    return all(
        isinstance(key, str)
        and "." not in key
        and (_follows_from_names(value) if is_tree(value) else not is_value(value))
        for key, value in tree.items()
    )


def _encode(x: Any) -> Any:
    if isinstance(x, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in x):
            return {_without_subclass(key): _encode(value) for key, value in x.items()}
        return {"$dict": [[_without_subclass(key), _encode(value)] for key, value in x.items()]}
    if isinstance(x, tuple):
        return {"$tuple": [_encode(value) for value in x]}
    if isinstance(x, list):
        return [_encode(value) for value in x]
    if not is_value(x):
        return _TENSOR
    if isinstance(x, str):
        return "$" + _without_subclass(x) if x.startswith("$") else _without_subclass(x)
    if isinstance(x, complex):
        return {"$complex": [repr(x.real), repr(x.imag)]}
    if isinstance(x, float) and (x != x or x in (float("inf"), float("-inf"))):
        return {"$float": repr(float(x))}
    return _without_subclass(x)


class _InvalidRecordError(ValueError):
    """A record that violates the rules above, or contradicts the tensors of its file."""


def rebuild(text: str, tensors: Mapping[str, Any], path: str) -> Any:
    """The tree of a record, with the tensors of the file at `path` in it."""
    import json

    used: set[str] = set()

    def take(name: str) -> Any:
        if name == "" and len(tensors) == 1:  # the tree is one tensor
            name = next(iter(tensors))
        if name not in tensors:
            raise _InvalidRecordError(f"the file has no tensor {name!r}, which is in the tree")
        used.add(name)
        return tensors[name]

    try:
        parsed = json.loads(text)
        if parsed == _ALL_BY_NAME:
            return dict(tensors)
        tree = _decode(parsed, "", take, 0)
        missing = next((name for name in tensors if name not in used), None)
        if missing is not None:
            raise _InvalidRecordError(f"the tensor {missing!r} is not in the tree")
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, _InvalidRecordError) else "it cannot be parsed"
        raise FileFormatError(
            f"{path}: the record of the tree is invalid: {reason}"
            "\nhint: leave out nested=True for a dict of the tensors by name"
        ) from None
    return tree


def value_names(text: str, tensors: Iterable[str], path: str) -> set[str]:
    """The names that the numbers and text in the tree of a record would have as tensors."""
    tree = rebuild(text, dict.fromkeys(tensors, _TENSOR_IN_FILE), path)
    leaves = tree_leaves(tree) if is_tree(tree) else ()
    return {leaf.name for leaf in leaves if leaf.value is not _TENSOR_IN_FILE}


def _decode(node: Any, name: str, take: Callable[[str], Any], depth: int) -> Any:
    def child(key: Any, value: Any) -> Any:
        return _decode(value, f"{name}.{key}" if name else str(key), take, depth + 1)

    if isinstance(node, str):
        return take(name) if node == _TENSOR else node.removeprefix("$")
    if not isinstance(node, dict | list):
        return node
    tag, content = "", None
    if isinstance(node, dict):
        tag = next((key for key in node if key.startswith("$")), "")
        content = node.get(tag) if len(node) == 1 else None
    if tag == "$float" and isinstance(content, str):
        return float(content)
    if tag == "$complex" and isinstance(content, list) and len(content) == 2:
        return complex(*(float(str(part)) for part in content))
    if depth > MAX_TREE_DEPTH:
        raise _InvalidRecordError(f"it is nested more than {MAX_TREE_DEPTH} levels deep")
    if isinstance(node, list):
        return [child(index, value) for index, value in enumerate(node)]
    if not tag:
        return {key: child(key, value) for key, value in node.items()}
    if tag == "$tuple" and isinstance(content, list):
        return tuple(child(index, value) for index, value in enumerate(content))
    if tag == "$dict" and isinstance(content, list) and all(map(_is_pair, content)):
        return {key: child(key, value) for key, value in content}
    raise _InvalidRecordError(f"it has an unknown node {tag!r}")


def _is_pair(pair: Any) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and isinstance(pair[0], str | int)
        and pair[0] != ""
    )


def nest(tensors: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Nested dicts by the dots in the names, for files without a record."""
    tree: dict[str, Any] = {}
    # The dicts of the tree, which are told from tensors by it.
    dicts = {id(tree)}
    for name, tensor in tensors.items():
        if name.count(".") > MAX_TREE_DEPTH:
            raise FileFormatError(
                f"{path}: the name of a tensor has {name.count('.')} dots, and a tree has at most "
                f"{MAX_TREE_DEPTH} levels"
                "\nhint: leave out nested=True for a dict of the tensors by name"
            )
        *parents, last = name.split(".")
        node = tree
        for key in parents:
            if key not in node:
                node[key] = {}
                dicts.add(id(node[key]))
            elif id(node[key]) not in dicts:
                raise _clash(name, path)
            node = node[key]
        if last in node:
            raise _clash(name, path)
        node[last] = tensor
    return tree


def _clash(name: str, path: str) -> FileFormatError:
    return FileFormatError(
        f"{path}: {name!r} and another tensor cannot be in one tree: "
        "the name of one is the path to the other"
        "\nhint: leave out nested=True for a dict of the tensors by name"
    )
