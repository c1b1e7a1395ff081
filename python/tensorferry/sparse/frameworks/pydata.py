"""The package `sparse`: `sparse.COO`.

Coordinates are one matrix with a row for each axis. A fill value other than zero is refused: no
other framework supports it.
"""

from typing import Any

from tensorferry._native import UnsupportedError
from tensorferry.framework_register import load
from tensorferry.sparse.components import SparseComponents


def read(x: Any) -> SparseComponents:
    """Returns the components of a tensor."""
    kind = type(x).__name__
    if kind != "COO":
        raise UnsupportedError(
            f"the format sparse.{kind} is not supported\nhint: pass x.asformat('coo')"
        )
    if x.fill_value != 0:
        raise UnsupportedError(
            f"the fill value of this sparse.COO is {x.fill_value}, and others support zero only"
            "\nhint: pass x - x.fill_value, or x.todense()"
        )
    return SparseComponents("coo", "coo", x.shape, x.data, (x.coords,), "axes")


def write(
    format: str,
    shape: tuple[int, ...],
    values: Any,
    arrays: tuple[Any, ...],
    in_order: bool,
    unique: bool,
) -> Any:
    """Makes a tensor from its components."""
    (coordinates,) = arrays
    make = load("sparse").COO
    made = make(coordinates, values, shape=shape, has_duplicates=False, sorted=True)
    # The constructor replaces empty coordinates by an array of another type.
    made.coords = coordinates
    return made
