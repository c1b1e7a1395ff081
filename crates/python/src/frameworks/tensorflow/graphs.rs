//! Whether the calling thread builds a graph, in a tenth of the time that TensorFlow's own question takes.

use crate::fast_paths::{Probed, Unusable, present};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// How to learn that the calling thread builds no graph.
pub(super) struct Graphs {
    /// The graphs that each thread is in: a `threading.local` with a list called `stack`.
    stacks: Py<PyAny>,
    /// The names in TensorFlow's module of modes, one of which says what threads begin with, and what it says when they
    /// begin eagerly.
    modes: Py<PyDict>,
    eager: Py<PyAny>,
}

impl Graphs {
    /// With the module `tensorflow.python.eager.context`.
    pub(super) fn of(context: &Bound<'_, PyModule>) -> Probed<Self> {
        let py = context.py();
        let operations = present(py.import("tensorflow.python.framework.ops"))?;
        let stacks = present(operations.getattr("_default_graph_stack"))?;
        // Python's own kind alone: that of gevent has a dict for each of many greenlets on one thread.
        let genuine = stacks.get_type().mro().iter().any(|kind| {
            let is = |name, value: &str| {
                kind.getattr(name).is_ok_and(|found: Bound<'_, PyAny>| found.to_string() == value)
            };
            is("__module__", "_thread") && is("__name__", "_local")
        });
        if !genuine {
            return Err(Unusable::failed("it is another kind of thread-local data"));
        }
        let stack = present(stacks.getattr("stack"))?;
        stack.cast_into::<PyList>().map_err(PyErr::from)?;
        let modes = context.dict();
        let eager = present(context.getattr("EAGER_MODE"))?;
        present(context.getattr("default_execution_mode"))?;
        Ok(Self { stacks: stacks.unbind(), modes: modes.unbind(), eager: eager.unbind() })
    }

    /// Whether operations run at once on this thread; no means that TensorFlow must be asked.
    pub(super) fn are_none(&self, py: Python<'_>) -> PyResult<bool> {
        // Python keeps the dict of a `threading.local` with the thread; a reference beside it is found ten times as fast.
        // SAFETY: the interpreter is attached; null, or the thread's own dict, borrowed.
        let Some(thread) = (unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyThreadState_GetDict()) })
        else {
            return Ok(false);
        };
        let thread = thread.cast_into::<PyDict>()?;
        let name = intern!(py, "tensorferry: TensorFlow's graphs");
        let own = match thread.get_item(name)? {
            Some(own) => own,
            None => {
                let own = self.stacks.bind(py).getattr("__dict__")?;
                thread.set_item(name, &own)?;
                own
            }
        };
        let stack = own.cast::<PyDict>()?.get_item(intern!(py, "stack"))?;
        let outside = stack.is_some_and(|stack| stack.cast::<PyList>().is_ok_and(|stack| stack.is_empty()));
        let mode = self.modes.bind(py).get_item(intern!(py, "default_execution_mode"))?;
        Ok(outside && mode.is_some_and(|mode| mode.is(&self.eager)))
    }
}
