//! Whether the calling thread is building a graph (the fast path `tensorflow.graph_stack`).
//!
//! The check takes a tenth of the time of `tf.executing_eagerly`.

use crate::fast_paths::{Probed, Unusable, present};
use crate::interpreter::objects;
use crate::interpreter::once::interned;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// The state of TensorFlow that shows whether the calling thread executes eagerly.
pub(super) struct Graphs {
    /// The graph stack of each thread: a `threading.local` with a list `stack`.
    stacks: Py<PyAny>,
    /// The dict of the module with `default_execution_mode`, the initial mode of a thread.
    context_dict: Py<PyDict>,
    /// The value of `default_execution_mode` for eager execution.
    eager_mode: Py<PyAny>,
}

impl Graphs {
    /// `context` is the module `tensorflow.python.eager.context`.
    pub(super) fn of(context: &Bound<'_, PyModule>) -> Probed<Self> {
        let py = context.py();
        let operations = present(py.import("tensorflow.python.framework.ops"))?;
        let stacks = present(operations.getattr("_default_graph_stack"))?;
        // Only Python's own `threading.local`: that of gevent has one dict per greenlet, of which a thread has many.
        let is_genuine = stacks.get_type().mro().iter().any(|kind| {
            let is = |name, value: &str| {
                kind.getattr(name).is_ok_and(|found: Bound<'_, PyAny>| found.to_string() == value)
            };
            is("__module__", "_thread") && is("__name__", "_local")
        });
        if !is_genuine {
            return Err(Unusable::failed("_default_graph_stack is not a threading.local"));
        }
        let stack = present(stacks.getattr("stack"))?;
        stack.cast_into::<PyList>().map_err(PyErr::from)?;
        let context_dict = context.dict();
        let eager_mode = present(context.getattr("EAGER_MODE"))?;
        present(context.getattr("default_execution_mode"))?;
        Ok(Self {
            stacks: stacks.unbind(),
            context_dict: context_dict.unbind(),
            eager_mode: eager_mode.unbind(),
        })
    }

    /// Whether the calling thread certainly executes eagerly. If false, `tf.executing_eagerly` decides.
    pub(super) fn is_eager(&self, py: Python<'_>) -> PyResult<bool> {
        // The dict of the `threading.local` is cached in the thread state's dict, where the lookup is ten times as fast.
        let Some(thread) = objects::thread_dict(py) else { return Ok(false) };
        let name = interned!(py, "tensorferry: TensorFlow's graphs");
        let local = match thread.get_item(name)? {
            Some(local) => local,
            None => {
                let local = self.stacks.bind(py).getattr("__dict__")?;
                thread.set_item(name, &local)?;
                local
            }
        };
        let stack = local.cast::<PyDict>()?.get_item(interned!(py, "stack"))?;
        let is_outside =
            stack.is_some_and(|stack| stack.cast::<PyList>().is_ok_and(|stack| stack.is_empty()));
        let mode = self.context_dict.bind(py).get_item(interned!(py, "default_execution_mode"))?;
        Ok(is_outside && mode.is_some_and(|mode| mode.is(&self.eager_mode)))
    }
}
