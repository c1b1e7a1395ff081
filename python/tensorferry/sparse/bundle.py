"""What a sparse tensor is to us: a format, a shape, and a few dense arrays that keep the elements.

Nothing here knows a framework. `Bundle` is what a framework's reader finds and what its writer is
given, `Rules` is what a framework asks of one format. The arrays are the framework's own; they move
by `ferry.to` and by nothing else.
"""

from dataclasses import dataclass, field
from typing import Any, NoReturn

from tensorferry._native import InvalidTensorError, Plan, UnsupportedError, plan
from tensorferry.sparse.work import DENSE, IN_ORDER, INT32, INT64, UNIQUE

FORMATS = ("coo", "csr", "csc", "bsr")

# Which format is the nearest where a framework lacks one, best first. Compressed columns become
# coordinates, because they keep their order so, and blocks compressed rows, because they have rows.
NEAREST = {
    "coo": ("coo",),
    "csr": ("csr", "coo"),
    "csc": ("csc", "coo", "csr"),
    "bsr": ("bsr", "csr", "coo"),
}


@dataclass
class Bundle:
    """The parts of one sparse tensor.

    Coordinates (`coo`) lie in one of three ways, which `laid` names: "axes" is one matrix with a
    row for each axis, "points" one matrix with a row for each element, "apart" an array for each
    axis. Compressed formats have `indices` and `indptr`. Axes are in the order batch, sparse,
    dense; values have the batch axes first and the dense ones last.
    """

    framework: str
    format: str
    shape: tuple[int, ...]
    values: Any
    coordinates: tuple[Any, ...] = ()
    laid: str = "apart"
    indices: Any = None
    indptr: Any = None
    blocksize: tuple[int, int] | None = None
    batch: int = 0
    dense: int = 0
    in_order: bool = False
    unique: bool = False
    name: str = ""
    padded: bool = False
    frozen: bool = False
    detached: bool = False

    @property
    def sparse_shape(self) -> tuple[int, ...]:
        """The lengths of the axes that have coordinates."""
        return self.shape[self.batch : len(self.shape) - self.dense]

    @property
    def index_parts(self) -> list[tuple[str, Any]]:
        """The arrays that say where the values are, each with its name."""
        if self.format != "coo":
            return [("indptr", self.indptr), ("indices", self.indices)]
        return list(zip(self.coordinate_names, self.coordinates, strict=True))

    @property
    def coordinate_names(self) -> list[str]:
        """What the arrays of coordinates are called."""
        if self.laid != "apart":
            return ["coordinates"]
        return axis_names(len(self.sparse_shape))


@dataclass(frozen=True)
class Rules:
    """What a framework asks of one format."""

    index_dtypes: tuple[str, ...]
    laid: str = "apart"
    in_order: bool = False
    unique: bool = False
    strided: bool = False
    most_axes: int = 64
    fewest_axes: int = 1
    dense: bool = False
    batch: bool = False
    dtypes: frozenset[str] | None = None
    why: str = ""
    # In the bits of a look: what must be said of elements, and which types indices may have.
    needs: int = field(init=False)
    types: int = field(init=False)

    def __post_init__(self) -> None:
        needs = (IN_ORDER if self.in_order else 0) | (UNIQUE if self.unique else 0)
        object.__setattr__(self, "needs", needs | (0 if self.strided else DENSE))
        bits = {"int32": INT32, "int64": INT64}
        object.__setattr__(self, "types", sum(bits[name] for name in self.index_dtypes))


def axis_names(count: int) -> list[str]:
    """What the coordinates along each axis are called."""
    if count == 2:
        return ["row coordinates", "column coordinates"]
    return [f"coordinates of axis {axis}" for axis in range(count)]


def dtype_of(array: Any) -> str:
    """The name of an array's element type."""
    return facts_of(array).source_dtype


def facts_of(array: Any) -> Plan:
    """What tensorferry finds in an array; nothing moves."""
    found = plan(array, "numpy")
    if found.kind != "tensor":
        raise InvalidTensorError(
            f"{array!r} is not an array\nhint: look at how the tensor was made"
        )
    return found


def refuse(fact: str, hint: str) -> NoReturn:
    """Raises what says that a format cannot hold something."""
    raise UnsupportedError(f"{fact}\nhint: {hint}")
