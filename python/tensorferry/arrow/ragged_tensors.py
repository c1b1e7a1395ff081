"""Makes the ragged tensors of PyTorch and TensorFlow from values and offsets."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tensorferry._native import InvalidArgumentError, UnsupportedError, canonical

if TYPE_CHECKING:
    from types import ModuleType

    from tensorferry._native import _ArrowOptions


def check_framework(framework: str | ModuleType, options: _ArrowOptions, stack: bool) -> None:
    """Raises if the framework has no ragged tensors, or for options that exclude them."""
    name = canonical(framework)
    if name not in ("torch", "tensorflow"):
        raise UnsupportedError(
            f'ragged="native" is for PyTorch and TensorFlow, not {name}'
            '\nhint: pass ragged="offsets", or ragged="dense" with pad='
        )
    if options.has_mask or stack:
        option = 'nulls="mask"' if options.has_mask else "stack=True"
        raise InvalidArgumentError(
            f'ragged="native" and {option} cannot be combined'
            f'\nhint: pass ragged="offsets", or leave out {option}'
        )


def assemble(result: Any) -> Any:
    """Replaces pairs of values and offsets, alone or in the dict of a table, by ragged tensors."""
    if isinstance(result, dict):
        return {name: assemble(column) for name, column in result.items()}
    if not isinstance(result, tuple):
        return result
    values, offsets = result
    if isinstance(values, dict):
        raise UnsupportedError(
            "the lists of the column have structs, which have no ragged tensor"
            '\nhint: pass ragged="offsets"'
        )
    module = type(offsets).__module__.partition(".")[0]
    if module == "tensorflow":
        tf = importlib.import_module("tensorflow")
        return tf.RaggedTensor.from_row_splits(assemble(values), offsets, validate=False)
    if isinstance(values, tuple):
        raise UnsupportedError(
            "torch.nested has one ragged axis, and the lists of the column have lists"
            '\nhint: pass ragged="offsets", or ragged="dense" with pad='
        )
    torch = importlib.import_module("torch")
    return torch.nested.nested_tensor_from_jagged(values, offsets)
