"""The arrays of one sparse tensor, as the functions `read` take it apart.

The native module reads the fields by their position. It decides what happens to the arrays, and
carries them.
"""

from typing import Any, NamedTuple


class Parts(NamedTuple):
    """The arrays, and what the framework says about them.

    Axes are in the order batch, sparse, dense. Values have the batch axes first and the dense axes
    last.
    """

    #: "coo", "csr", "csc" or "bsr".
    format: str
    #: The format as the framework calls it; "csr_matrix" for one of SciPy's matrices.
    name: str
    shape: tuple[int, ...]
    values: Any
    #: Pointers and indices, or coordinates.
    arrays: tuple[Any, ...]
    #: How coordinates lie: "axes" is one matrix with a row for each axis, "points" one matrix with
    #: a row for each element, "separate" an array for each axis.
    layout: str = "separate"
    blocksize: tuple[int, int] | None = None
    batch_axes: int = 0
    dense_axes: int = 0
    #: Whether elements beyond the shape are padding.
    is_padded: bool = False
    #: Whether nobody may write the arrays, although the framework would let them.
    is_read_only: bool = False
    #: Whether the tensor required a gradient.
    is_detached: bool = False
    #: The order of a batch, which is not validated.
    in_order: bool = False
    unique: bool = False
