"""`ferry.arrow`: converts columns and tables to tensors, with options for each type.

A source is any object with `__arrow_c_array__` or `__arrow_c_stream__` (arrays and tables of
pyarrow and polars, relations of DuckDB), a Series or a DataFrame of pandas, or a dataset of Hugging
Face. Columns of numbers in GPU memory are read through `__arrow_c_device_array__`. `ferry.to`
converts columns of numbers without nulls; `to` in this module also converts nulls, lists,
dictionaries and times, as its options say, and stacks the columns of a table to a matrix. `batches`
reads a table or a stream in batches of rows. `export` is the other direction: an object that
pyarrow, polars and DuckDB read without a copy. Nothing of Arrow is needed at run time.
"""

import operator
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from tensorferry._native import (
    InvalidArgumentError,
    Plan,
    UnsupportedError,
    _arrow_batches,
    _arrow_export_column,
    _arrow_export_table,
    _arrow_read,
    _ArrowOptions,
    _is_refused,
)
from tensorferry._native import plan as _plan
from tensorferry._native import to as _to
from tensorferry.arrow import pandas_columns, ragged_tensors

__all__ = ["batches", "export", "plan", "to"]


def to(
    x: Any,
    framework: str | ModuleType,
    *,
    columns: Sequence[str] | None = None,
    stack: bool = False,
    nulls: str | float = "error",
    ragged: str = "error",
    pad: float | None = None,
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
        x: An object with `__arrow_c_array__`, `__arrow_c_stream__` or `__arrow_c_device_array__`, a
            Series or a DataFrame of pandas, or a dataset of Hugging Face. A stream is consumed.
        framework: The framework of the results, as for `ferry.to`.
        columns: The names of the columns to convert; all by default.
        stack: Whether to return one matrix with a row for each row of the table. Columns of
            different types need `dtype`.
        nulls: "error" refuses nulls, "mask" returns a pair of values and a mask that is True where
            a value is valid, "nan" replaces nulls of floats, and a number replaces all nulls.
        ragged: "error" refuses lists; "dense" makes an axis of lists that have one length, or that
            `pad` pads to one; "offsets" returns a pair of values and offsets: list i has the values
            from offsets[i] to offsets[i + 1]; "native" returns the ragged tensors of PyTorch
            (`torch.nested`, jagged) and TensorFlow (`tf.RaggedTensor`).
        pad: The number that pads short lists, with ragged="dense". A mask is False there.
        dictionary: "decode" looks up the values of a dictionary, "codes" returns its codes.
        temporal: "error" refuses dates and times; "integer" returns their integers.
        dtype: The element type of the results; None keeps the types of the columns.
        device: The device of the results, as for `ferry.to`.
        copy: Whether to copy, as for `ferry.to`.
        writable: Whether the results may be written, as for `ferry.to`.
        budget: The limit of extra memory in bytes.

    Returns:
        A tensor, or a dict of tensors by column; with nulls="mask" a pair in place of each tensor,
        with ragged="offsets" a pair in place of each column of lists.

    Raises:
        NotATensorError: A column has nulls, and `nulls` does not say what to do about them.
        UnsupportedDTypeError: A column has no tensor, such as one of text.
        InvalidTensorError: The producer violates the Arrow C data interface.
        UnsupportedError: A column in GPU memory has nulls, lists, booleans or a dictionary, which
            are read on the host, or is on a device that is not a CUDA GPU. A dataset has a
            transform (`with_transform`), which its columns do not show.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"a": [1, None, 3], "b": [True, False, True]})
        >>> ferry.arrow.to(table, "numpy", nulls=-1)["a"].tolist()
        [1, -1, 3]
        >>> ferry.arrow.to(table, "numpy", nulls=0, stack=True, dtype="float32").tolist()
        [[1.0, 1.0], [0.0, 0.0], [3.0, 1.0]]
    """
    options = _ArrowOptions(
        nulls=nulls, ragged=ragged, pad=pad, dictionary=dictionary, temporal=temporal, dtype=dtype
    )
    is_native = ragged == "native"
    if is_native:
        ragged_tensors.check_framework(framework, options, stack)
    read = _read(x, options, columns, stack)
    result = _to(
        read, framework, dtype=dtype, device=device, copy=copy, writable=writable, budget=budget
    )
    return ragged_tensors.assemble(result) if is_native else result


def plan(
    x: Any,
    framework: str | ModuleType,
    *,
    columns: Sequence[str] | None = None,
    stack: bool = False,
    nulls: str | float = "error",
    ragged: str = "error",
    pad: float | None = None,
    dictionary: str = "decode",
    temporal: str = "error",
    dtype: Any = None,
    device: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    budget: int | None = None,
) -> Plan:
    """Explains what `to` would do with the same arguments.

    A stream that can be read once is not read, and a query of DuckDB does not run: their plans have
    the types of the columns and 0 rows.

    Args:
        x: As for `to`.
        framework: The framework of the results.
        columns: The names of the columns to convert.
        stack: Whether the result is a matrix.
        nulls: What happens to nulls.
        ragged: What happens to lists.
        pad: The number that pads short lists.
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
    options = _ArrowOptions(
        nulls=nulls, ragged=ragged, pad=pad, dictionary=dictionary, temporal=temporal, dtype=dtype
    )
    if ragged == "native":
        ragged_tensors.check_framework(framework, options, stack)
    read = _read(x, options, columns, stack, plan=True)
    return _plan(
        read, framework, dtype=dtype, device=device, copy=copy, writable=writable, budget=budget
    )


def batches(
    x: Any,
    rows: int,
    framework: str | ModuleType,
    *,
    drop_last: bool = False,
    columns: Sequence[str] | None = None,
    stack: bool = False,
    nulls: str | float = "error",
    ragged: str = "error",
    pad: float | None = None,
    dictionary: str = "decode",
    temporal: str = "error",
    dtype: Any = None,
    device: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    budget: int | None = None,
) -> Iterator[Any]:
    """Converts a table, a stream or a dataset in batches of rows.

    A stream is read as far as the next batch needs it. Batches cross the borders of its chunks. The
    order is that of the rows; the last batch may be shorter.

    Args:
        x: What `to` converts, or an iterable of columns or tables of Arrow with one schema.
        rows: The number of rows of a batch.
        framework: The framework of the results.
        drop_last: Whether to leave out a last batch that is shorter.
        columns: The names of the columns to convert.
        stack: Whether a batch is a matrix.
        nulls: What happens to nulls, as for `to`.
        ragged: What happens to lists, as for `to`.
        pad: The number that pads short lists of the same batch.
        dictionary: What happens to dictionaries, as for `to`.
        temporal: What happens to dates and times, as for `to`.
        dtype: The element type of the results.
        device: The device of the results.
        copy: Whether to copy.
        writable: Whether the results may be written.
        budget: The limit of extra memory of one batch, in bytes.

    Returns:
        An iterator of what `to` returns for each batch.

    Raises:
        InvalidArgumentError: `rows` is not a positive integer, or the schemas differ.
        FerryError: What `to` raises, when the batch is reached.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"a": [1, 2, 3, 4, 5]})
        >>> [batch["a"].tolist() for batch in ferry.arrow.batches(table, 2, "numpy")]
        [[1, 2], [3, 4], [5]]
    """
    rows = _row_count(rows)
    options = _ArrowOptions(
        nulls=nulls, ragged=ragged, pad=pad, dictionary=dictionary, temporal=temporal, dtype=dtype
    )
    is_native = ragged == "native"
    if is_native:
        ragged_tensors.check_framework(framework, options, stack)
    keywords = {"dtype": dtype, "device": device, "copy": copy, "writable": writable}

    def convert(read: Any) -> Any:
        result = _to(read, framework, budget=budget, **keywords)
        return ragged_tensors.assemble(result) if is_native else result

    return map(convert, _read_batches(x, rows, options, columns, stack, drop_last))


def _read(
    x: Any,
    options: _ArrowOptions,
    columns: Sequence[str] | None,
    stack: bool,
    plan: bool = False,
) -> Any:
    """A column, a dict of columns or a matrix, as an object that `ferry.to` converts."""
    if pandas_columns.is_pandas(x):
        return pandas_columns.read(x, options, columns=_labels(columns), stack=stack)
    names = _names(columns)
    if _is_dataset(x):
        if not hasattr(x, "__len__"):
            raise UnsupportedError(
                f"an object of type {type(x).__name__} has no length\nhint: use ferry.arrow.batches"
            )
        x = _arrow_format(x, names)[:]
    return _arrow_read(x, options, columns=names, stack=stack, plan=plan)


def _read_batches(
    x: Any,
    rows: int,
    options: _ArrowOptions,
    columns: Sequence[str] | None,
    stack: bool,
    drop_last: bool,
) -> Iterator[Any]:
    """The batches as objects that `ferry.to` converts."""
    if pandas_columns.is_pandas(x):
        labels = _labels(columns)
        stop = len(x) - len(x) % rows if drop_last else len(x)
        slices = (x.iloc[start : start + rows] for start in range(0, stop, rows))
        return (pandas_columns.read(part, options, columns=labels, stack=stack) for part in slices)
    names = _names(columns)
    if _is_dataset(x):
        # The iterator holds to `select` and `shuffle`, which the table below does not know.
        x = _arrow_format(x, names).iter(batch_size=rows, drop_last_batch=drop_last)
    return _arrow_batches(x, rows, options, columns=names, stack=stack, drop_last=drop_last)


def _row_count(rows: Any) -> int:
    try:
        count = 0 if isinstance(rows, bool) else operator.index(rows)
    except TypeError:
        count = 0
    if count < 1:
        raise InvalidArgumentError(f"rows is {rows!r}\nhint: pass the number of rows of a batch")
    return min(count, sys.maxsize)


def _labels(columns: Sequence[Any] | None) -> list[Any] | None:
    if columns is None:
        return None
    try:
        return [columns] if isinstance(columns, str) else list(columns)
    except TypeError:
        raise InvalidArgumentError(f"columns is {columns!r}\nhint: pass a list of names") from None


def _names(columns: Sequence[str] | None) -> list[str] | None:
    """The labels of columns other than those of pandas, which are text."""
    labels = _labels(columns)
    for label in labels or ():
        if not isinstance(label, str):
            raise InvalidArgumentError(f"columns has {label!r}\nhint: pass names as text")
    return labels


def _is_dataset(x: object) -> bool:
    """Whether x is a dataset of Hugging Face; imports nothing."""
    return any(
        kind.__module__.partition(".")[0] == "datasets"
        and kind.__name__ in ("Dataset", "IterableDataset")
        for kind in type(x).__mro__
    )


def _arrow_format(dataset: Any, names: list[str] | None) -> Any:
    """The dataset with results of Arrow, of the named columns or those of its own format."""
    known, own_format = dataset.column_names, getattr(dataset, "format", {})
    if own_format.get("type") == "custom":
        raise UnsupportedError(
            "the dataset has a transform, which its columns of Arrow do not show\n"
            "hint: use ferry.feed(torch.utils.data.DataLoader(x), framework), "
            "or pass x.with_format(None) for the values before the transform"
        )
    columns = own_format.get("columns") if names is None else names
    # A selection of all columns costs as much for each batch as a conversion. A name that is not
    # known is an error later.
    if columns is None or known is None or list(columns) == known or not set(columns) <= set(known):
        return dataset.with_format("arrow")
    if hasattr(dataset, "format"):
        return dataset.with_format("arrow", columns=columns)
    return dataset.select_columns(columns).with_format("arrow")


def export(x: Any) -> Any:
    """Exports a tensor as a column of Arrow, or a dict of tensors as a table.

    The memory is shared if the tensor is dense, and copied on its device otherwise; the attribute
    `plan` of the result says which, and why. Consumers expect that Arrow memory does not change: do
    not write the tensor while one uses the column. A tensor of more than one axis is a column of
    fixed-size lists or of fixed-shape tensors. Booleans are copied, because Arrow packs them to
    bits. bfloat16 and float8 have extension types named `tensorferry.<dtype>`.

    A tensor in GPU memory is for consumers of `__arrow_c_device_array__`; the methods for host
    memory raise. The call waits until its values are complete. Booleans there are shared, as
    `arrow.bool8`.

    Args:
        x: A tensor of any framework with at least one axis, or a dict of such tensors by column,
            whose first axes have the same length. Keys are named by `str(key)`.

    Returns:
        An object with `__arrow_c_schema__`, `__arrow_c_array__` and `__arrow_c_device_array__`; for
        a dict also with `__arrow_c_stream__`. Its `plan` is a Plan, for a dict with a part for each
        column.

    Raises:
        InvalidArgumentError: A tensor has no axis, or rows of more than 2**31 - 1 elements, or the
            columns have the same name, different lengths or different devices.
        NotATensorError: `x`, or a value of the dict, is not a tensor.
        UnsupportedDTypeError: Arrow has no such type, as for complex numbers.

    Example:
        >>> import pyarrow as pa
        >>> pa.array(ferry.arrow.export(np.arange(3))).to_pylist()
        [0, 1, 2]
        >>> ferry.arrow.export(np.arange(3)).plan.shares
        True
        >>> pa.table(ferry.arrow.export({"a": np.ones(2), "b": np.zeros((2, 3))})).column_names
        ['a', 'b']
    """
    if isinstance(x, Mapping) and not _is_refused(x):
        return _arrow_export_table([(str(name), one) for name, one in x.items()], traced=True)
    return _arrow_export_column(x, traced=True)
