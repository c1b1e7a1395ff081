//! The fast paths of TensorFlow: private APIs with their probes.

use super::graphs::Graphs;
use crate::errors::Result;
use crate::fast_paths::samples::{self, ExpectedTensor};
use crate::fast_paths::{self, FastPath, Probed, Unusable, check, present};
use crate::frameworks::{numpy, within};
use crate::interpreter::call;
use crate::interpreter::owned_tensor;
use crate::interpreter::slots::{Attribute, Method};
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The fast paths that passed their probes.
pub(super) struct Private {
    /// `TFE_FromDlpackCapsule` and the handle of the eager context.
    pub(super) import: Option<(Py<PyAny>, Py<PyAny>)>,
    /// `TFE_ToDlpackCapsule`.
    pub(super) export: Option<Py<PyAny>>,
    /// Methods of the eager tensor type: a NumPy array over the memory, and the enum value of the dtype.
    pub(super) array: Option<(Method, Method)>,
    /// Whether the constructor of the eager tensor type accepts arrays.
    pub(super) has_constructor: bool,
    /// Attribute of the eager tensor type: the name of the device that holds the memory.
    pub(super) backing_device: Option<Attribute>,
    pub(super) graphs: Option<Graphs>,
}

impl Private {
    /// Runs the probes with the type of eager tensors. The calling thread must execute eagerly.
    pub(super) fn of(tf: &Bound<'_, PyModule>, kind: &Bound<'_, PyType>) -> Self {
        let py = tf.py();
        Self {
            import: fast_paths::probe(py, FastPath::TensorflowDlpackImport, || probe_import(tf)),
            export: fast_paths::probe(py, FastPath::TensorflowDlpackExport, || probe_export(tf)),
            array: fast_paths::probe(py, FastPath::TensorflowNumpyInternal, || probe_array(tf, kind)),
            has_constructor: fast_paths::probe(py, FastPath::TensorflowEagerTensor, || {
                probe_constructor(tf, kind)
            })
            .is_some(),
            backing_device: fast_paths::probe(py, FastPath::TensorflowTensorSlots, || {
                probe_backing_device(tf, kind)
            }),
            graphs: fast_paths::probe(py, FastPath::TensorflowGraphStack, || probe_graphs(tf)),
        }
    }
}

/// `tensorflow.python.eager.context`, after a check that `eager_mode` leaves a graph and `device_name` follows `tf.device`.
pub(super) fn probe_context(tf: &Bound<'_, PyModule>) -> Probed<Py<PyAny>> {
    let py = tf.py();
    let module = context_module(py)?;
    let eager_mode = || module.call_method0("eager_mode");
    let is_eager = || tf.call_method0("executing_eagerly")?.is_truthy();
    // If TensorFlow is initialised inside a graph, it places operations more strictly for the rest of the process.
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
    check(found == expected, || format!("the device is {found}, expected {expected}"))?;
    Ok(module.into_any().unbind())
}

/// A tensor of ones on the CPU.
fn sample<'py>(tf: &Bound<'py, PyModule>, dtype: &str) -> PyResult<Bound<'py, PyAny>> {
    let device_scope = tf.call_method1("device", ("CPU:0",))?;
    within(&[device_scope], || tf.call_method1("ones", ((2, 3), tf.getattr(dtype)?)))
}

/// The memory of a tensor as `numpy.asarray` describes it.
fn expected_of(tensor: &Bound<'_, PyAny>) -> Result<ExpectedTensor> {
    Ok(ExpectedTensor::of(&numpy::read_array(&numpy::as_array(tensor)?)?))
}

/// The module of TensorFlow's eager context.
fn context_module(py: Python<'_>) -> Probed<Bound<'_, PyModule>> {
    present(py.import("tensorflow.python.eager.context"))
}

fn probe_import(tf: &Bound<'_, PyModule>) -> Probed<(Py<PyAny>, Py<PyAny>)> {
    let py = tf.py();
    let context = context_module(py)?;
    let module = present(py.import("tensorflow.python.pywrap_tfe"))?;
    let function = present(module.getattr("TFE_FromDlpackCapsule"))?;
    let handle = present(context.call_method0("context")?.getattr("_handle"))?;
    let memory = samples::float32()?;
    let expected = ExpectedTensor::of(&memory);
    let created = call::call2(&function, &*crate::protocols::capsule::legacy(py, memory)?, &handle)?;
    expected.check_created(&created, expected_of(&created)?.address)?;
    Ok((function.unbind(), handle.unbind()))
}

fn probe_export(tf: &Bound<'_, PyModule>) -> Probed<Py<PyAny>> {
    let module = present(tf.py().import("tensorflow.python.pywrap_tfe"))?;
    let function = present(module.getattr("TFE_ToDlpackCapsule"))?;
    let tensor = sample(tf, "float32")?;
    let read = owned_tensor::managed(crate::protocols::capsule::take(&call::call1(&function, &tensor)?)?);
    expected_of(&tensor)?.check(&read)?;
    Ok(function.unbind())
}

fn probe_array(tf: &Bound<'_, PyModule>, kind: &Bound<'_, PyType>) -> Probed<(Method, Method)> {
    present(kind.getattr("_numpy_internal"))?;
    present(kind.getattr("_datatype_enum"))?;
    let (array, number) = (Method::of(kind, c"_numpy_internal"), Method::of(kind, c"_datatype_enum"));
    for dtype in ["float32", "bool"] {
        let tensor = sample(tf, dtype)?;
        check(tensor.get_type().is(kind), || "a sample is not an eager tensor".to_owned())?;
        // SAFETY: `call` requires an instance of the type that the methods were found in: the line above has compared the type.
        let (found, found_number) = unsafe { (array.call(&tensor)?, number.call(&tensor)?) };
        expected_of(&tensor)?.check(&numpy::read_array(&found)?)?;
        let expected = tensor.getattr("dtype")?.getattr("as_datatype_enum")?;
        check(found_number.eq(&expected)?, || {
            format!("the enum value of {dtype} is {found_number}, expected {expected}")
        })?;
    }
    Ok((array, number))
}

fn probe_constructor(tf: &Bound<'_, PyModule>, kind: &Bound<'_, PyType>) -> Probed<()> {
    let py = tf.py();
    let values = py.import("numpy")?.call_method1("arange", (3, 6, 1, "float32"))?;
    let none = py.None();
    let none = none.bind(py);
    let created = call::call3(kind.as_any(), &values, none, none)?;
    let expected = tf.call_method1("constant", (&values,))?;
    let same = |name: &str| -> PyResult<bool> { created.getattr(name)?.eq(expected.getattr(name)?) };
    check(created.get_type().is(kind) && same("dtype")? && same("shape")?, || {
        "the dtype or shape differs from that of tf.constant".to_owned()
    })?;
    let bytes = |tensor: &Bound<'_, PyAny>| -> PyResult<Vec<u8>> {
        tensor.call_method0("numpy")?.call_method0("tobytes")?.extract()
    };
    check(bytes(&created)? == bytes(&expected)?, || "the values differ from those of tf.constant".to_owned())
}

fn probe_backing_device(tf: &Bound<'_, PyModule>, kind: &Bound<'_, PyType>) -> Probed<Attribute> {
    let attribute = Attribute::of(kind, c"backing_device");
    if !attribute.is_direct() {
        return Err(Unusable::missing("the type has no C function for backing_device"));
    }
    let tensor = sample(tf, "float32")?;
    check(tensor.get_type().is(kind), || "a sample is not an eager tensor".to_owned())?;
    // SAFETY: `get` requires an instance of the type that the attribute was found in: the line above has compared the type.
    let (found, expected) = (unsafe { attribute.get(&tensor) }?, tensor.getattr("backing_device")?);
    check(found.eq(&expected)?, || format!("backing_device is {found}, expected {expected}"))?;
    Ok(attribute)
}

/// The graph stack, compared with `tf.executing_eagerly` outside and inside a graph.
fn probe_graphs(tf: &Bound<'_, PyModule>) -> Probed<Graphs> {
    let py = tf.py();
    let graphs = Graphs::of(&context_module(py)?)?;
    let both = || -> PyResult<(bool, bool)> {
        Ok((graphs.is_eager(py)?, tf.call_method0("executing_eagerly")?.is_truthy()?))
    };
    let (found, expected) = both()?;
    // If eager execution is disabled, the stack does not show it, and `is_eager` returns false.
    check(!found || expected, || {
        "the stack indicates eager execution while TensorFlow does not execute eagerly".to_owned()
    })?;
    let graph = tf.getattr("Graph")?.call0()?.call_method0("as_default")?;
    let (found, expected) = within(&[graph], both)?;
    check(found == expected && !found, || {
        "the stack does not show the graph that is being built".to_owned()
    })?;
    Ok(graphs)
}
