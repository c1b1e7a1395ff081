//! What a stream names: the version of its format, the rebuild function, and the words in the place of an element type.

use crate::interpreter::once::ForkSafeOnce;
use pyo3::prelude::*;

/// The version of the arguments of the rebuild function, which a stream begins with.
pub(super) const FORMAT_VERSION: u32 = 1;

/// The module under whose name streams refer to the rebuild function. It must not change.
pub(super) const PUBLIC_MODULE: &str = "tensorferry.pickling";

/// In the place of an element type: the arrays of a sparse tensor follow.
pub(super) const SPARSE_START: &str = "sparse start";

/// In the place of an element type: a sparse tensor is complete.
pub(super) const SPARSE_TENSOR: &str = "sparse tensor";

/// The rebuild function, under the name that streams have.
pub(super) fn rebuild_function(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static REBUILD: ForkSafeOnce<Py<PyAny>> = ForkSafeOnce::new();
    let rebuild = REBUILD.get_or_try_init(py, || -> PyResult<_> {
        Ok(py.import(PUBLIC_MODULE)?.getattr("_rebuild")?.unbind())
    })?;
    Ok(rebuild.bind(py))
}
