//! `to`, the one call: a C function that PyO3 does not wrap.
//!
//! A wrapped function with nine arguments spends 70 ns on naming the seven that nobody passed, which is more than
//! reading the tensor. This one looks at the arguments itself: two by position is the common case, and anything
//! else goes through a dict.
//!
//! PyO3 counts how deep a thread is in its functions, to know whether a reference may be given back at once. The
//! common case does without that count, and everything else begins with it.

use crate::api::options::{self, Keywords};
use crate::conversion::batch;
use crate::conversion::convert;
use crate::conversion::fast_path::{self, Outcome};
use crate::conversion::fill_out;
use crate::conversion::kinds::Recognised;
use crate::conversion::recognise::recognise;
use crate::conversion::request::ConversionRequest;
use crate::errors::{Failure, Result, fail};
use crate::frameworks;
use crate::interpreter::owner::drop_deferred;
use crate::sparse::{self, or_sparse};
use crate::trees::traverse;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use tensorferry_core::{ErrorKind, emergency_pool};

/// The signature, in the form that `inspect` reads, and the docstring.
const DOC: &CStr = c"to(x, framework, *, device=None, dtype=None, copy=None, writable=None, stream=None, budget=None, out=None, progress=None)
--

Carries a tensor, or a tree of tensors, to a framework.

Args:
    x: A tensor of any framework, anything that speaks DLPack, the buffer protocol, an array interface
        or `__array__`, a sparse tensor of SciPy, PyTorch, CuPy, JAX, TensorFlow or the package sparse, or a
        dict, list, tuple, named tuple, dataclass, deque, UserDict or UserList of such.
    framework: \"numpy\", \"cupy\", \"torch\", \"jax\", \"tensorflow\", \"paddle\", \"mlx\", a registered name, or the module.
    device: \"cpu\", \"cpu:1\", \"cuda:1\", a framework's own object, or \"default\" for the target's own default. None
        keeps the tensor where it is if the target can hold it there.
    dtype: The element type of the result, by name or as a framework's own object. None keeps the type;
        \"default\" takes the target's default width (float32 for float64, and so on).
    copy: None shares when it can and copies when it must, True always copies, False shares or raises
        CopyRequiredError.
    writable: True guarantees a result that may be written without harm to anyone; False a read-only one.
    stream: The CUDA stream on which the result will be used, as a handle or a framework's own object; the
        target's current stream if left out. For torch and cupy on a GPU only.
    budget: The most bytes of extra memory; past it OutOfMemoryError is raised. With out= only buffers count, and a
        transfer between a GPU and the host makes do with smaller ones.
    out: An existing array or tensor of the target framework to fill and return, on the host (a memory-mapped
        file too) or on a GPU. After an error its contents mean nothing.
    progress: True shows a bar on the terminal while bytes move between a GPU and the host; a function is
        called with the bytes that have moved and their total.

Returns:
    The framework's own tensor; `x` itself where nothing needs to change.

Raises:
    FerryError: Each is also the builtin exception that one would expect, and has a `hint`.

Example:
    >>> ferry.to(np.arange(3), \"torch\").tolist()
    [0, 1, 2]
    >>> ferry.to({\"w\": [np.ones(2)]}, \"torch\")[\"w\"][0].sum().item()
    2.0";

/// Puts the function into the module, and a private one for arguments and results of functions, which may have no tensor.
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
    static mut TO: ffi::PyMethodDef = definition(c"to", DOC, enter::<false>);
    static mut TO_ANY: ffi::PyMethodDef =
        definition(c"_to_any", c"As `to`, and a tree without tensors comes back as it is.", enter::<true>);
    let name = module.name()?;
    for (own, definition) in [("to", &raw mut TO), ("_to_any", &raw mut TO_ANY)] {
        // SAFETY: the definitions live for ever and are written by nobody; the module's name is a live string.
        let function = unsafe {
            let function = ffi::PyCFunction_NewEx(definition, ptr::null_mut(), name.as_ptr());
            Bound::from_owned_ptr_or_err(module.py(), function)?
        };
        module.add(own, function)?;
    }
    Ok(())
}

/// Called by Python. `ANY` lets a tree without tensors pass.
unsafe extern "C" fn enter<const ANY: bool>(
    _module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: Python calls with the GIL held.
        let py = unsafe { Python::assume_attached() };
        drop_deferred();
        if let Err(error) = emergency_pool::check_headroom() {
            return Python::attach(|py| given_back(py, Err(error.into())));
        }
        if count != 2 || !names.is_null() {
            return Python::attach(|py| {
                // SAFETY: Python passes what `named` asks for.
                given_back(py, unsafe { named::<ANY>(py, arguments, count as usize, names) })
            });
        }
        // SAFETY: two arguments by position, which live as long as this call.
        let (x, framework) =
            unsafe { (Bound::ref_from_ptr(py, &*arguments), Bound::ref_from_ptr(py, &*arguments.add(1))) };
        let recognised = recognise(x);
        if recognised.as_ref().is_ok_and(|&recognised| sparse::is_known(recognised)) {
            return Python::attach(|py| given_back(py, sparse::to(x, framework, None)));
        }
        let begun = match (recognised, frameworks::target(framework)) {
            (Ok(recognised), Ok(target)) => fast_path::convert_object(x, recognised, target),
            (Err(failure), _) | (_, Err(failure)) => Outcome::Failed(failure),
        };
        match begun {
            Outcome::Done(result) => result.into_ptr(),
            begun => Python::attach(|py| given_back(py, rest::<ANY>(x, framework, begun))),
        }
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let text = c"tensorferry failed in a way that it does not know; please report this";
        // SAFETY: Python called with the GIL held; the exception lives for ever, and the text is copied.
        unsafe { ffi::PyErr_SetString(ffi::PyExc_RuntimeError, text.as_ptr()) };
        ptr::null_mut()
    })
}

/// A result as Python wants it.
fn given_back(py: Python<'_>, result: Result<Bound<'_, PyAny>>) -> *mut ffi::PyObject {
    match result {
        Ok(result) => result.into_ptr(),
        Err(failure) => {
            PyErr::from(failure).restore(py);
            ptr::null_mut()
        }
    }
}

/// What is left to do for two arguments by position.
fn rest<'py, const ANY: bool>(
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
            Ok(_) => or_sparse(failure, sparse::Asked::To, x, framework, None),
            Err(failure) => without_target::<ANY>(failure, x, framework, None),
        },
        Outcome::NotApplicable => go::<ANY>(x, framework, None, &request()?, None),
    }
}

/// Arguments in any form.
///
/// # Safety
/// As Python calls [`enter`].
unsafe fn named<'py, const ANY: bool>(
    py: Python<'py>,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    names: *mut ffi::PyObject,
) -> Result<Bound<'py, PyAny>> {
    let keywords = PyDict::new(py);
    // SAFETY: the caller's contract.
    let mut positional = unsafe {
        if let Some(names) = Bound::from_borrowed_ptr_or_opt(py, names) {
            for (place, name) in names.cast_into::<PyTuple>().map_err(PyErr::from)?.iter().enumerate() {
                keywords.set_item(name, Bound::from_borrowed_ptr(py, *arguments.add(count + place)))?;
            }
        }
        (0..count).map(|place| Bound::from_borrowed_ptr(py, *arguments.add(place))).collect::<Vec<_>>()
    };
    if count > 2 {
        let text = format!("to() takes 2 positional arguments but {count} were given");
        return Err(PyTypeError::new_err(text).into());
    }
    for (place, name) in ["x", "framework"].into_iter().enumerate() {
        match keywords.get_item(name)? {
            Some(_) if place < count => {
                let text = format!("to() got multiple values for argument '{name}'");
                return Err(PyTypeError::new_err(text).into());
            }
            Some(value) => {
                keywords.del_item(name)?;
                positional.push(value);
            }
            None if place < count => {}
            None => {
                let text = format!("to() missing required argument: '{name}'");
                return Err(PyTypeError::new_err(text).into());
            }
        }
    }
    let (x, framework) = (&positional[0], &positional[1]);
    if sparse::is_known(recognise(x)?) && sparse::takes(&keywords) {
        return sparse::to(x, framework, Some(&keywords));
    }
    let target = match frameworks::target(framework) {
        Ok(target) => target,
        Err(failure) => return without_target::<ANY>(failure, x, framework, Some(&keywords)),
    };
    let Keywords { options, stream, out, progress } = options::parse("to", &keywords, true)?;
    let request = ConversionRequest { progress, options, stream, ..ConversionRequest::new(target) };
    go::<ANY>(x, framework, out.as_ref(), &request, Some(&keywords))
}

/// The framework is none of ours: it may hold sparse tensors alone.
fn without_target<'py, const ANY: bool>(
    failure: Failure,
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    if sparse::sparse_only(framework).is_none() {
        return or_sparse(failure, sparse::Asked::To, x, framework, keywords);
    }
    if let Some(keywords) = keywords {
        options::parse("to", keywords, true)?;
    }
    sparse::carry(x, framework, keywords, ANY, &mut |leaf, _| Err(sparse::is_dense(leaf, framework)))
}

fn go<'py, const ANY: bool>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyAny>>,
    request: &ConversionRequest,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    let one = |x: &Bound<'py, PyAny>, recognised| {
        convert::convert_object(x, recognised, request)
            .or_else(|failure| or_sparse(failure, sparse::Asked::To, x, framework, keywords))
    };
    let recognised = recognise(x)?;
    if let Some(given) = out {
        if matches!(recognised, Recognised::Container(_)) {
            let hint = "fill one tensor at a time, or leave out out=";
            return Err(fail(ErrorKind::InvalidArgument, "out takes one tensor and x is a tree", hint));
        }
        return fill_out::fill(x, given, request);
    }
    if matches!(recognised, Recognised::Container(_) | Recognised::Unknown)
        && let Some(container) = traverse::container_of(x, recognised)?
    {
        return batch::batched(x.py(), request, || {
            let walk = if ANY { traverse::walk_any } else { traverse::walk };
            walk(x, container, true, &mut |leaf, kind, _| one(leaf, kind))
        });
    }
    one(x, recognised)
}
