//! Sparse tensors: what no framework's reader takes may be one, and then the package's own module carries its parts.
//!
//! They are looked for where a trip has failed, so that no other trip pays for them.

use crate::errors::{Failure, Result, type_name};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Keywords that only sparse tensors have.
const OWN: [&str; 3] = ["dense", "format", "blocksize"];

/// Packages whose objects may be sparse tensors.
const PACKAGES: [&str; 6] = ["scipy", "torch", "jax", "tensorflow", "cupyx", "sparse"];

/// Whether the caller speaks of a sparse tensor; if not, what only sparse tensors have is taken out.
pub(crate) fn is_meant(keywords: &Bound<'_, PyDict>) -> Result<bool> {
    for name in OWN {
        match keywords.get_item(name)? {
            Some(value) if value.is_truthy()? => return Ok(true),
            Some(_) => keywords.del_item(name)?,
            None => {}
        }
    }
    Ok(false)
}

/// What the module makes of it, by its function of this name.
pub(crate) fn call<'py>(
    function: &str,
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    let module = x.py().import("tensorferry.sparse")?;
    Ok(module.getattr(function)?.call((x, framework), keywords)?)
}

/// The same for an object with which a trip has failed, if it is a sparse tensor; the failure otherwise.
pub(crate) fn or_sparse<'py>(
    failure: Failure,
    function: &str,
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    let name = type_name(x);
    let package = name.split('.').next().unwrap_or_default();
    if !PACKAGES.contains(&package) {
        return Err(failure);
    }
    let module = x.py().import("tensorferry.sparse")?;
    if module.getattr("is_sparse")?.call1((x,))?.is_truthy()? {
        return call(function, x, framework, keywords);
    }
    Err(failure)
}
