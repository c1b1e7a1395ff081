//! Conversion of sparse tensors between frameworks and formats, and to dense tensors.
//!
//! Most sparse tensors are recognised by their type. PyTorch's share the type of dense tensors, so they are tested for only after a
//! dense conversion has failed, or in calls of `ferry.sparse`: other conversions do not pay for the test.
//!
//! Python functions of each framework read the components of a tensor (`framework_functions`, `components`) and build the result.
//! `convert` plans with the core and converts the arrays, `validate` checks them, and an `engine` (`host` or `gpu`) processes their
//! elements. `to_dense` makes dense tensors.

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
use crate::conversion::convert as dense_conversion;
use crate::conversion::object_kinds::{Builtin, Recognised, RecognisedObject};
use crate::conversion::recognise::recognise;
use crate::conversion::request::ConversionRequest;
use crate::errors::{Failure, Result, describe_argument, fail, type_name};
use crate::frameworks;
use crate::frameworks::builtin_frameworks::{self, Entry};
use crate::frameworks::{classify, names};
use crate::interpreter::type_cache::Cache;
use crate::reports::{PlanReport, TensorReport, trace};
use crate::trees::traverse;
use call_options::SparseCallOptions;
use convert::ConversionDecision;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use tensorferry_core::ErrorKind;
use to_dense::DenseConversion;

/// Adds the functions that the Python package calls.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_sparse_to, module)?)?;
    module.add_function(wrap_pyfunction!(_sparse_to_dense, module)?)?;
    module.add_function(wrap_pyfunction!(_sparse_plan, module)?)?;
    module.add_function(wrap_pyfunction!(convert::_sparse_use_framework_engine, module)?)
}

/// Options of `to` that sparse tensors do not support.
const DENSE_ONLY_OPTIONS: [&str; 3] = ["out", "budget", "progress"];

/// Options of `to` that sparse tensors support.
const FORWARDED_OPTIONS: [&str; 5] = ["device", "dtype", "copy", "writable", "stream"];

/// The name of the framework, if it has only sparse tensors.
pub(crate) fn sparse_only_framework(framework: &Bound<'_, PyAny>) -> Option<&'static str> {
    let entry = builtin_frameworks::find(&names::requested_name(framework).ok()?)?;
    entry.dense.is_none().then_some(entry.name)
}

/// Whether the type is that of a sparse tensor. False for PyTorch's, whose type does not tell.
pub(crate) fn is_sparse_type(recognised: Recognised) -> bool {
    matches!(recognised, Recognised::Refused(refusal) if refusal.is_sparse())
}

/// Whether the object is a sparse tensor.
pub(crate) fn is_sparse(x: &Bound<'_, PyAny>) -> Result<bool> {
    let kind = recognise(x)?.kind();
    Ok(is_sparse_type(kind) || classify::is_sparse_torch(x, kind)?)
}

/// The framework of a sparse tensor; None for anything else.
fn source_framework(x: &Bound<'_, PyAny>) -> Result<Option<&'static Entry>> {
    Ok(match recognise(x)?.kind() {
        Recognised::Refused(refusal) if refusal.is_sparse() => builtin_frameworks::entry_of_refusal(refusal),
        recognised if classify::is_sparse_torch(x, recognised)? => Some(Builtin::Torch.entry()),
        _ => None,
    })
}

/// The framework that the caller named, if it has sparse tensors.
fn sparse_target(framework: &Bound<'_, PyAny>) -> Result<&'static Entry> {
    static TARGETS: Cache<&'static Entry> = Cache::new();
    let py = framework.py();
    if let Some(entry) = TARGETS.get(py, framework.as_ptr()) {
        return Ok(entry);
    }
    let name = names::canonical(framework)?;
    match builtin_frameworks::find(&name) {
        Some(entry) if entry.has_sparse => {
            TARGETS.put(framework, entry);
            Ok(entry)
        }
        entry => {
            let title = entry.map_or(name.as_str(), |entry| entry.title);
            let other = match name.as_str() {
                "numpy" => "\"scipy\"".to_owned(),
                _ => format!("one of {}", capabilities::sparse_framework_names().join(", ")),
            };
            Err(fail(
                ErrorKind::InvalidArgument,
                format!("{title} has no sparse tensors"),
                format!("pass {other}, or call ferry.sparse.to_dense(x, \"{name}\") for a dense tensor"),
            ))
        }
    }
}

/// The decision about one sparse tensor. None for a traced one, which has no memory: its own framework gets it back as it is.
fn decide<'py>(
    x: &Bound<'py, PyAny>,
    source: &'static Entry,
    framework: &Bound<'py, PyAny>,
    call_options: &SparseCallOptions<'py>,
) -> Result<Option<ConversionDecision<'py>>> {
    let target = sparse_target(framework)?;
    match convert::decide(x, source, target, call_options, false) {
        Err(Failure::Ferry(error))
            if error.kind() == ErrorKind::NotATensor
                && call_options.is_default()
                && std::ptr::eq(source, target) =>
        {
            Ok(None)
        }
        decision => decision.map(Some),
    }
}

/// The report about a decision.
fn report_of(source: &'static Entry, decision: &mut Option<ConversionDecision<'_>>) -> Result<PlanReport> {
    Ok(match decision {
        None => TensorReport::unchanged(source.name).into(),
        Some(ConversionDecision::Itself(components, placement, shape)) => {
            convert::unchanged_report(components, placement, shape).into()
        }
        Some(ConversionDecision::Convert(conversion)) => conversion.report()?.into(),
    })
}

/// Converts one sparse tensor.
fn convert_one<'py>(
    x: &Bound<'py, PyAny>,
    source: &'static Entry,
    framework: &Bound<'py, PyAny>,
    call_options: &SparseCallOptions<'py>,
) -> Result<Bound<'py, PyAny>> {
    trace::record_whole(x.py(), |reported| {
        let mut decision = decide(x, source, framework, call_options)?;
        let report = reported.then(|| report_of(source, &mut decision)).transpose()?;
        let result = match decision {
            Some(ConversionDecision::Convert(conversion)) => conversion.run()?,
            _ => x.clone(),
        };
        Ok((result, report))
    })
}

/// The plan of one sparse tensor.
fn plan_one<'py>(
    x: &Bound<'py, PyAny>,
    source: &'static Entry,
    framework: &Bound<'py, PyAny>,
    call_options: &SparseCallOptions<'py>,
) -> Result<PlanReport> {
    report_of(source, &mut decide(x, source, framework, call_options)?)
}

/// The error of an object that is not a sparse tensor.
fn not_sparse(x: &Bound<'_, PyAny>) -> Failure {
    let fact = format!("{} is not a sparse tensor", type_name(x));
    fail(ErrorKind::NotATensor, fact, "use ferry.to or ferry.plan for dense tensors and trees")
}

/// A function of a sparse tensor and its framework.
type SparseVisitor<'py, 'a> = dyn Fn(&Bound<'py, PyAny>, &'static Entry) -> Result<Bound<'py, PyAny>> + 'a;

/// Applies a function to a sparse tensor, or to the sparse tensors of a tree. Dense tensors of the tree are converted as by `to`.
fn for_each_sparse<'py>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    call_options: &SparseCallOptions<'py>,
    one: &SparseVisitor<'py, '_>,
) -> Result<Bound<'py, PyAny>> {
    if let Some(source) = source_framework(x)? {
        return one(x, source);
    }
    // An unknown name is reported before the tree is traversed.
    names::canonical(framework)?;
    let Some(container) = traverse::container_of(recognise(x)?)? else { return Err(not_sparse(x)) };
    if !contains_sparse(x, container)? {
        let fact = format!("the {} contains no sparse tensor", x.get_type().name()?);
        return Err(fail(ErrorKind::NotATensor, fact, "use ferry.to for dense tensors"));
    }
    traverse::walk_allowing_no_tensor(x, container, true, &mut |recognised, _| {
        let leaf = recognised.object();
        if let Some(source) = source_framework(leaf)? {
            return one(leaf, source);
        }
        let target = frameworks::target(framework).map_err(|_| dense_input_error(leaf, framework))?;
        let request = ConversionRequest {
            options: call_options.options,
            stream: call_options.stream(leaf.py()),
            ..ConversionRequest::new(target)
        };
        dense_conversion::convert_object(recognised, &request)
    })
}

/// Converts a sparse tensor, or the sparse tensors of a tree.
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
    let keywords = options::parse_common(device, dtype, copy, writable, stream)?;
    let call_options = SparseCallOptions::new(format, blocksize, keywords);
    for_each_sparse(x, framework, &call_options, &|leaf, source| {
        convert_one(leaf, source, framework, &call_options)
    })
}

/// Converts a sparse tensor, or the sparse tensors of a tree, to dense tensors.
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
    let call_options =
        SparseCallOptions::new(None, None, options::parse_common(device, dtype, copy, writable, stream)?);
    for_each_sparse(x, framework, &call_options, &|leaf, source| {
        trace::record_whole(leaf.py(), |reported| {
            let conversion = DenseConversion::decide(leaf, source, framework, &call_options)?;
            let report = reported.then(|| conversion.report()).transpose()?;
            Ok((conversion.run()?, report))
        })
    })
}

/// Plans `_sparse_to`, or `_sparse_to_dense`.
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
    let Some(source) = source_framework(x)? else { return Err(not_sparse(x)) };
    let call_options = SparseCallOptions::new(
        format,
        blocksize,
        options::parse_common(device, dtype, copy, writable, stream)?,
    );
    if !dense {
        return plan_one(x, source, framework, &call_options);
    }
    if format.is_some() || blocksize.is_some() {
        return Err(fail(
            ErrorKind::InvalidArgument,
            "a dense tensor has no sparse format",
            "leave out format and blocksize, or leave out dense=True",
        ));
    }
    Ok(DenseConversion::decide(x, source, framework, &call_options)?.report()?.into())
}

/// Whether sparse tensors support every option of the call.
pub(crate) fn supports_options(keywords: &Bound<'_, PyDict>) -> bool {
    keywords.keys().iter().all(|name| {
        name.cast::<PyString>()
            .is_ok_and(|name| name.to_str().is_ok_and(|name| FORWARDED_OPTIONS.contains(&name)))
    })
}

/// Parses the options of `to` or `plan`.
fn parse_call_options<'py>(
    function: &str,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<SparseCallOptions<'py>> {
    let Some(keywords) = keywords else {
        return Ok(SparseCallOptions::new(None, None, options::ParsedKeywords::none()));
    };
    for name in DENSE_ONLY_OPTIONS {
        if keywords.get_item(name)?.is_some_and(|given| !given.is_none()) {
            let fact = format!("{name} is not supported for sparse tensors");
            return Err(fail(ErrorKind::InvalidArgument, fact, format!("leave out {name}")));
        }
    }
    let parsed = options::parse(function, keywords, true)?;
    if parsed.sharding.is_some() {
        return Err(fail(
            ErrorKind::InvalidArgument,
            "device is a sharding, and a sparse tensor is on one device",
            "pass a single device, such as one of jax.local_devices()",
        ));
    }
    Ok(SparseCallOptions::new(None, None, parsed))
}

/// Which function was called with a sparse tensor.
#[derive(Clone, Copy)]
pub(crate) enum SparseCall {
    /// `to`: the result is a tensor of the target.
    To,
    /// `plan`: the result is a plan.
    Plan,
}

/// Converts a sparse tensor, or plans that; None for any other object.
fn handle_sparse<'py>(
    call: SparseCall,
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<Option<Bound<'py, PyAny>>> {
    let Some(source) = source_framework(x)? else { return Ok(None) };
    Ok(Some(match call {
        SparseCall::To => convert_one(x, source, framework, &parse_call_options("to", keywords)?)?,
        SparseCall::Plan => {
            let plan = plan_one(x, source, framework, &parse_call_options("plan", keywords)?)?;
            Bound::new(x.py(), plan)?.into_any()
        }
    }))
}

/// Converts a sparse tensor.
pub(crate) fn convert_tensor<'py>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    handle_sparse(SparseCall::To, x, framework, keywords)?.ok_or_else(|| not_sparse(x))
}

/// Retries a failed conversion or plan if the object is a sparse tensor; returns the failure otherwise.
pub(crate) fn retry_as_sparse<'py>(
    failure: Failure,
    what: SparseCall,
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    handle_sparse(what, x, framework, keywords)?.ok_or(failure)
}

/// Converts an object that is not a sparse tensor.
type DenseVisitor<'py, 'a> = dyn FnMut(RecognisedObject<'_, 'py>) -> Result<Bound<'py, PyAny>> + 'a;

/// Converts a sparse tensor, or a tree in which `other` converts everything else.
pub(crate) fn convert_tree<'py>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    keywords: Option<&Bound<'py, PyDict>>,
    any: bool,
    other: &mut DenseVisitor<'py, '_>,
) -> Result<Bound<'py, PyAny>> {
    let recognised = recognise(x)?;
    let mut one = |recognised: RecognisedObject<'_, 'py>| match handle_sparse(
        SparseCall::To,
        recognised.object(),
        framework,
        keywords,
    )? {
        Some(converted) => Ok(converted),
        None => other(recognised),
    };
    match traverse::container_of(recognised)? {
        Some(container) => {
            let walk = if any { traverse::walk_allowing_no_tensor } else { traverse::walk };
            walk(x, container, true, &mut |leaf, _| one(leaf))
        }
        None => one(recognised),
    }
}

/// Whether a tree contains a sparse tensor.
fn contains_sparse(
    tree: &Bound<'_, PyAny>,
    container: crate::conversion::object_kinds::Container,
) -> Result<bool> {
    let mut found = false;
    traverse::walk_allowing_no_tensor(tree, container, false, &mut |leaf, _| {
        found = found || is_sparse(leaf.object())?;
        Ok(leaf.object().clone())
    })?;
    Ok(found)
}

/// The error of a dense tensor for a framework that has only sparse tensors.
pub(crate) fn dense_input_error(x: &Bound<'_, PyAny>, framework: &Bound<'_, PyAny>) -> Failure {
    let fact = format!(
        "{} has sparse tensors only, and {} is not sparse",
        describe_argument(framework),
        type_name(x)
    );
    fail(ErrorKind::InvalidArgument, fact, "pass a framework that has dense tensors, such as \"numpy\"")
}
