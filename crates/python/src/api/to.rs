//! `to`: a C function that PyO3 does not wrap.
//!
//! A wrapped function with nine arguments spends 70 ns on the seven that are usually left out, which is more than reading the
//! tensor costs. This function parses its arguments itself. Two positional arguments are the common case, and all others go
//! through a dict.
//!
//! PyO3 counts the nesting of its functions on each thread, to know whether a reference may be released at once. The fast path
//! does without that count; everything else runs inside `Python::attach`.

use crate::api::options::{self, ParsedKeywords};
use crate::arrow;
use crate::arrow::read::Purpose;
use crate::conversion::batch;
use crate::conversion::convert;
use crate::conversion::fast_path::{self, Outcome};
use crate::conversion::fill_out;
use crate::conversion::object_kinds::RecognisedObject;
use crate::conversion::recognise::recognise;
use crate::conversion::request::ConversionRequest;
use crate::conversion::sharded;
use crate::conversion::tree_memory::TreeMemory;
use crate::errors::{Failure, Result};
use crate::frameworks::{self, numpy};
use crate::interpreter::owner::drop_deferred;
use crate::reports::{Ties, trace};
use crate::sparse::{self, retry_as_sparse};
use crate::trees::traverse::{self, is_scalar};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use tensorferry_core::emergency_pool;

/// The signature, in the form that `inspect` reads, and the docstring.
const DOC: &CStr = c"to(x, framework, *, device=None, dtype=None, copy=None, writable=None, stream=None, budget=None, out=None, progress=None)
--

Converts a tensor, or a tree of tensors, to a framework.

Args:
    x: A tensor of any framework, an object with DLPack, the buffer protocol, an array interface
        or `__array__`, a sparse tensor of SciPy, PyTorch, CuPy, JAX, TensorFlow or the package sparse, or a
        dict, list, tuple, named tuple, dataclass, attrs class, deque, ChainMap, MappingProxyType,
        SimpleNamespace, UserDict or UserList of these.
    framework: \"numpy\", \"cupy\", \"torch\", \"jax\", \"tensorflow\", \"paddle\", \"mlx\", a registered name, or the module.
    device: \"cpu\", \"cpu:1\", \"cuda:1\", a framework's own object, or \"default\" for the target's own default. None
        keeps the tensor where it is if the target can hold it there. For JAX also a jax.sharding.Sharding:
        each device gets its shard.
    dtype: The element type of the result, by name or as a framework's own object. None keeps the type;
        \"default\" takes the target's default width (float32 for float64, and so on).
    copy: None shares when it can and copies when it must, True always copies, False shares or raises
        CopyRequiredError.
    writable: True guarantees a result that may be written: no tensor that was promised to be immutable and no read-only
        memory changes by it. It may share with a writable source; copy=True isolates. False gives a read-only one.
    stream: The CUDA stream on which the result will be used, as a handle or a framework's own object; the
        target's current stream if left out. For torch and cupy on a GPU only.
    budget: The limit of extra memory in bytes; beyond it OutOfMemoryError is raised. With out= only staging buffers count,
        and a transfer between a GPU and the host uses smaller ones.
    out: An existing array or tensor of the target framework to fill and return, on the host (a memory-mapped
        file too) or on a GPU. After an error its contents are undefined.
    progress: True shows a bar on the terminal while bytes move between a GPU and the host; a function is
        called with the bytes that have moved and their total.

Returns:
    The framework's own tensor; `x` itself where nothing needs to change.

Raises:
    FerryError: Each is also the matching builtin exception, and has a `hint`.

Example:
    >>> ferry.to(np.arange(3), \"torch\").tolist()
    [0, 1, 2]
    >>> ferry.to({\"w\": [np.ones(2)]}, \"torch\")[\"w\"][0].sum().item()
    2.0";

/// What a tree is: a caller's, which must hold a tensor; the arguments of a function, which may hold none; or the results of a
/// function of NumPy, whose scalars are tensors too.
const TENSORS: u8 = 0;
const ARGUMENTS: u8 = 1;
const RESULTS: u8 = 2;

/// Adds `to` to the module, and the private `_to_any` and `_to_results` for arguments and results of functions.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    const fn definition(
        name: &'static CStr,
        doc: &'static CStr,
        function: ffi::PyCFunctionFastWithKeywords,
    ) -> ffi::PyMethodDef {
        ffi::PyMethodDef {
            ml_name: name.as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: function },
            ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ml_doc: doc.as_ptr(),
        }
    }
    static mut TO: ffi::PyMethodDef = definition(c"to", DOC, enter::<TENSORS>);
    static mut TO_ANY: ffi::PyMethodDef =
        definition(c"_to_any", c"As `to`, but returns a tree without tensors unchanged.", enter::<ARGUMENTS>);
    static mut TO_RESULTS: ffi::PyMethodDef =
        definition(c"_to_results", c"As `_to_any`, but converts the NumPy scalars too.", enter::<RESULTS>);
    let name = module.name()?;
    let functions = [("to", &raw mut TO), ("_to_any", &raw mut TO_ANY), ("_to_results", &raw mut TO_RESULTS)];
    for (attribute, definition) in functions {
        // SAFETY: `PyCFunction_NewEx` requires a definition that outlives the function, and accepts null as the module: the statics
        // are never written. `name` is a live string. The result is a new reference, or null with an exception set.
        let function = unsafe {
            let function = ffi::PyCFunction_NewEx(definition, ptr::null_mut(), name.as_ptr());
            Bound::from_owned_ptr_or_err(module.py(), function)?
        };
        module.add(attribute, function)?;
    }
    Ok(())
}

/// The C function that Python calls.
unsafe extern "C" fn enter<const TREE: u8>(
    _module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: `assume_attached` requires an attached thread: Python calls a `PyCFunction` with the GIL held. The token ends with
        // the call.
        let py = unsafe { Python::assume_attached() };
        drop_deferred(py);
        if let Err(error) = emergency_pool::check_headroom() {
            return Python::attach(|py| to_raw_result(py, Err(error.into())));
        }
        if count != 2 || !names.is_null() {
            return Python::attach(|py| {
                // SAFETY: `convert_with_keywords` requires the arguments of a call with `METH_FASTCALL | METH_KEYWORDS`: `definition`
                // declares these flags, and Python passes these arguments.
                to_raw_result(py, unsafe {
                    convert_with_keywords::<TREE>(py, arguments, count as usize, names)
                })
            });
        }
        // SAFETY: the reads require two pointers to live objects: with `METH_FASTCALL`, Python passes `count` of them, which is two, and
        // keeps them until the call returns.
        let (x, framework) =
            unsafe { (Bound::ref_from_ptr(py, &*arguments), Bound::ref_from_ptr(py, &*arguments.add(1))) };
        let recognised = recognise(x);
        if recognised.as_ref().is_ok_and(|recognised| sparse::is_sparse_type(recognised.kind())) {
            return Python::attach(|py| to_raw_result(py, sparse::convert_tensor(x, framework, None)));
        }
        let outcome = match (recognised, frameworks::target(framework)) {
            (Ok(recognised), Ok(target)) => fast_path::convert_object(recognised, target),
            (Err(failure), _) | (_, Err(failure)) => Outcome::Failed(failure),
        };
        match outcome {
            Outcome::Done(result) => result.into_ptr(),
            outcome => Python::attach(|py| {
                to_raw_result(py, convert_without_fast_path::<TREE>(x, framework, outcome))
            }),
        }
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let error = PyRuntimeError::new_err("internal error in tensorferry; please report this");
        Python::attach(|py| to_raw_result(py, Err(error.into())))
    })
}

/// The result as the C API returns it: a new reference, or null with an exception set.
fn to_raw_result(py: Python<'_>, result: Result<Bound<'_, PyAny>>) -> *mut ffi::PyObject {
    match result {
        Ok(result) => result.into_ptr(),
        Err(failure) => {
            PyErr::from(failure).restore(py);
            ptr::null_mut()
        }
    }
}

/// Completes a call with two positional arguments that the fast path did not complete.
fn convert_without_fast_path<'py, const TREE: u8>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    outcome: Outcome<'py>,
) -> Result<Bound<'py, PyAny>> {
    let request =
        || -> Result<ConversionRequest> { Ok(ConversionRequest::new(frameworks::target(framework)?)) };
    match outcome {
        Outcome::Done(result) => Ok(result),
        Outcome::NeedsPlan(source) => convert::convert_by_plan(x.py(), source, &request()?, None),
        Outcome::Failed(failure) => match frameworks::target(framework) {
            Ok(_) => retry_as_sparse(failure, sparse::SparseCall::To, x, framework, None),
            Err(failure) => without_target::<TREE>(failure, x, framework, None),
        },
        Outcome::NotApplicable => convert_all::<TREE>(x, framework, None, &request()?, None),
    }
}

/// Parses positional and keyword arguments, and converts.
///
/// # Safety
/// `arguments` points to `count` live objects, followed by one for each name of the tuple `names`, which may be null.
unsafe fn convert_with_keywords<'py, const TREE: u8>(
    py: Python<'py>,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    names: *mut ffi::PyObject,
) -> Result<Bound<'py, PyAny>> {
    let keywords = PyDict::new(py);
    // SAFETY: `from_borrowed_ptr` requires live objects: the contract of this function says that there are `count`, and one for each
    // name, and that `names` is null or a tuple.
    let mut positional = unsafe {
        if let Some(names) = Bound::from_borrowed_ptr_or_opt(py, names) {
            for (index, name) in names.cast_into::<PyTuple>().map_err(PyErr::from)?.iter().enumerate() {
                keywords.set_item(name, Bound::from_borrowed_ptr(py, *arguments.add(count + index)))?;
            }
        }
        (0..count).map(|index| Bound::from_borrowed_ptr(py, *arguments.add(index))).collect::<Vec<_>>()
    };
    if count > 2 {
        let text = format!("to() takes 2 positional arguments but {count} were given");
        return Err(PyTypeError::new_err(text).into());
    }
    for (index, name) in ["x", "framework"].into_iter().enumerate() {
        match keywords.get_item(name)? {
            Some(_) if index < count => {
                let text = format!("to() got multiple values for argument '{name}'");
                return Err(PyTypeError::new_err(text).into());
            }
            Some(value) => {
                keywords.del_item(name)?;
                positional.push(value);
            }
            None if index < count => {}
            None => {
                let text = format!("to() missing required argument: '{name}'");
                return Err(PyTypeError::new_err(text).into());
            }
        }
    }
    let (x, framework) = (&positional[0], &positional[1]);
    if sparse::is_sparse_type(recognise(x)?.kind()) && sparse::supports_options(&keywords) {
        return sparse::convert_tensor(x, framework, Some(&keywords));
    }
    let target = match frameworks::target(framework) {
        Ok(target) => target,
        Err(failure) => return without_target::<TREE>(failure, x, framework, Some(&keywords)),
    };
    let ParsedKeywords { options, sharding, stream, out, progress } = options::parse("to", &keywords, true)?;
    let request = ConversionRequest { progress, options, sharding, stream, ..ConversionRequest::new(target) };
    convert_all::<TREE>(x, framework, out.as_ref(), &request, Some(&keywords))
}

/// Converts to a framework that has no dense tensors, or raises.
fn without_target<'py, const TREE: u8>(
    failure: Failure,
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    if sparse::sparse_only_framework(framework).is_none() {
        return retry_as_sparse(failure, sparse::SparseCall::To, x, framework, keywords);
    }
    if let Some(keywords) = keywords {
        options::parse("to", keywords, true)?;
    }
    sparse::convert_tree(x, framework, keywords, TREE != TENSORS, &mut |leaf| {
        Err(sparse::dense_input_error(leaf.object(), framework))
    })
}

/// Converts a tensor, or each tensor of a tree.
fn convert_all<'py, const TREE: u8>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyAny>>,
    request: &ConversionRequest,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    let convert_one = |recognised: RecognisedObject<'_, 'py>| {
        let x = recognised.object();
        sharded::convert_object(recognised, request)
            .or_else(|failure| retry_as_sparse(failure, sparse::SparseCall::To, x, framework, keywords))
    };
    let resolved = arrow::read::resolve(x, Purpose::Conversion)?;
    let x = resolved.as_ref().unwrap_or(x);
    let recognised = recognise(x)?;
    if let Some(given) = out {
        return fill_out::fill(x, given, request);
    }
    if let Some(container) = traverse::container_of(recognised)? {
        let _memory = TreeMemory::begin();
        return batch::batched(x.py(), request, || {
            let walk = match TREE {
                TENSORS => traverse::walk,
                ARGUMENTS => traverse::walk_allowing_no_tensor,
                _ => traverse::walk_with_scalars,
            };
            let mut ties = trace::is_tracing().then(Ties::default);
            let result = walk(x, container, true, &mut |leaf, path| {
                let object = leaf.object();
                // Scalars of text and times pass.
                if is_scalar(leaf.kind()) && numpy::dtype_of(&object.getattr("dtype")?).is_err() {
                    return Ok(object.clone());
                }
                let result = convert_one(leaf)?;
                if let Some(ties) = &mut ties {
                    ties.add(trace::take_copied(), || path.format())?;
                }
                Ok(result)
            })?;
            if let Some(note) = ties.and_then(|ties| ties.note()) {
                trace::add_note(x.py(), &note)?;
            }
            Ok(result)
        });
    }
    convert_one(recognised)
}
