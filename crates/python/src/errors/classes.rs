//! The exception classes that tensorferry raises.

use super::hints::full_text;
use crate::interpreter::once::ForkSafeOnce;
use pyo3::exceptions::{
    PyBufferError, PyConnectionError, PyException, PyImportError, PyMemoryError, PyOSError, PyRuntimeError,
    PyTimeoutError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCFunction, PyDict, PyTuple, PyType};
use tensorferry_core::error::{Error, ErrorKind, Hint};

/// The description of an exception class.
struct ErrorClass {
    kinds: &'static [ErrorKind],
    name: &'static str,
    doc: &'static str,
}

/// The classes that are created with the module, except two. The base of `CancelledError` is in `concurrent.futures`, which is
/// imported when the first job starts (`tensorferry.jobs`). For errors of the operating system see [`os_error_class`].
const CLASSES: [ErrorClass; 14] = [
    ErrorClass {
        kinds: &[],
        name: "FerryError",
        doc: "The base class of the errors that tensorferry raises.",
    },
    ErrorClass {
        kinds: &[ErrorKind::NotATensor],
        name: "NotATensorError",
        doc: "The object is not a tensor, or a kind of tensor without dense memory. Also a TypeError.",
    },
    ErrorClass {
        kinds: &[ErrorKind::UnsupportedDType],
        name: "UnsupportedDTypeError",
        doc: "The element type has no counterpart at the target. Also a TypeError.",
    },
    ErrorClass {
        kinds: &[ErrorKind::UnsupportedDevice, ErrorKind::UnsupportedLayout],
        name: "UnsupportedError",
        doc: "The target cannot hold memory on that device, or a tensor of that shape. Also a ValueError.",
    },
    ErrorClass {
        kinds: &[ErrorKind::CopyRequired],
        name: "CopyRequiredError",
        doc: "copy=False was given, and the tensor cannot be shared. Also a BufferError and a ValueError.",
    },
    ErrorClass {
        kinds: &[ErrorKind::OutOfMemory],
        name: "OutOfMemoryError",
        doc: "The call needs more memory than is available or than budget= allows. Also a MemoryError.",
    },
    ErrorClass {
        kinds: &[ErrorKind::FrameworkMissing],
        name: "FrameworkNotFoundError",
        doc: "The framework is not installed, or cannot be imported. Also an ImportError.",
    },
    ErrorClass {
        kinds: &[ErrorKind::InvalidTensor],
        name: "InvalidTensorError",
        doc: "Another library does not export the tensor, or violates the contract of its protocol. Also a BufferError.",
    },
    ErrorClass {
        kinds: &[ErrorKind::InvalidArgument],
        name: "InvalidArgumentError",
        doc: "An argument has an invalid value. Also a ValueError.",
    },
    ErrorClass {
        kinds: &[ErrorKind::BorrowConflict],
        name: "BorrowError",
        doc: "An extension module would read memory that another one writes, or write memory that another one uses. \
              Also a BufferError.",
    },
    ErrorClass {
        kinds: &[ErrorKind::FrameworkFailed, ErrorKind::DeviceFailed],
        name: "FrameworkError",
        doc: "A framework, a device or its driver failed. Also a RuntimeError.",
    },
    ErrorClass {
        kinds: &[ErrorKind::TimedOut],
        name: "DeadlineError",
        doc: "A result did not arrive within the timeout. Also a TimeoutError.",
    },
    ErrorClass {
        kinds: &[ErrorKind::InvalidFile],
        name: "FileFormatError",
        doc: "A file violates the rules of its format. Also a ValueError.",
    },
    ErrorClass {
        kinds: &[ErrorKind::TicketRejected],
        name: "TicketError",
        doc: "A ticket cannot be used: withdrawn, used up, expired, or its process has ended. Also a ConnectionError.",
    },
];

static CREATED_CLASSES: ForkSafeOnce<Vec<Py<PyType>>> = ForkSafeOnce::new();

pub(super) fn types(py: Python<'_>) -> PyResult<&Vec<Py<PyType>>> {
    CREATED_CLASSES.get_or_try_init(py, || {
        let mut types: Vec<Py<PyType>> = Vec::with_capacity(CLASSES.len());
        for class in &CLASSES {
            let mut bases = vec![match types.first() {
                None => py.get_type::<PyException>(),
                Some(root) => root.bind(py).clone(),
            }];
            bases.extend(class.kinds.first().map(|kind| builtin_bases(py, *kind)).unwrap_or_default());
            let members = [("__module__", "tensorferry"), ("__doc__", class.doc)].into_py_dict(py)?;
            let created = py.get_type::<PyType>().call1((class.name, PyTuple::new(py, bases)?, members))?;
            types.push(created.cast_into::<PyType>()?.unbind());
        }
        Ok(types)
    })
}

/// The builtin bases of the class for a kind, beside `FerryError`.
fn builtin_bases(py: Python<'_>, kind: ErrorKind) -> Vec<Bound<'_, PyType>> {
    match kind {
        ErrorKind::NotATensor | ErrorKind::UnsupportedDType => vec![py.get_type::<PyTypeError>()],
        ErrorKind::UnsupportedDevice
        | ErrorKind::UnsupportedLayout
        | ErrorKind::InvalidArgument
        | ErrorKind::InvalidFile => vec![py.get_type::<PyValueError>()],
        ErrorKind::CopyRequired => vec![py.get_type::<PyBufferError>(), py.get_type::<PyValueError>()],
        ErrorKind::OutOfMemory => vec![py.get_type::<PyMemoryError>()],
        ErrorKind::TimedOut => vec![py.get_type::<PyTimeoutError>()],
        ErrorKind::FrameworkMissing => vec![py.get_type::<PyImportError>()],
        ErrorKind::InvalidTensor | ErrorKind::BorrowConflict => vec![py.get_type::<PyBufferError>()],
        ErrorKind::TicketRejected => vec![py.get_type::<PyConnectionError>()],
        ErrorKind::FrameworkFailed | ErrorKind::DeviceFailed => vec![py.get_type::<PyRuntimeError>()],
        // Other functions create their classes.
        ErrorKind::Cancelled | ErrorKind::Io => Vec::new(),
        // `has_class_for_each_kind` is checked at compile time.
        _ => Vec::new(),
    }
}

/// Whether each kind has a class, here or in the functions that create the other two.
const fn has_class_for_each_kind() -> bool {
    let mut kind = 0;
    while kind < ErrorKind::ALL.len() {
        let wanted = ErrorKind::ALL[kind];
        let mut is_found = matches!(wanted, ErrorKind::Cancelled | ErrorKind::Io);
        let mut class = 0;
        while class < CLASSES.len() {
            let mut index = 0;
            while index < CLASSES[class].kinds.len() {
                is_found |= CLASSES[class].kinds[index] as usize == wanted as usize;
                index += 1;
            }
            class += 1;
        }
        if !is_found {
            return false;
        }
        kind += 1;
    }
    true
}

const _: () = assert!(has_class_for_each_kind());

/// The class for an error number of the operating system. Its bases are `FerryError` and the class that Python raises for that
/// number, such as `FileNotFoundError`, whose name it has.
fn os_error_class(py: Python<'_>, errno: Option<i32>) -> PyResult<Bound<'_, PyType>> {
    static CLASSES_BY_BASE: ForkSafeOnce<Py<PyDict>> = ForkSafeOnce::new();
    let base = py.get_type::<PyOSError>();
    let base = errno
        .map_or_else(|| Ok(base.clone()), |errno| Ok::<_, PyErr>(base.call1((errno, ""))?.get_type()))?;
    let created = CLASSES_BY_BASE.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    if let Some(known) = created.get_item(&base)? {
        return Ok(known.cast_into()?);
    }
    let members = PyDict::new(py);
    members.set_item("__module__", "tensorferry")?;
    members.set_item("__doc__", "The operating system refused a call; errno has its number.")?;
    // A pickle cannot find the class by a public name.
    let scope = [("rebuild", py.import("tensorferry._native")?.getattr("_os_error")?)].into_py_dict(py)?;
    let reduce = py.eval(c"lambda self: (rebuild, (self.errno, str(self)))", Some(&scope), None)?;
    members.set_item("__reduce__", reduce)?;
    let bases = PyTuple::new(py, [types(py)?[0].bind(py).clone(), base.clone()])?;
    let class = py.get_type::<PyType>().call1((base.name()?, bases, members))?.cast_into::<PyType>()?;
    created.set_item(base, &class)?;
    Ok(class)
}

/// Rebuilds an error of the operating system from a pickle.
#[pyfunction]
#[pyo3(name = "_os_error")]
fn os_error<'py>(py: Python<'py>, errno: Option<i32>, message: &str) -> PyResult<Bound<'py, PyAny>> {
    let instance = os_error_class(py, errno)?.call1((message,))?;
    instance.setattr("errno", errno)?;
    Ok(instance)
}

/// The exception of an error.
fn instance<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let message = full_text(error);
    let class = match error.kind() {
        ErrorKind::Io => os_error_class(py, error.errno())?.into_any(),
        ErrorKind::Cancelled => py.import("tensorferry.jobs")?.getattr("CancelledError")?,
        kind => {
            let position = CLASSES.iter().position(|class| class.kinds.contains(&kind)).unwrap_or(0);
            types(py)?[position].bind(py).clone().into_any()
        }
    };
    let instance = class.call1((message,))?;
    // The command line has its own advice for some keys.
    if let Some(Hint::Key(key, value)) = error.hint() {
        instance.setattr("_hint_key", key.name())?;
        instance.setattr("_hint_value", value.as_deref())?;
    }
    if error.kind() == ErrorKind::Io || error.errno().is_some() {
        instance.setattr("errno", error.errno())?;
    }
    Ok(instance)
}

pub(super) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    instance(py, error).map_or_else(|failure| failure, PyErr::from_value)
}

/// Adds the classes to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_function(wrap_pyfunction!(os_error, module)?)?;
    // The hint is part of the message, so that errors raised by Python code and unpickled errors have it too.
    let hint =
        PyCFunction::new_closure(py, Some(c"hint"), None, |arguments, _| -> PyResult<Option<String>> {
            let message = arguments.get_item(0)?.str()?.to_string();
            Ok(message.rsplit_once("\nhint: ").map(|(_, hint)| hint.to_owned()))
        })?;
    let property = py.import("builtins")?.getattr("property")?.call1((hint,))?;
    types(py)?[0].bind(py).setattr("hint", property)?;
    for class in types(py)? {
        let class = class.bind(py);
        module.add(class.name()?, class)?;
    }
    Ok(())
}
