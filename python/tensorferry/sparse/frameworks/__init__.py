"""Sparse tensors of each framework: one module per framework, with the same functions.

- `read(x)` returns the index arrays and values of a tensor.
- `write(format, shape, values, arrays, in_order, unique)` makes a tensor from such arrays.
- `scatter(shape, values, coordinates, is_unique)` fills a dense tensor on a GPU.

The native module calls them; crates/python/src/sparse says what each format needs.
"""

from typing import Any

from tensorferry._native import classify


def sparse_framework_of(x: Any) -> str | None:
    """The framework of a sparse tensor; None for other objects. Imports nothing."""
    found = classify(x)
    return found[0] if found is not None and found[1] == "sparse" else None
