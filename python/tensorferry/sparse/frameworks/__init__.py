"""The sparse tensors of each framework: a module for each, with the same functions.

`read(x)` takes a tensor apart, `write(format, shape, values, arrays, in_order, unique)` puts one
together, and `scatter(shape, values, coordinates, is_unique)` fills a dense tensor on a GPU. The
native module calls them; what each format asks for is in crates/python/src/sparse/targets.rs.
"""

from typing import Any

from tensorferry._native import classify


def owner(x: Any) -> str | None:
    """The framework of a sparse tensor; None for anything else. Imports nothing."""
    found = classify(x)
    return found[0] if found is not None and found[1] == "sparse" else None
