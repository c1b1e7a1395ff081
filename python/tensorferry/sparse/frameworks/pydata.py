"""The package `sparse`: `sparse.COO`.

Coordinates are one matrix with a row for each axis, in order and without repeats. What is not
stored may be other than zero there; nobody else has that, so it is refused.
"""

from typing import Any

from tensorferry._native import UnsupportedError
from tensorferry.framework_register import load, title
from tensorferry.sparse.bundle import Bundle, Rules
from tensorferry.sparse.frameworks.scipy import DTYPES

ARRAYS = "numpy"
TITLE = title("sparse")


_WHY = "sparse.COO keeps each place once, in order"
_FORMATS = {
    "coo": Rules(
        ("int32", "int64"), laid="axes", in_order=True, unique=True, dtypes=DTYPES, why=_WHY
    )
}


def formats() -> dict[str, Rules]:
    """What each format asks for."""
    return _FORMATS


def read(x: Any) -> Bundle:
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
    shape = tuple(map(int, x.shape))
    return Bundle("sparse", "coo", shape, x.data, (x.coords,), "axes", name="coo")


def write(bundle: Bundle) -> Any:
    """Puts a tensor together."""
    return _coo(bundle.values, bundle.coordinates, bundle.shape, 0)


def _coo(values: Any, parts: tuple[Any, ...], shape: tuple[int, ...], bits: int) -> Any:
    sparse = load("sparse")
    made = sparse.COO(parts[0], values, shape=tuple(shape), has_duplicates=False, sorted=True)
    # Of coordinates of no element it makes others, with another type.
    made.coords = parts[0]
    return made


WRITES = {"coo": _coo}


def _open(x: Any) -> Any:
    return (x.data, (x.coords,), "axes", x.shape) if x.fill_value == 0 else None


OPENS = {"COO": ("coo", _open)}
