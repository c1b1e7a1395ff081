"""Reads columns of pandas through its own API.

The Arrow interface of pandas is not used: it turns NaN into null and the index into a column. A
column of NumPy is its own array, so that NaN stays NaN. A masked column and a column of categories
are values and a bitmap, and an Arrow column is its chunks. The index is not a column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorferry._native import (
    InvalidArgumentError,
    UnsupportedDTypeError,
    _arrow_export_column,
    _arrow_read,
    _arrow_stack,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from tensorferry._native import _ArrowOptions


# The kinds of NumPy's types that have tensors.
_NUMBERS = "biufc"


def is_pandas(x: object) -> bool:
    """Whether x is a Series or a DataFrame of pandas; imports nothing."""
    return any(
        kind.__module__.partition(".")[0] == "pandas" and kind.__name__ in ("DataFrame", "Series")
        for kind in type(x).__mro__
    )


def read(
    x: Any,
    options: _ArrowOptions,
    *,
    columns: Sequence[Hashable] | None = None,
    stack: bool = False,
) -> Any:
    """A Series as an object that `ferry.to` converts, a DataFrame as a dict of them.

    Args:
        x: A Series or a DataFrame.
        options: The options of `ferry.arrow.to`.
        columns: The labels of the columns; all by default.
        stack: Whether the columns become one matrix.

    Returns:
        An array of NumPy or a column of Arrow; with a mask a pair of columns.
    """
    if x.ndim == 1:
        if columns is not None or stack:
            option = "columns" if columns is not None else "stack"
            raise InvalidArgumentError(
                f"{option} is for a table, and x is one column\nhint: leave out {option}"
            )
        return _read_series(x, options, None)
    labels = list(x.columns) if columns is None else list(columns)
    _check_labels(x, labels)
    block = _one_block(x) if columns is None and not options.has_mask else None
    if stack:
        return _stack(x, labels, options) if block is None else block
    if block is not None:
        return {label: block[:, index] for index, label in enumerate(labels)}
    return {label: _read_series(x[label], options, label) for label in labels}


def _check_labels(frame: Any, labels: list[Hashable]) -> None:
    """Checks that each label is that of one column, and is named once."""
    for label in labels:
        if label not in frame.columns:
            known = ", ".join(str(label) for label in frame.columns[:10])
            raise InvalidArgumentError(
                f"the table has no column {label!r}\nhint: pass some of {known}"
            )
    if len(set(labels)) == len(labels) and frame.columns.is_unique:
        return
    for label in labels:
        if labels.count(label) > 1 or frame.columns.get_indexer_for([label]).size > 1:
            raise InvalidArgumentError(f"two columns are {label!r}\nhint: rename one of them")


def _one_block(frame: Any) -> Any:
    """The read-only matrix of columns that pandas keeps in one array of numbers, or None."""
    # An extension array is one column, and its conversion may change nulls.
    if frame.shape[1] < 2:
        return None
    try:
        block = frame.__array__(copy=False)
    except ValueError:
        return None
    # pandas returns a view of its own memory as read-only, and a conversion as writable.
    is_own = not block.flags.writeable
    return block if is_own and block.dtype.kind in _NUMBERS else None


def _read_series(series: Any, options: _ArrowOptions, label: Hashable) -> Any:
    """One column as an object that `ferry.to` converts; errors name its label."""
    import numpy as np

    name = None if label is None else str(label)
    column = _column(series, options, label)
    if isinstance(column, _Decoded):
        if not options.has_mask:
            return column
        column = column.__array__()
    is_arrow = hasattr(series.dtype, "pyarrow_dtype")
    is_time = not is_arrow and getattr(series.dtype, "kind", "O") in "mM"
    if isinstance(column, np.ndarray):
        if not (options.has_mask or is_time):
            return column
        column = _arrow_export_column(column)
    return _arrow_read(column, options, name=name, unit=series.dt.unit if is_time else None)


def _column(series: Any, options: _ArrowOptions, label: Hashable) -> Any:
    """One column: an array of NumPy without nulls, or an object with the methods of Arrow."""
    import numpy as np

    if series.ndim != 1:
        below = series.columns[0]
        whole = (label, *below) if isinstance(below, tuple) else (label, below)
        raise InvalidArgumentError(
            f"{label!r} names {series.shape[1]} columns\nhint: pass whole labels, such as {whole!r}"
        )
    dtype = series.dtype
    name = None if label is None else str(label)
    valid = None
    if isinstance(dtype, np.dtype):
        if dtype.kind in "mM":
            values, valid = _times(series, options, name)
        else:
            values = series.to_numpy(copy=False)
    elif hasattr(dtype, "pyarrow_dtype"):
        return series.array.__arrow_array__()
    elif hasattr(dtype, "categories"):
        values, valid = _categories(series, options, name)
    elif getattr(dtype, "kind", "O") == "M":  # with a time zone
        values, valid = _times(series, options, name)
    elif hasattr(dtype, "numpy_dtype"):
        values, valid = _masked(series.array, dtype.numpy_dtype)
    else:
        raise _unsupported(name, f"a column of type {dtype} has no tensor")
    if values.dtype.kind not in _NUMBERS:
        raise _unsupported(name, f"a column of type {dtype} has no tensor")
    if valid is None:
        return values
    return _arrow_export_column(values, np.packbits(valid, bitorder="little"))


def _masked(array: Any, dtype: Any) -> tuple[Any, Any]:
    """The values of a masked array, and where they are valid."""
    is_null = array.isna()
    if is_null.any():
        return array.to_numpy(dtype=dtype, na_value=0), ~is_null
    # A view of the memory of pandas, which other columns may share.
    values = array.to_numpy(dtype=dtype, copy=False).view()
    values.flags.writeable = False
    return values, None


def _unsupported(
    name: str | None, fact: str, hint: str = "cast it to a numeric type first, or leave it out"
) -> UnsupportedDTypeError:
    where = "" if name is None else f"column '{name}': "
    return UnsupportedDTypeError(f"{where}{fact}\nhint: {hint}")


def _times(series: Any, options: _ArrowOptions, name: str | None) -> tuple[Any, Any]:
    """The integers of dates or durations, and where they are valid."""
    import numpy as np

    if not options.has_times:
        hint = 'pass temporal="integer" to ferry.arrow.to for its integers'
        raise _unsupported(name, f"a column of type {series.dtype} has no tensor", hint)
    valid = ~series.isna().to_numpy() if series.hasnans else None
    if not isinstance(series.dtype, np.dtype):  # with a time zone
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    return series.to_numpy(copy=False).view("int64"), valid


def _categories(series: Any, options: _ArrowOptions, name: str | None) -> tuple[Any, Any]:
    """The codes of categories or their values, and where they are valid."""
    import numpy as np

    codes = series.cat.codes.to_numpy(copy=False)
    valid = codes >= 0 if series.hasnans else None
    if not options.is_decoded:
        return codes, valid
    categories = series.cat.categories.to_numpy()
    if categories.dtype.kind not in _NUMBERS:
        hint = 'pass dictionary="codes" to ferry.arrow.to for its codes'
        raise _unsupported(name, f"categories of type {categories.dtype} have no tensor", hint)
    if categories.size == 0:  # all of them are null
        return np.zeros(codes.shape, categories.dtype), valid
    decoded = _Decoded(categories, codes)
    return (decoded, None) if valid is None else (decoded.__array__(), valid)


class _Decoded:
    """The values of categories, which are decoded at each conversion: memory of no column."""

    def __init__(self, categories: Any, codes: Any) -> None:
        self.dtype, self.shape = categories.dtype, codes.shape
        self._categories, self._codes = categories, codes

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("categories are decoded into new memory")
        # The code of a null is -1.
        return self._categories.take(self._codes, mode="clip")


def _stack(frame: Any, labels: list[Hashable], options: _ArrowOptions) -> Any:
    """The columns as one matrix."""
    import numpy as np

    columns = []
    for label in labels:
        column = _column(frame[label], options, label)
        if isinstance(column, _Decoded):
            column = column.__array__()
        is_array = isinstance(column, np.ndarray)
        columns.append((str(label), _arrow_export_column(column) if is_array else column))
    return _arrow_stack(columns, options)
