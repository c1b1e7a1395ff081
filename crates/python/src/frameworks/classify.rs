//! What kind of object something is, for Python code: dense, sparse, traced, opaque or other.

use super::builtin_frameworks::entry_of_refusal;
use super::user_frameworks;
use crate::conversion::object_kinds::{Builtin, Recognised};
use crate::conversion::reading::refused_values;
use crate::conversion::recognise::{recognise, recognise_type};
use crate::errors::Result;
use crate::interpreter::once::interned;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use std::borrow::Cow;

/// The framework and the kind of an object: "dense", "sparse", "traced" (a value without memory, in a function that is
/// being traced), "opaque" (another tensor without readable memory) or "other" (an object of a framework that is not a
/// tensor in the sense of the Array API). None for objects that belong to no framework. Imports nothing.
#[pyfunction]
pub(crate) fn classify<'py>(x: &Bound<'py, PyAny>) -> Result<Option<(Bound<'py, PyString>, &'static str)>> {
    let py = x.py();
    let recognised = recognise(x)?.kind();
    let (name, kind) = match name_and_kind(py, recognised) {
        Some((name, "dense")) if is_sparse_torch(x, recognised)? => (name, "sparse"),
        Some(found) => found,
        None => return Ok(None),
    };
    Ok(Some((PyString::new(py, &name), kind)))
}

/// [`classify`] for a type. Types of PyTorch do not distinguish sparse tensors.
#[pyfunction]
pub(crate) fn classify_type<'py>(
    kind: &Bound<'py, PyType>,
) -> Result<Option<(Bound<'py, PyString>, &'static str)>> {
    let py = kind.py();
    Ok(name_and_kind(py, recognise_type(kind)?).map(|(name, kind)| (PyString::new(py, &name), kind)))
}

/// Whether an object is an array that no framework can use as it is, such as a masked one, or a quantity.
#[pyfunction]
pub(crate) fn _is_refused(x: &Bound<'_, PyAny>) -> Result<bool> {
    let refusal = match recognise(x)?.kind() {
        Recognised::Refused(refusal) => Some(refusal),
        Recognised::Protocol => refused_values(x)?.map(|(_, refusal)| refusal),
        _ => None,
    };
    Ok(refusal.is_some_and(|refusal| refusal.kind() == "other"))
}

fn name_and_kind(py: Python<'_>, recognised: Recognised) -> Option<(Cow<'static, str>, &'static str)> {
    match recognised {
        Recognised::Tensor(framework, _) => Some((framework.entry().name.into(), "dense")),
        Recognised::Registered(index) => Some((user_frameworks::name_at(py, index)?.into(), "dense")),
        Recognised::Refused(refusal) => Some((entry_of_refusal(refusal)?.name.into(), refusal.kind())),
        _ => None,
    }
}

/// Whether `x` is a sparse tensor of PyTorch. Its type does not tell; its layout does.
pub(crate) fn is_sparse_torch(x: &Bound<'_, PyAny>, recognised: Recognised) -> Result<bool> {
    if !matches!(recognised, Recognised::Tensor(Builtin::Torch, _)) {
        return Ok(false);
    }
    let layout = x.getattr(interned!(x.py(), "layout"))?.str()?;
    Ok(layout.to_str()?.starts_with("torch.sparse_"))
}
