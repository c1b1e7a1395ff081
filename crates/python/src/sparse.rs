//! Sparse tensors: what no framework's reader takes may be one, and then the package's own module carries its parts.
//!
//! Most are known by their type. PyTorch's are looked for where a trip has failed, or where a caller speaks of them, so that no
//! other trip pays for them. The modules below have what the package has done here.

mod arrays;
mod filling;
mod looking;
mod making;
mod ordering;
mod places;

use crate::errors::{Failure, Result, describe, fail, type_name};
use crate::frameworks::register;
use crate::kinds::Recognised;
use crate::once::ForkSafeOnce;
use crate::recognise::recognise;
use crate::tree;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use tensorferry_core::ErrorKind;

/// Puts what the package has done here into the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ordering::SparseOrder>()?;
    module.add_function(wrap_pyfunction!(_holds_sparse, module)?)?;
    module.add_function(wrap_pyfunction!(looking::_sparse_look_compressed, module)?)?;
    module.add_function(wrap_pyfunction!(looking::_sparse_look_coordinates, module)?)?;
    module.add_function(wrap_pyfunction!(making::_sparse_expand, module)?)?;
    module.add_function(wrap_pyfunction!(making::_sparse_pointers, module)?)?;
    module.add_function(wrap_pyfunction!(making::_sparse_lay, module)?)?;
    module.add_function(wrap_pyfunction!(making::_sparse_turn_compressed, module)?)?;
    module.add_function(wrap_pyfunction!(making::_sparse_turn_coordinates, module)?)?;
    module.add_function(wrap_pyfunction!(filling::_sparse_dense_compressed, module)?)?;
    module.add_function(wrap_pyfunction!(filling::_sparse_dense_coordinates, module)?)
}

/// Options of `to` that are not for sparse tensors.
const OTHERS: [&str; 3] = ["out", "budget", "progress"];

/// Options of `to` that the package's own function takes.
const TAKEN: [&str; 5] = ["device", "dtype", "copy", "writable", "stream"];

/// The name of the framework, if it holds sparse tensors and no dense ones.
pub(crate) fn sparse_only(framework: &Bound<'_, PyAny>) -> Option<&'static str> {
    let entry = register::find(&register::written(framework).ok()?)?;
    entry.dense.is_none().then_some(entry.name)
}

/// Whether it is a sparse tensor, as far as its type tells; of PyTorch's tensors it does not.
pub(crate) fn is_known(recognised: Recognised) -> bool {
    matches!(recognised, Recognised::Refused(refusal) if refusal.is_sparse())
}

/// Whether it is a sparse tensor.
pub(crate) fn is_sparse(x: &Bound<'_, PyAny>) -> Result<bool> {
    let recognised = recognise(x)?;
    Ok(is_known(recognised) || register::is_sparse_torch(x, recognised)?)
}

/// The package's module.
fn package(py: Python<'_>) -> Result<&Bound<'_, PyAny>> {
    static PACKAGE: ForkSafeOnce<Py<PyAny>> = ForkSafeOnce::new();
    let make = || -> Result<_> { Ok(py.import("tensorferry.sparse")?.into_any().unbind()) };
    Ok(PACKAGE.get_or_try_init(py, make)?.bind(py))
}

/// Whether a call can be handed on to the package's function as it is.
pub(crate) fn takes(keywords: &Bound<'_, PyDict>) -> bool {
    keywords.keys().iter().all(|name| {
        name.cast::<PyString>().is_ok_and(|name| name.to_str().is_ok_and(|name| TAKEN.contains(&name)))
    })
}

/// What the module makes of it, by its function of this name.
pub(crate) fn call<'py>(
    function: &str,
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    for name in OTHERS {
        let given = keywords.map_or(Ok(None), |keywords| keywords.get_item(name))?;
        if given.is_some_and(|given| !given.is_none()) {
            let fact = format!("{name} is not for sparse tensors");
            return Err(fail(ErrorKind::InvalidArgument, fact, format!("leave {name} out")));
        }
    }
    Ok(package(x.py())?.getattr(function)?.call((x, framework), keywords)?)
}

/// The same for an object with which a trip has failed, if it is a sparse tensor; the failure otherwise.
pub(crate) fn or_sparse<'py>(
    failure: Failure,
    function: &str,
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    if is_sparse(x)? { call(function, x, framework, keywords) } else { Err(failure) }
}

/// Carries what is not sparse.
type Other<'py, 'a> = dyn FnMut(&Bound<'py, PyAny>, Recognised) -> Result<Bound<'py, PyAny>> + 'a;

/// Carries a sparse tensor, or a tree in which `other` carries whatever else there is.
pub(crate) fn carry<'py>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    keywords: Option<&Bound<'py, PyDict>>,
    any: bool,
    other: &mut Other<'py, '_>,
) -> Result<Bound<'py, PyAny>> {
    let recognised = recognise(x)?;
    let mut one = |x: &Bound<'py, PyAny>, recognised| {
        if is_sparse(x)? { call("to", x, framework, keywords) } else { other(x, recognised) }
    };
    match tree::container_of(x, recognised)? {
        Some(container) => {
            let walk = if any { tree::walk_any } else { tree::walk };
            walk(x, container, true, &mut |leaf, kind, _| one(leaf, kind))
        }
        None => one(x, recognised),
    }
}

/// Whether a tree holds a sparse tensor; None for what is not a container.
#[pyfunction]
pub(crate) fn _holds_sparse(tree: &Bound<'_, PyAny>) -> Result<Option<bool>> {
    let Some(container) = tree::container_of(tree, recognise(tree)?)? else { return Ok(None) };
    let mut found = false;
    tree::walk_any(tree, container, false, &mut |leaf, _, _| {
        found = found || is_sparse(leaf)?;
        Ok(leaf.clone())
    })?;
    Ok(Some(found))
}

/// The error of a dense tensor on its way to a framework that holds sparse tensors only.
pub(crate) fn is_dense(x: &Bound<'_, PyAny>, framework: &Bound<'_, PyAny>) -> Failure {
    let fact =
        format!("{} holds sparse tensors only, and {} is not sparse", describe(framework), type_name(x));
    fail(ErrorKind::InvalidArgument, fact, "name a framework that holds dense tensors, such as \"numpy\"")
}
