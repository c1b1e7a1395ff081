//! The dispatch table of picklers: a Mapping from the types of tensors to the reducer.
//!
//! A look-up asks the register of frameworks and imports nothing. A native class, because a pickler looks up the type of every
//! object that is not a builtin.

use super::stream_format::PUBLIC_MODULE;
use crate::conversion::object_kinds::{Form, Recognised};
use crate::conversion::recognise::recognise_type;
use crate::errors::Result;
use crate::frameworks::{builtin_frameworks, user_frameworks};
use crate::interpreter::once::ForkSafeOnce;
use crate::sparse;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

/// `Mapping[type, reducer]`: the types of tensors that become payloads.
///
/// With `fallback` it answers for other types with the entry of that mapping.
#[pyclass(frozen, mapping, module = "tensorferry._native", name = "_DispatchTable")]
pub(crate) struct DispatchTable {
    fallback: Option<Py<PyDict>>,
}

fn reducer(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static REDUCER: ForkSafeOnce<Py<PyAny>> = ForkSafeOnce::new();
    let reducer = REDUCER.get_or_try_init(py, || -> PyResult<_> {
        Ok(py.import(PUBLIC_MODULE)?.getattr("_reduce")?.unbind())
    })?;
    Ok(reducer.bind(py))
}

/// Whether the instances of exactly this type become payloads.
fn has_payloads(kind: &Bound<'_, PyType>) -> Result<bool> {
    Ok(match recognise_type(kind)? {
        Recognised::Tensor(_, Form::Plain) => true,
        // The types of the libraries themselves: subclasses of others keep their own reducers.
        kind_of if sparse::is_sparse_type(kind_of) => {
            let module = kind.getattr("__module__")?.to_string();
            let top = module.split('.').next().unwrap_or_default();
            builtin_frameworks::REGISTER.iter().any(|entry| entry.module.split('.').next() == Some(top))
        }
        Recognised::Registered(_) => {
            let (module, name) = (kind.getattr("__module__")?, kind.getattr("__qualname__")?);
            user_frameworks::index_of_type(kind.py(), &module.to_string(), &name.to_string()).is_some()
        }
        _ => false,
    })
}

#[pymethods]
impl DispatchTable {
    #[new]
    #[pyo3(signature = (fallback=None))]
    fn new(fallback: Option<Py<PyDict>>) -> Self {
        Self { fallback }
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let py = key.py();
        if let Ok(kind) = key.cast::<PyType>()
            && has_payloads(kind)?
        {
            return Ok(reducer(py)?.clone());
        }
        let known = self.fallback.as_ref().map(|fallback| fallback.bind(py).get_item(key)).transpose()?;
        known.flatten().ok_or_else(|| PyKeyError::new_err(key.clone().unbind()).into())
    }

    /// The entry of a type, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> Result<Option<Bound<'py, PyAny>>> {
        if self.__contains__(key)? { self.__getitem__(key).map(Some) } else { Ok(default) }
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> Result<bool> {
        let is_tensor = key.cast::<PyType>().is_ok_and(|kind| has_payloads(kind).unwrap_or(false));
        let in_fallback = |fallback: &Py<PyDict>| fallback.bind(key.py()).contains(key);
        Ok(is_tensor || self.fallback.as_ref().map(in_fallback).transpose()?.unwrap_or(false))
    }

    fn __len__(&self, py: Python<'_>) -> Result<usize> {
        Ok(self.entries(py)?.len())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(self.entries(py)?.as_any().try_iter()?.into_any())
    }

    /// The types of the frameworks that are loaded.
    fn keys<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(self.entries(py)?.call_method0("keys")?)
    }

    /// The reducers.
    fn values<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(self.entries(py)?.call_method0("values")?)
    }

    /// The types of the frameworks that are loaded, with the reducer.
    fn items<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(self.entries(py)?.call_method0("items")?)
    }
}

impl DispatchTable {
    /// The entries of the frameworks that are loaded, for picklers that copy the table.
    fn entries<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let entries = match &self.fallback {
            Some(fallback) => fallback.bind(py).copy()?,
            None => PyDict::new(py),
        };
        for kind in builtin_frameworks::loaded_tensor_types(py)? {
            if has_payloads(&kind)? {
                entries.set_item(kind, reducer(py)?)?;
            }
        }
        Ok(entries)
    }
}
