"""`ferry.arrow`: converts columns and tables of Arrow to tensors, with options for each type.

Any object with `__arrow_c_array__` or `__arrow_c_stream__` is a source: arrays and tables of
pyarrow and polars, relations of DuckDB. `ferry.to` converts columns of numbers without nulls; `to`
in this module also converts nulls, lists, dictionaries and times, as its options say, and stacks
the columns of a table to a matrix. `export` is the other direction: an object that pyarrow, polars
and DuckDB read without a copy. Nothing of Arrow is needed at run time.
"""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from tensorferry._native import Plan, _arrow_export_column, _arrow_export_table, _arrow_read
from tensorferry._native import plan as _plan
from tensorferry._native import to as _to

__all__ = ["export", "plan", "to"]


def to(
    x: Any,
    framework: str | ModuleType,
    *,
    columns: Sequence[str] | None = None,
    stack: bool = False,
    nulls: str | float = "error",
    ragged: str = "error",
    dictionary: str = "decode",
    temporal: str = "error",
    dtype: Any = None,
    device: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    budget: int | None = None,
) -> Any:
    """Converts a column to a tensor, or a table to a dict of tensors.

    Args:
        x: An object with `__arrow_c_array__` or `__arrow_c_stream__`. A stream is consumed.
        framework: The framework of the results, as for `ferry.to`.
        columns: The names of the columns to convert; all by default.
        stack: Whether to return one matrix with a row for each row of the table. Columns of
            different types need `dtype`.
        nulls: "error" refuses nulls, "mask" returns a pair of values and a mask that is True where
            a value is valid, "nan" replaces nulls of floats, and a number replaces all nulls.
        ragged: "error" refuses lists; "dense" makes an axis of lists that have one length.
        dictionary: "decode" looks up the values of a dictionary, "codes" returns its codes.
        temporal: "error" refuses dates and times; "integer" returns their integers.
        dtype: The element type of the results; None keeps the types of the columns.
        device: The device of the results, as for `ferry.to`.
        copy: Whether to copy, as for `ferry.to`.
        writable: Whether the results may be written, as for `ferry.to`.
        budget: The limit of extra memory in bytes.

    Returns:
        A tensor, or a dict of tensors by column; with nulls="mask" a pair in place of each tensor.

    Raises:
        NotATensorError: A column has nulls, and `nulls` does not say what to do about them.
        UnsupportedDTypeError: A column has no tensor, such as one of text.
        InvalidTensorError: The producer violates the Arrow C data interface.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"a": [1, None, 3], "b": [True, False, True]})
        >>> ferry.arrow.to(table, "numpy", nulls=-1)["a"].tolist()
        [1, -1, 3]
        >>> ferry.arrow.to(table, "numpy", nulls=0, stack=True, dtype="float32").tolist()
        [[1.0, 1.0], [0.0, 0.0], [3.0, 1.0]]
    """
    read = _read(x, columns, stack, nulls, ragged, dictionary, temporal, dtype)
    options = {"dtype": dtype, "device": device, "copy": copy, "writable": writable}
    return _to(read, framework, budget=budget, **options)


def plan(
    x: Any,
    framework: str | ModuleType,
    *,
    columns: Sequence[str] | None = None,
    stack: bool = False,
    nulls: str | float = "error",
    ragged: str = "error",
    dictionary: str = "decode",
    temporal: str = "error",
    dtype: Any = None,
    device: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    budget: int | None = None,
) -> Plan:
    """Explains what `to` would do with the same arguments. A stream is consumed.

    Args:
        x: As for `to`.
        framework: The framework of the results.
        columns: The names of the columns to convert.
        stack: Whether the result is a matrix.
        nulls: What happens to nulls.
        ragged: What happens to lists.
        dictionary: What happens to dictionaries.
        temporal: What happens to dates and times.
        dtype: The element type of the results.
        device: The device of the results.
        copy: Whether to copy.
        writable: Whether the results may be written.
        budget: The limit of extra memory in bytes.

    Returns:
        A Plan; that of a table has a part for each column.

    Raises:
        FerryError: What `to` would raise.

    Example:
        >>> import pyarrow as pa
        >>> ferry.arrow.plan(pa.array([1, None]), "torch", nulls=0).steps[0][0]
        'fill'
    """
    read = _read(x, columns, stack, nulls, ragged, dictionary, temporal, dtype)
    options = {"dtype": dtype, "device": device, "copy": copy, "writable": writable}
    return _plan(read, framework, budget=budget, **options)


def _read(
    x: Any,
    columns: Sequence[str] | None,
    stack: bool,
    nulls: str | float,
    ragged: str,
    dictionary: str,
    temporal: str,
    dtype: Any,
) -> Any:
    names = [columns] if isinstance(columns, str) else columns
    return _arrow_read(
        x,
        columns=None if names is None else list(names),
        stack=stack,
        nulls=nulls,
        ragged=ragged,
        dictionary=dictionary,
        temporal=temporal,
        dtype=dtype,
    )


def export(x: Any) -> Any:
    """Exports a tensor as a column of Arrow, or a dict of tensors as a table.

    The memory is shared if the tensor is dense and in host memory, and copied otherwise. Consumers
    expect that Arrow memory does not change: do not write the tensor while one uses the column. A
    tensor of more than one axis is a column of fixed-size lists or of fixed-shape tensors. bfloat16
    and float8 have extension types named `tensorferry.<dtype>`, and booleans are `arrow.bool8`.

    Args:
        x: A tensor of any framework with at least one axis, or a dict of such tensors by column,
            whose first axes have the same length.

    Returns:
        An object with `__arrow_c_schema__` and `__arrow_c_array__`; for a dict also with
        `__arrow_c_stream__`.

    Raises:
        InvalidArgumentError: A tensor has no axis, or the columns have different lengths.
        UnsupportedDTypeError: Arrow has no such type, as for complex numbers.
        UnsupportedError: A tensor is on a GPU.

    Example:
        >>> import pyarrow as pa
        >>> pa.array(ferry.arrow.export(np.arange(3))).to_pylist()
        [0, 1, 2]
        >>> pa.table(ferry.arrow.export({"a": np.ones(2), "b": np.zeros((2, 3))})).column_names
        ['a', 'b']
    """
    if isinstance(x, Mapping):
        return _arrow_export_table([(str(name), tensor) for name, tensor in x.items()])
    return _arrow_export_column(x)
