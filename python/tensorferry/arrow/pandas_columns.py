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
    _arrow_export_table,
    _arrow_read,
)
from tensorferry._native import to as _to

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from tensorferry._native import _ArrowOptions


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
    for label in labels:
        if label not in x.columns:
            known = ", ".join(str(label) for label in x.columns[:10])
            raise InvalidArgumentError(
                f"the table has no column {label!r}\nhint: pass some of {known}"
            )
        if labels.count(label) > 1 or x.columns.get_indexer_for([label]).size > 1:
            raise InvalidArgumentError(f"two columns are {label!r}\nhint: rename one of them")
    if stack:
        return _stack(x, labels, options)
    return {label: _read_series(x[label], options, label) for label in labels}


def _read_series(series: Any, options: _ArrowOptions, label: Hashable) -> Any:
    """One column; errors name its label."""
    import numpy as np

    dtype = series.dtype
    name = None if label is None else str(label)
    if hasattr(dtype, "pyarrow_dtype"):
        return _arrow_read(series.array.__arrow_array__(), options, name=name)
    if isinstance(dtype, np.dtype):
        values, valid = series.to_numpy(copy=False), None
        if dtype.kind in "mM":
            values, valid = _times(series, options, name)
    elif hasattr(dtype, "categories"):
        values, valid = _categories(series, options, name)
    elif getattr(dtype, "kind", "O") == "M":  # with a time zone
        utc = series.dt.tz_convert("UTC").dt.tz_localize(None)
        values, valid = _times(utc, options, name)
    elif hasattr(dtype, "numpy_dtype"):
        if series.hasnans:
            values = series.to_numpy(dtype=dtype.numpy_dtype, na_value=0)
            valid = ~series.isna().to_numpy()
        else:
            # The memory of pandas, which other columns may share.
            values, valid = series.to_numpy(dtype=dtype.numpy_dtype, copy=False).view(), None
            values.flags.writeable = False
    else:
        raise _unsupported(name, f"a column of type {dtype} has no tensor")
    if values.dtype.kind not in "biufc":
        hint = "cast it to a numeric type first, or leave it out"
        raise _unsupported(name, f"a column of type {dtype} has no tensor", hint)
    if valid is None and not options.has_mask:
        return values
    bits = None if valid is None else np.packbits(valid, bitorder="little")
    return _arrow_read(_arrow_export_column(values, bits), options, name=name)


def _unsupported(
    name: str | None, fact: str, hint: str = "cast it to a numeric type first, or leave it out"
) -> UnsupportedDTypeError:
    where = "" if name is None else f" (column '{name}')"
    return UnsupportedDTypeError(f"{fact}{where}\nhint: {hint}")


def _times(series: Any, options: _ArrowOptions, name: str | None) -> tuple[Any, Any]:
    """The integers of dates or durations, and where they are valid."""
    if not options.has_times:
        hint = 'pass temporal="integer" to ferry.arrow.to for its integers'
        raise _unsupported(name, f"a column of type {series.dtype} has no tensor", hint)
    valid = ~series.isna().to_numpy() if series.hasnans else None
    return series.to_numpy(copy=False).view("int64"), valid


def _categories(series: Any, options: _ArrowOptions, name: str | None) -> tuple[Any, Any]:
    """The codes of categories or their values, and where they are valid."""
    codes = series.cat.codes.to_numpy(copy=False)
    valid = codes >= 0 if series.hasnans else None
    if not options.is_decoded:
        return codes, valid
    categories = series.cat.categories.to_numpy()
    if categories.dtype.kind not in "biufc":
        hint = 'pass dictionary="codes" to ferry.arrow.to for its codes'
        raise _unsupported(name, f"categories of type {categories.dtype} have no tensor", hint)
    # The code of a null is -1.
    return categories.take(codes, mode="clip"), valid


def _stack(frame: Any, labels: list[Hashable], options: _ArrowOptions) -> Any:
    """The columns as one matrix: a view of pandas' own memory if they are in one block."""
    if options.has_mask:
        raise InvalidArgumentError(
            'nulls="mask" has no matrix of masks'
            '\nhint: pass a number or "nan" for nulls, or leave out stack'
        )
    arrays = [_to(_read_series(frame[label], options, label), "numpy") for label in labels]
    block = _one_block(arrays)
    if block is not None:
        return block
    named = [(str(label), array) for label, array in zip(labels, arrays, strict=True)]
    return _arrow_read(_arrow_export_table(named), options, stack=True)


def _one_block(arrays: list[Any]) -> Any:
    """A matrix over the memory of columns that one array holds at equal distances, or None."""
    import numpy as np

    if not arrays or arrays[0].base is None:
        return None
    first = arrays[0]
    addresses = [array.__array_interface__["data"][0] for array in arrays]
    step = addresses[1] - addresses[0] if len(arrays) > 1 else first.itemsize
    is_one_block = all(
        array.base is first.base
        and (array.dtype, array.strides, array.shape) == (first.dtype, first.strides, first.shape)
        and address == addresses[0] + position * step
        for position, (array, address) in enumerate(zip(arrays, addresses, strict=True))
    )
    if not is_one_block:
        return None
    shape, strides = (*first.shape, len(arrays)), (*first.strides, step)
    return np.lib.stride_tricks.as_strided(first, shape, strides, writeable=False)
