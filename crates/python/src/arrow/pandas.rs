//! Columns and tables of pandas. A column of numbers in NumPy memory is read here; the rest is read in Python.

use super::options::ArrowOptions;
use crate::errors::Result;
use crate::interpreter::once::{ForkSafeOnce, interned};
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;

/// The kinds of NumPy's types that have tensors, as in `pandas_columns.py`.
const NUMBERS: &[u8] = b"biufc";

/// A Series as an object that `ferry.to` converts, or a DataFrame as a dict of them.
pub(super) fn columns<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    static READ: ForkSafeOnce<Py<PyAny>> = ForkSafeOnce::new();
    let py = object.py();
    if is_numpy_column(object)? {
        return Ok(object.call_method0(interned!(py, "to_numpy"))?);
    }
    let import = || PyResult::Ok(py.import("tensorferry.arrow.pandas_columns")?.getattr("read")?.unbind());
    Ok(READ.get_or_try_init(py, import)?.bind(py).call1((object, ArrowOptions::DEFAULT))?)
}

/// Whether an object is a Series of numbers that NumPy's own types hold.
fn is_numpy_column(object: &Bound<'_, PyAny>) -> Result<bool> {
    if object.getattr(interned!(object.py(), "ndim"))?.extract::<usize>()? != 1 {
        return Ok(false);
    }
    let dtype = object.getattr(interned!(object.py(), "dtype"))?;
    Ok(dtype.cast::<PyArrayDescr>().is_ok_and(|dtype| NUMBERS.contains(&dtype.kind())))
}
