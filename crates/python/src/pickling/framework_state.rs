//! What a framework knows about a tensor besides its memory: gradients, the class of a parameter, attributes, weak types.

use crate::conversion::object_kinds::Builtin;
use crate::errors::{Result, framework_error};
use crate::interpreter::once::{ForkSafeOnce, interned};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

/// The tensor requires a gradient.
const REQUIRES_GRAD: u8 = 1;
/// The tensor is a `torch.nn.Parameter`.
const PARAMETER: u8 = 2;
/// The JAX array has a weak type, which gives way to the types of other operands.
const WEAK_TYPE: u8 = 4;

/// The state of a tensor, as it is written to a stream.
#[derive(Default)]
pub(super) struct FrameworkState<'py> {
    pub(super) flags: u8,
    /// The attributes that Python code has set on the tensor.
    pub(super) attributes: Option<Bound<'py, PyDict>>,
}

fn parameter_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static PARAMETER_TYPE: ForkSafeOnce<Py<PyType>> = ForkSafeOnce::new();
    PARAMETER_TYPE.import(py, "torch.nn.parameter", "Parameter")
}

impl<'py> FrameworkState<'py> {
    /// The state of a tensor.
    pub(super) fn of(
        object: &Bound<'py, PyAny>,
        framework: Option<Builtin>,
        requires_grad: bool,
    ) -> PyResult<Self> {
        let py = object.py();
        let mut state = Self { flags: if requires_grad { REQUIRES_GRAD } else { 0 }, attributes: None };
        match framework {
            Some(Builtin::Torch) => {
                if object.get_type().is(parameter_type(py)?) {
                    state.flags |= PARAMETER;
                }
                // Hooks do not travel. PyTorch warns about them too.
                if requires_grad {
                    py.import("torch.utils.hooks")?.call_method1("warn_if_has_hooks", (object,))?;
                }
                let attributes = object.getattr(interned!(py, "__dict__"))?.cast_into::<PyDict>()?;
                state.attributes = (!attributes.is_empty()).then_some(attributes);
            }
            Some(Builtin::Jax) if object.getattr(interned!(py, "weak_type"))?.is_truthy()? => {
                state.flags |= WEAK_TYPE;
            }
            _ => {}
        }
        Ok(state)
    }
}

/// Gives a new tensor the state that was written to the stream.
pub(super) fn restore<'py>(
    tensor: Bound<'py, PyAny>,
    framework: &str,
    flags: u8,
    attributes: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    let restored = match framework {
        "torch" => restore_torch(tensor, flags, attributes),
        "paddle" if flags & REQUIRES_GRAD != 0 => {
            tensor.setattr(interned!(tensor.py(), "stop_gradient"), false).map(|()| tensor)
        }
        "jax" if flags & WEAK_TYPE != 0 => {
            let py = tensor.py();
            return with_weak_type(&tensor).map_err(|error| framework_error(py, "JAX", error));
        }
        _ => Ok(tensor),
    };
    Ok(restored?)
}

fn restore_torch<'py>(
    tensor: Bound<'py, PyAny>,
    flags: u8,
    attributes: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = tensor.py();
    let requires_grad = flags & REQUIRES_GRAD != 0;
    let tensor = if flags & PARAMETER != 0 {
        parameter_type(py)?.call1((tensor, requires_grad))?
    } else if requires_grad {
        tensor.call_method1(interned!(py, "requires_grad_"), (true,))?
    } else {
        tensor
    };
    if let Some(attributes) = attributes {
        tensor.getattr(interned!(py, "__dict__"))?.cast_into::<PyDict>()?.update(attributes.as_mapping())?;
    }
    Ok(tensor)
}

/// An array with the same values and a weak type.
///
/// JAX's own unpickling replaces the abstract value of the array. Its compiled functions do not notice that, and then give wrong
/// types for other arrays too. The primitive makes an array whose type is weak everywhere.
fn with_weak_type<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    let options = PyDict::new(py);
    options.set_item("new_dtype", array.getattr("dtype")?)?;
    options.set_item("weak_type", true)?;
    options.set_item("sharding", py.None())?;
    py.import("jax.lax")?.getattr("convert_element_type_p")?.call_method("bind", (array,), Some(&options))
}
