//! Prefix trees: options that are one value for a whole batch, or a tree with a value for each part of it.

use crate::errors::{Failure, Result, describe_argument, fail, type_name};
use crate::trees::path::PathStep;
use crate::trees::traverse::MAX_DEPTH;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use tensorferry_core::ErrorKind;

/// The value of an option for each part of a batch.
pub(super) enum PrefixTree {
    /// One value for this part and everything below it.
    Value(Option<Py<PyAny>>),
    /// From a dict, a named tuple or a dataclass.
    Keys(Vec<(Py<PyAny>, PrefixTree)>),
    /// From a list or a tuple.
    Items(Vec<PrefixTree>),
}

impl PrefixTree {
    /// Reads an option. `check` is called for each value, and raises for an invalid one.
    pub(super) fn new(
        name: &str,
        given: &Bound<'_, PyAny>,
        check: &dyn Fn(&Bound<'_, PyAny>) -> Result<()>,
    ) -> Result<Self> {
        Self::read(name, given, check, 0)
    }

    fn read(
        name: &str,
        given: &Bound<'_, PyAny>,
        check: &dyn Fn(&Bound<'_, PyAny>) -> Result<()>,
        depth: usize,
    ) -> Result<Self> {
        if depth > MAX_DEPTH {
            return Err(fail(
                ErrorKind::InvalidArgument,
                format!("{name} is nested more than {MAX_DEPTH} levels deep"),
                "check that no container contains itself",
            ));
        }
        let below = |value: &Bound<'_, PyAny>| Self::read(name, value, check, depth + 1);
        if let Ok(dict) = given.cast::<PyDict>() {
            let keys = dict.iter().map(|(key, value)| Ok((key.unbind(), below(&value)?)));
            return keys.collect::<Result<_>>().map(Self::Keys);
        }
        if let Some(names) = field_names(given)? {
            let py = given.py();
            let keys = names.into_iter().map(|name| {
                let value = below(&given.getattr(name.as_str())?)?;
                Ok((name.into_pyobject(py).map_err(PyErr::from)?.into_any().unbind(), value))
            });
            return keys.collect::<Result<_>>().map(Self::Keys);
        }
        if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
            let items = given.try_iter()?.map(|item| below(&item?));
            return items.collect::<Result<_>>().map(Self::Items);
        }
        if given.is_none() {
            return Ok(Self::Value(None));
        }
        check(given)?;
        Ok(Self::Value(Some(given.clone().unbind())))
    }

    /// Whether there is one value for the whole batch.
    pub(super) fn is_uniform(&self) -> bool {
        matches!(self, Self::Value(_))
    }

    /// Raises unless the option, named `name`, has the structure of the upper part of the batch. `path` leads to `batch`.
    pub(super) fn check(&self, name: &str, batch: &Bound<'_, PyAny>, path: &str) -> Result<()> {
        let py = batch.py();
        let mismatch = |fact: String| mismatch(name, path, &fact);
        match self {
            Self::Value(_) => Ok(()),
            Self::Items(items) => {
                if !(batch.is_instance_of::<PyList>() || batch.is_instance_of::<PyTuple>()) {
                    let (count, kind) = (items.len(), type_name(batch));
                    return Err(mismatch(format!("has {count} entries, and the batch has a {kind}")));
                }
                if batch.len()? != items.len() {
                    let (count, length) = (items.len(), batch.len()?);
                    return Err(mismatch(format!("has {count} entries, and the batch has {length}")));
                }
                batch.try_iter()?.zip(items).enumerate().try_for_each(|(index, (value, item))| {
                    item.check(name, &value?, &format!("{path}[{index}]"))
                })
            }
            Self::Keys(keys) => {
                let Some(children) = named_children(batch)? else {
                    let kind = type_name(batch);
                    return Err(mismatch(format!("has entries by name, and the batch has a {kind}")));
                };
                let absent = children
                    .iter()
                    .find(|(key, _)| !keys.iter().any(|(known, _)| known.bind(py).eq(key).unwrap_or(false)));
                if let Some((key, _)) = absent {
                    let key = describe_argument(key);
                    return Err(mismatch(format!("lacks the entry {key}, which the batch has")));
                }
                keys.iter().try_for_each(|(key, value)| {
                    let key = key.bind(py);
                    let child = children.iter().find(|(known, _)| known.eq(key).unwrap_or(false));
                    match child {
                        Some((_, child)) => {
                            value.check(name, child, &format!("{path}[{}]", describe_argument(key)))
                        }
                        None => {
                            let key = describe_argument(key);
                            Err(mismatch(format!("has the entry {key}, which the batch lacks")))
                        }
                    }
                })
            }
        }
    }

    /// The value for the part of the batch at the end of a path. The structure has been checked.
    pub(super) fn value_at<'py>(
        &self,
        batch: &Bound<'py, PyAny>,
        path: &[PathStep<'py>],
    ) -> Result<Option<Bound<'py, PyAny>>> {
        let py = batch.py();
        let (step, rest) = match (self, path.split_first()) {
            (Self::Value(value), _) => return Ok(value.as_ref().map(|value| value.bind(py).clone())),
            (_, None) => return Ok(None),
            (_, Some(split)) => split,
        };
        let (key, child) = match step {
            PathStep::Key(key) => (key.clone(), batch.get_item(key)?),
            PathStep::Index(index) => {
                (index.into_pyobject(py).map_err(PyErr::from)?.into_any(), batch.get_item(index)?)
            }
            PathStep::Field(name) => {
                (name.into_pyobject(py).map_err(PyErr::from)?.into_any(), batch.getattr(name.as_str())?)
            }
        };
        let option = match (self, step) {
            (Self::Keys(keys), _) => keys
                .iter()
                .find(|(known, _)| known.bind(py).eq(&key).unwrap_or(false))
                .map(|(_, value)| value),
            (Self::Items(items), PathStep::Index(index)) => items.get(*index),
            // A sequence of options for a named tuple.
            (Self::Items(items), PathStep::Field(name)) => {
                let names = field_names(batch)?.unwrap_or_default();
                names.iter().position(|known| known == name).and_then(|index| items.get(index))
            }
            _ => None,
        };
        option.map_or(Ok(None), |option| option.value_at(&child, rest))
    }
}

fn mismatch(name: &str, path: &str, fact: &str) -> Failure {
    let hint = format!("pass one {name} for all, or one for each part of the batch, with None for no change");
    fail(ErrorKind::InvalidArgument, format!("{name}{path} {fact}"), hint)
}

/// The names of the fields of a named tuple or a dataclass.
fn field_names(object: &Bound<'_, PyAny>) -> Result<Option<Vec<String>>> {
    if object.is_instance_of::<PyTuple>() {
        let fields = object.getattr_opt("_fields")?;
        return Ok(fields.map(|fields| fields.extract()).transpose()?);
    }
    let py = object.py();
    let class = object.get_type();
    if object.is_instance_of::<pyo3::types::PyType>() || !class.hasattr("__dataclass_fields__")? {
        return Ok(None);
    }
    let fields = py.import("dataclasses")?.call_method1("fields", (object,))?;
    let names = fields.try_iter()?.map(|field| field?.getattr("name")?.extract());
    Ok(Some(names.collect::<PyResult<_>>()?))
}

/// A key and a child.
type NamedChild<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// The children of a dict, a `UserDict`, a named tuple or a dataclass, with their keys.
fn named_children<'py>(object: &Bound<'py, PyAny>) -> Result<Option<Vec<NamedChild<'py>>>> {
    let py = object.py();
    let is_wrapper = object.is_instance(&py.import("collections")?.getattr("UserDict")?)?;
    let dict = if is_wrapper { object.getattr("data")? } else { object.clone() };
    if let Ok(dict) = dict.cast::<PyDict>() {
        return Ok(Some(dict.iter().collect()));
    }
    let Some(names) = field_names(object)? else { return Ok(None) };
    let pairs = names.into_iter().map(|name| -> PyResult<_> {
        let value = object.getattr(name.as_str())?;
        Ok((name.into_pyobject(py)?.into_any(), value))
    });
    Ok(Some(pairs.collect::<PyResult<_>>()?))
}
