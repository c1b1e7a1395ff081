//! Sparse tensors: what no framework's reader takes may be one, and then its arrays are carried.
//!
//! Most are recognised by their type. PyTorch's are looked for where a trip has failed, or where a caller speaks of them, so that no
//! other trip pays for them. The package's modules take a tensor apart (`read`) and put one together (`write`). Everything between
//! is here: `route` decides by the planner of the core and carries the arrays, `validate` checks them, and an `engine` works on their
//! elements, which is `host` or `gpu`. `dense` makes dense tensors.

mod arrays;
mod call_options;
mod capabilities;
mod components;
mod convert;
mod engine;
mod framework_functions;
mod gpu;
mod host;
mod to_dense;
mod validate;

use crate::api::options;
use crate::conversion::carry::{self, ConversionRequest};
use crate::conversion::kinds::{Builtin, Recognised};
use crate::conversion::recognise::recognise;
use crate::errors::{Failure, Result, describe, fail, type_name};
use crate::frameworks;
use crate::frameworks::register::{self, Entry};
use crate::interpreter::type_cache::Cache;
use crate::reports::PlanReport;
use crate::trees::traverse;
use call_options::Request;
use convert::Decided;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use tensorferry_core::ErrorKind;
use to_dense::DenseRoute;

/// Adds the functions that the package calls.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_sparse_to, module)?)?;
    module.add_function(wrap_pyfunction!(_sparse_to_dense, module)?)?;
    module.add_function(wrap_pyfunction!(_sparse_plan, module)?)?;
    module.add_function(wrap_pyfunction!(convert::_sparse_use_framework_engine, module)?)
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

/// The framework of a sparse tensor; None for anything else.
fn owner(x: &Bound<'_, PyAny>) -> Result<Option<&'static Entry>> {
    Ok(match recognise(x)? {
        Recognised::Refused(refusal) if refusal.is_sparse() => register::of_refusal(refusal),
        recognised if register::is_sparse_torch(x, recognised)? => Some(Builtin::Torch.entry()),
        _ => None,
    })
}

/// The framework of sparse tensors that the caller named.
fn target(framework: &Bound<'_, PyAny>) -> Result<&'static Entry> {
    static TARGETS: Cache<&'static Entry> = Cache::new();
    let py = framework.py();
    if let Some(entry) = TARGETS.get(py, framework.as_ptr()) {
        return Ok(entry);
    }
    let name = register::canonical(framework)?;
    match register::find(&name) {
        Some(entry) if entry.has_sparse => {
            TARGETS.put(framework, entry);
            Ok(entry)
        }
        entry => {
            let title = entry.map_or(name.as_str(), |entry| entry.title);
            let other = match name.as_str() {
                "numpy" => "\"scipy\"".to_owned(),
                _ => format!("one of {}", capabilities::names().join(", ")),
            };
            Err(fail(
                ErrorKind::InvalidArgument,
                format!("{title} has no sparse tensors"),
                format!("write {other}, or ferry.sparse.to_dense(x, \"{name}\") for a dense tensor"),
            ))
        }
    }
}

/// Carries one sparse tensor.
fn carry_one<'py>(
    x: &Bound<'py, PyAny>,
    source: &'static Entry,
    framework: &Bound<'py, PyAny>,
    request: &Request<'py>,
) -> Result<Bound<'py, PyAny>> {
    let target = target(framework)?;
    match convert::decide(x, source, target, request, false) {
        Ok(Decided::Itself(..)) => Ok(x.clone()),
        Ok(Decided::Converted(route)) => route.run(),
        // A traced tensor has no memory, and its own framework asks for none.
        Err(Failure::Ferry(error))
            if error.kind() == ErrorKind::NotATensor
                && request.is_empty()
                && std::ptr::eq(source, target) =>
        {
            Ok(x.clone())
        }
        Err(failure) => Err(failure),
    }
}

/// The plan of one sparse tensor.
fn plan_one<'py>(
    x: &Bound<'py, PyAny>,
    source: &'static Entry,
    framework: &Bound<'py, PyAny>,
    request: &Request<'py>,
) -> Result<PlanReport> {
    let report = match convert::decide(x, source, target(framework)?, request, false)? {
        Decided::Itself(parts, landing, shape) => convert::itself_report(&parts, &landing, &shape),
        Decided::Converted(route) => route.report()?,
    };
    Ok(report.into())
}

/// The error of an object that is not a sparse tensor.
fn not_sparse(x: &Bound<'_, PyAny>) -> Failure {
    let fact = format!("{} is not a sparse tensor", type_name(x));
    fail(ErrorKind::NotATensor, fact, "ferry.to and ferry.plan take dense tensors and trees")
}

/// What is done with one sparse tensor of a framework.
type EachSparse<'py, 'a> = dyn Fn(&Bound<'py, PyAny>, &'static Entry) -> Result<Bound<'py, PyAny>> + 'a;

/// Does something with a sparse tensor, or with the sparse tensors of a tree, whose dense tensors go by `to`.
fn each<'py>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    request: &Request<'py>,
    one: &EachSparse<'py, '_>,
) -> Result<Bound<'py, PyAny>> {
    if let Some(source) = owner(x)? {
        return one(x, source);
    }
    register::canonical(framework)?; // checks the name
    let Some(container) = traverse::container_of(x, recognise(x)?)? else { return Err(not_sparse(x)) };
    if !holds_sparse(x, container)? {
        let fact = format!("the {} holds no sparse tensor", x.get_type().name()?);
        return Err(fail(ErrorKind::NotATensor, fact, "carry dense tensors by ferry.to"));
    }
    traverse::walk_any(x, container, true, &mut |leaf, recognised, _| match owner(leaf)? {
        Some(source) => one(leaf, source),
        None => {
            let target = frameworks::target(framework).map_err(|_| is_dense(leaf, framework))?;
            let request = ConversionRequest {
                options: request.options,
                stream: request.stream(leaf.py()),
                ..ConversionRequest::plain(target)
            };
            carry::one(leaf, recognised, &request)
        }
    })
}

/// Carries a sparse tensor, or the sparse tensors of a tree.
#[pyfunction]
#[pyo3(signature = (x, framework, format, blocksize, device, dtype, copy, writable, stream, /))]
#[expect(clippy::too_many_arguments, reason = "the options of ferry.sparse.to, by position")]
fn _sparse_to<'py>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    format: Option<&Bound<'py, PyAny>>,
    blocksize: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    dtype: Option<&Bound<'py, PyAny>>,
    copy: Option<&Bound<'py, PyAny>>,
    writable: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    let keywords = options::common(device, dtype, copy, writable, stream)?;
    let request = Request::new(format, blocksize, keywords);
    each(x, framework, &request, &|leaf, source| carry_one(leaf, source, framework, &request))
}

/// Makes the dense tensor of a sparse one, or of the sparse tensors of a tree.
#[pyfunction]
#[pyo3(signature = (x, framework, device, dtype, copy, writable, stream, /))]
fn _sparse_to_dense<'py>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    device: Option<&Bound<'py, PyAny>>,
    dtype: Option<&Bound<'py, PyAny>>,
    copy: Option<&Bound<'py, PyAny>>,
    writable: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    let request = Request::new(None, None, options::common(device, dtype, copy, writable, stream)?);
    each(x, framework, &request, &|leaf, source| DenseRoute::decide(leaf, source, framework, &request)?.run())
}

/// Says what `_sparse_to`, or `_sparse_to_dense`, would do.
#[pyfunction]
#[pyo3(signature = (x, framework, format, blocksize, dense, device, dtype, copy, writable, stream, /))]
#[expect(clippy::too_many_arguments, reason = "the options of ferry.sparse.plan, by position")]
fn _sparse_plan<'py>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    format: Option<&Bound<'py, PyAny>>,
    blocksize: Option<&Bound<'py, PyAny>>,
    dense: bool,
    device: Option<&Bound<'py, PyAny>>,
    dtype: Option<&Bound<'py, PyAny>>,
    copy: Option<&Bound<'py, PyAny>>,
    writable: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
) -> Result<PlanReport> {
    let Some(source) = owner(x)? else { return Err(not_sparse(x)) };
    let request = Request::new(format, blocksize, options::common(device, dtype, copy, writable, stream)?);
    if !dense {
        return plan_one(x, source, framework, &request);
    }
    if format.is_some() || blocksize.is_some() {
        return Err(fail(
            ErrorKind::InvalidArgument,
            "a dense tensor has no sparse format",
            "leave out format and blocksize, or leave out dense=True",
        ));
    }
    Ok(DenseRoute::decide(x, source, framework, &request)?.report()?.into())
}

/// Whether a call can be handed on to the package's function as it is.
pub(crate) fn takes(keywords: &Bound<'_, PyDict>) -> bool {
    keywords.keys().iter().all(|name| {
        name.cast::<PyString>().is_ok_and(|name| name.to_str().is_ok_and(|name| TAKEN.contains(&name)))
    })
}

/// The request of a caller of `to` or `plan`.
fn request<'py>(function: &str, keywords: Option<&Bound<'py, PyDict>>) -> Result<Request<'py>> {
    let Some(keywords) = keywords else { return Ok(Request::new(None, None, options::Keywords::none())) };
    for name in OTHERS {
        if keywords.get_item(name)?.is_some_and(|given| !given.is_none()) {
            let fact = format!("{name} is not for sparse tensors");
            return Err(fail(ErrorKind::InvalidArgument, fact, format!("leave {name} out")));
        }
    }
    Ok(Request::new(None, None, options::parse(function, keywords, true)?))
}

/// What a caller wants to know of a sparse tensor, or to be done with it.
#[derive(Clone, Copy)]
pub(crate) enum Asked {
    /// The tensor of the target.
    To,
    /// The plan.
    Plan,
}

/// Carries a sparse tensor, or plans it; None for anything else.
fn asked<'py>(
    asked: Asked,
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<Option<Bound<'py, PyAny>>> {
    let Some(source) = owner(x)? else { return Ok(None) };
    Ok(Some(match asked {
        Asked::To => carry_one(x, source, framework, &request("to", keywords)?)?,
        Asked::Plan => {
            let plan = plan_one(x, source, framework, &request("plan", keywords)?)?;
            Bound::new(x.py(), plan)?.into_any()
        }
    }))
}

/// Carries a sparse tensor.
pub(crate) fn to<'py>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    asked(Asked::To, x, framework, keywords)?.ok_or_else(|| not_sparse(x))
}

/// The same for an object with which a trip has failed, if it is a sparse tensor; the failure otherwise.
pub(crate) fn or_sparse<'py>(
    failure: Failure,
    what: Asked,
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    asked(what, x, framework, keywords)?.ok_or(failure)
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
    let mut one = |x: &Bound<'py, PyAny>, recognised| match asked(Asked::To, x, framework, keywords)? {
        Some(carried) => Ok(carried),
        None => other(x, recognised),
    };
    match traverse::container_of(x, recognised)? {
        Some(container) => {
            let walk = if any { traverse::walk_any } else { traverse::walk };
            walk(x, container, true, &mut |leaf, kind, _| one(leaf, kind))
        }
        None => one(x, recognised),
    }
}

/// Whether a tree holds a sparse tensor.
fn holds_sparse(tree: &Bound<'_, PyAny>, container: crate::conversion::kinds::Container) -> Result<bool> {
    let mut found = false;
    traverse::walk_any(tree, container, false, &mut |leaf, _, _| {
        found = found || is_sparse(leaf)?;
        Ok(leaf.clone())
    })?;
    Ok(found)
}

/// The error of a dense tensor on its way to a framework that holds sparse tensors only.
pub(crate) fn is_dense(x: &Bound<'_, PyAny>, framework: &Bound<'_, PyAny>) -> Failure {
    let fact =
        format!("{} holds sparse tensors only, and {} is not sparse", describe(framework), type_name(x));
    fail(ErrorKind::InvalidArgument, fact, "name a framework that holds dense tensors, such as \"numpy\"")
}
