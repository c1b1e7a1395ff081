"""The package `sparse`: `sparse.COO`.

Coordinates are one matrix with a row for each axis. What is not stored may be other than zero
there; nobody else has that, so it is refused.
"""

from typing import Any

from tensorferry._native import UnsupportedError
from tensorferry.framework_register import load
from tensorferry.sparse.components import Parts


def read(x: Any) -> Parts:
    """Takes a tensor apart."""
    kind = type(x).__name__
    if kind != "COO":
        raise UnsupportedError(
            f"sparse.{kind} is a format that no other framework has\nhint: pass x.asformat('coo')"
        )
    if x.fill_value != 0:
        raise UnsupportedError(
            f"what this sparse.COO does not store is {x.fill_value}, and zero everywhere else"
            "\nhint: pass x - x.fill_value, or x.todense()"
        )
    return Parts("coo", "coo", x.shape, x.data, (x.coords,), "axes")


def write(
    format: str,
    shape: tuple[int, ...],
    values: Any,
    arrays: tuple[Any, ...],
    in_order: bool,
    unique: bool,
) -> Any:
    """Puts a tensor together."""
    (coordinates,) = arrays
    make = load("sparse").COO
    made = make(coordinates, values, shape=shape, has_duplicates=False, sorted=True)
    # Of coordinates of no element it makes others, with another type.
    made.coords = coordinates
    return made
