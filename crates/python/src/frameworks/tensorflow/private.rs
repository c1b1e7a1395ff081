//! What is private of TensorFlow, tried once, and the public functions that do the same.

use super::graphs::Graphs;
use crate::errors::Result;
use crate::fast_paths::samples::{self, Described};
use crate::fast_paths::{self, FastPath, Probed, Unusable, check, present};
use crate::frameworks::{numpy, within};
use crate::interpreter::call;
use crate::interpreter::slots::{Attribute, Method};
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The fast paths that work here.
pub(super) struct Private {
    /// `TFE_FromDlpackCapsule` and the handle of the eager context.
    pub(super) import: Option<(Py<PyAny>, Py<PyAny>)>,
    /// `TFE_ToDlpackCapsule`, without the Python function in front of it.
    pub(super) export: Option<Py<PyAny>>,
    /// Of the eager tensor type: an array over the memory, and the number of the element type.
    pub(super) array: Option<(Method, Method)>,
    /// Whether the eager tensor type makes tensors of arrays.
    pub(super) has_constructor: bool,
    /// Of the eager tensor type: where the memory is.
    pub(super) backing_device: Option<Attribute>,
    pub(super) graphs: Option<Graphs>,
}

impl Private {
    /// Called where operations run at once, with the type of eager tensors.
    pub(super) fn of(tf: &Bound<'_, PyModule>, kind: &Bound<'_, PyType>) -> Self {
        let py = tf.py();
        Self {
            import: fast_paths::probe(py, FastPath::TensorflowDlpackImport, || import(tf)),
            export: fast_paths::probe(py, FastPath::TensorflowDlpackExport, || export(tf)),
            array: fast_paths::probe(py, FastPath::TensorflowNumpyInternal, || array(tf, kind)),
            has_constructor: fast_paths::probe(py, FastPath::TensorflowEagerTensor, || constructor(tf, kind))
                .is_some(),
            backing_device: fast_paths::probe(py, FastPath::TensorflowTensorSlots, || {
                backing_device(tf, kind)
            }),
            graphs: fast_paths::probe(py, FastPath::TensorflowGraphStack, || graphs(tf)),
        }
    }
}

/// `tensorflow.python.eager.context`, whose `eager_mode` leaves a graph and whose device name follows `tf.device`.
pub(super) fn context(tf: &Bound<'_, PyModule>) -> Probed<Py<PyAny>> {
    let py = tf.py();
    let module = context_module(py)?;
    let eager_mode = || module.call_method0("eager_mode");
    let is_eager = || tf.call_method0("executing_eagerly")?.is_truthy();
    // Started while a graph is being built, TensorFlow would place operations more strictly for the rest of the process.
    within(&[present(eager_mode())?], || module.call_method0("context")?.call_method0("ensure_initialized"))?;
    let graph = tf.getattr("Graph")?.call0()?.call_method0("as_default")?;
    let eager = within(&[graph], || within(&[eager_mode()?], is_eager))?;
    check(eager, || "eager_mode does not leave a graph".to_owned())?;
    let scopes = [eager_mode()?, tf.call_method1("device", ("CPU:0",))?];
    let names = || -> PyResult<(String, String)> {
        let found = module.call_method0("context")?.getattr("device_name")?.extract()?;
        Ok((found, tf.call_method1("constant", (0.0,))?.getattr("device")?.extract()?))
    };
    let (found, expected) = within(&scopes, names)?;
    check(found == expected, || format!("the device is {found} instead of {expected}"))?;
    Ok(module.into_any().unbind())
}

/// A tensor of ones of a type.
fn sample<'py>(tf: &Bound<'py, PyModule>, dtype: &str) -> PyResult<Bound<'py, PyAny>> {
    let place = tf.call_method1("device", ("CPU:0",))?;
    within(&[place], || tf.call_method1("ones", ((2, 3), tf.getattr(dtype)?)))
}

/// What the array of the public function says about a tensor.
fn described(tensor: &Bound<'_, PyAny>) -> Result<Described> {
    Ok(Described::of(&numpy::read_array(&numpy::as_array(tensor)?)?))
}

/// The module of TensorFlow's eager context.
fn context_module(py: Python<'_>) -> Probed<Bound<'_, PyModule>> {
    present(py.import("tensorflow.python.eager.context"))
}

fn import(tf: &Bound<'_, PyModule>) -> Probed<(Py<PyAny>, Py<PyAny>)> {
    let py = tf.py();
    let context = context_module(py)?;
    let module = present(py.import("tensorflow.python.pywrap_tfe"))?;
    let function = present(module.getattr("TFE_FromDlpackCapsule"))?;
    let handle = present(context.call_method0("context")?.getattr("_handle"))?;
    let memory = samples::float32()?;
    let expected = Described::of(&memory);
    let made = call::call2(&function, &*crate::protocols::capsule::legacy(py, memory)?, &handle)?;
    expected.check_made(&made, described(&made)?.address)?;
    Ok((function.unbind(), handle.unbind()))
}

fn export(tf: &Bound<'_, PyModule>) -> Probed<Py<PyAny>> {
    let module = present(tf.py().import("tensorflow.python.pywrap_tfe"))?;
    let function = present(module.getattr("TFE_ToDlpackCapsule"))?;
    let tensor = sample(tf, "float32")?;
    let read =
        crate::protocols::capsule::owned(crate::protocols::capsule::take(&call::call1(&function, &tensor)?)?);
    described(&tensor)?.check(&read)?;
    Ok(function.unbind())
}

fn array(tf: &Bound<'_, PyModule>, kind: &Bound<'_, PyType>) -> Probed<(Method, Method)> {
    present(kind.getattr("_numpy_internal"))?;
    present(kind.getattr("_datatype_enum"))?;
    let (array, number) = (Method::of(kind, c"_numpy_internal"), Method::of(kind, c"_datatype_enum"));
    for dtype in ["float32", "bool"] {
        let tensor = sample(tf, dtype)?;
        check(tensor.get_type().is(kind), || "a tensor is not an eager one".to_owned())?;
        // SAFETY: the tensor is of the type that the methods were found in.
        let (found, found_number) = unsafe { (array.call(&tensor)?, number.call(&tensor)?) };
        described(&tensor)?.check(&numpy::read_array(&found)?)?;
        let expected = tensor.getattr("dtype")?.getattr("as_datatype_enum")?;
        check(found_number.eq(&expected)?, || {
            format!("the number of {dtype} is {found_number} instead of {expected}")
        })?;
    }
    Ok((array, number))
}

fn constructor(tf: &Bound<'_, PyModule>, kind: &Bound<'_, PyType>) -> Probed<()> {
    let py = tf.py();
    let values = py.import("numpy")?.call_method1("arange", (3, 6, 1, "float32"))?;
    let none = py.None();
    let none = none.bind(py);
    let made = call::call3(kind.as_any(), &values, none, none)?;
    let expected = tf.call_method1("constant", (&values,))?;
    let same = |name: &str| -> PyResult<bool> { made.getattr(name)?.eq(expected.getattr(name)?) };
    check(made.get_type().is(kind) && same("dtype")? && same("shape")?, || {
        "it makes a tensor of another type or shape than tf.constant".to_owned()
    })?;
    let bytes = |tensor: &Bound<'_, PyAny>| -> PyResult<Vec<u8>> {
        tensor.call_method0("numpy")?.call_method0("tobytes")?.extract()
    };
    check(bytes(&made)? == bytes(&expected)?, || "it makes a tensor of other values".to_owned())
}

fn backing_device(tf: &Bound<'_, PyModule>, kind: &Bound<'_, PyType>) -> Probed<Attribute> {
    let attribute = Attribute::of(kind, c"backing_device");
    if !attribute.is_direct() {
        return Err(Unusable::missing("the tables of the type do not have the attribute"));
    }
    let tensor = sample(tf, "float32")?;
    check(tensor.get_type().is(kind), || "a tensor is not an eager one".to_owned())?;
    // SAFETY: the tensor is of the type that the attribute was found in.
    let (found, expected) = (unsafe { attribute.get(&tensor) }?, tensor.getattr("backing_device")?);
    check(found.eq(&expected)?, || format!("it is {found} instead of {expected}"))?;
    Ok(attribute)
}

/// The stack of graphs, compared with TensorFlow's answer outside and inside of one.
fn graphs(tf: &Bound<'_, PyModule>) -> Probed<Graphs> {
    let py = tf.py();
    let graphs = Graphs::of(&context_module(py)?)?;
    let both = || -> PyResult<(bool, bool)> {
        Ok((graphs.are_none(py)?, tf.call_method0("executing_eagerly")?.is_truthy()?))
    };
    let (found, expected) = both()?;
    // Where eager execution is off, the mode of the thread is not on the stack: TensorFlow is asked then.
    check(!found || expected, || "it says that operations run at once, and they do not".to_owned())?;
    let graph = tf.getattr("Graph")?.call0()?.call_method0("as_default")?;
    let (found, expected) = within(&[graph], both)?;
    check(found == expected && !found, || "it does not see that a graph is being built".to_owned())?;
    Ok(graphs)
}
