//! Tree nodes of types that are registered here, with JAX or with PyTorch.

use crate::errors::{Failure, Result};
use crate::fast_paths::{self, FastPath, Probed, check, present};
use crate::interpreter::once::ForkSafeOnce;
use crate::trees::path::PathStep;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCFunction, PyDict, PyList, PyType};
use std::sync::atomic::{AtomicBool, Ordering};
use tensorferry_core::fallible::try_collect;

/// Rebuilds a node around its new children.
pub(crate) type Rebuild<'py> = Box<dyn FnOnce(Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> + 'py>;

/// The children of a node with the steps to them, and the function that rebuilds it.
pub(crate) type FlattenedNode<'py> = (Vec<(PathStep<'py>, Bound<'py, PyAny>)>, Rebuild<'py>);

fn registered_types(py: Python<'_>) -> &Bound<'_, PyDict> {
    static NODES: ForkSafeOnce<Py<PyDict>> = ForkSafeOnce::new();
    NODES.get_or_init(py, || PyDict::new(py).unbind()).bind(py)
}

/// Whether the type is registered here.
pub(crate) fn is_registered(kind: &Bound<'_, PyType>) -> PyResult<bool> {
    registered_types(kind.py()).contains(kind)
}

/// Registers a type whose objects are nodes of trees.
///
/// `flatten(node)` returns `(children, rest)`, and `unflatten(rest, children)` returns a node.
///
/// Args:
///     kind: The type.
///     flatten: Called with an object of the type; returns its children and the rest of its state.
///     unflatten: Called with the rest and the new children; returns an object of the type.
///
/// Returns:
///     None.
///
/// Raises:
///     TypeError: `kind` is not a type.
///
/// Example:
///     >>> class Pair:
///     ...     def __init__(self, first, second):
///     ...         self.first, self.second = first, second
///     >>> ferry.register_container(
///     ...     Pair, lambda pair: ((pair.first, pair.second), None), lambda _, parts: Pair(*parts)
///     ... )
///     >>> ferry.to(Pair(np.ones(2), 3), "torch").first.tolist()
///     [1.0, 1.0]
#[pyfunction]
pub(crate) fn register_container(
    kind: &Bound<'_, PyType>,
    flatten: &Bound<'_, PyAny>,
    unflatten: &Bound<'_, PyAny>,
) -> PyResult<()> {
    registered_types(kind.py()).set_item(kind, (flatten, unflatten))?;
    crate::conversion::object_kinds::clear_cache(kind.py());
    Ok(())
}

/// The children of a node and the function that rebuilds it, or `None` for an object of any other type.
pub(crate) fn flatten<'py>(object: &Bound<'py, PyAny>) -> Result<Option<FlattenedNode<'py>>> {
    let py = object.py();
    let kind = object.get_type();
    if let Some(functions) = registered_types(py).get_item(&kind)? {
        let (flatten, unflatten) = functions.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()?;
        let (children, rest) =
            flatten.call1((object,))?.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()?;
        return Ok(Some((numbered(&children)?, Box::new(move |results| unflatten.call1((rest, results))))));
    }
    let modules = py.import("sys")?.getattr("modules")?;
    if modules.contains("jax")?
        && let Some(found) = flatten_with_jax(object)?
    {
        return Ok(Some(found));
    }
    if modules.contains("torch.utils._pytree")?
        && let Some(nodes) = torch_nodes(py)
    {
        return flatten_with_torch(object, &kind, nodes);
    }
    Ok(None)
}

/// Children without names of their own.
fn numbered<'py>(children: &Bound<'py, PyAny>) -> Result<Vec<(PathStep<'py>, Bound<'py, PyAny>)>> {
    let steps = children.try_iter()?.enumerate();
    try_collect(steps.map(|(index, child)| Ok::<_, Failure>((PathStep::Index(index), child?))))
}

/// The table of node types that are registered with PyTorch, which has no public function to flatten a tree.
fn torch_nodes(py: Python<'_>) -> Option<&Bound<'_, PyAny>> {
    static NODES: ForkSafeOnce<Option<Py<PyAny>>> = ForkSafeOnce::new();
    let find = || fast_paths::probe(py, FastPath::TorchPytree, || probe_torch_nodes(py));
    NODES.get_or_init(py, find).as_ref().map(|nodes| nodes.bind(py))
}

/// Finds the table, and checks it by flattening and rebuilding a dict.
fn probe_torch_nodes(py: Python<'_>) -> Probed<Py<PyAny>> {
    let nodes =
        present(py.import("torch.utils._pytree").and_then(|module| module.getattr("SUPPORTED_NODES")))?;
    let sample = [("a", 1), ("b", 2)].into_py_dict(py)?;
    let node = present(nodes.get_item(sample.get_type()))?;
    let (children, context) =
        node.getattr("flatten_fn")?.call1((&sample,))?.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
    let children = children.try_iter()?.collect::<PyResult<Vec<_>>>()?;
    let numbers = children.iter().map(|child| child.extract()).collect::<PyResult<Vec<i64>>>()?;
    check(numbers == [1, 2], || format!("flattening a dict returned {numbers:?}"))?;
    let rebuilt = node.getattr("unflatten_fn")?.call1((children, context))?;
    check(rebuilt.eq(&sample)?, || format!("rebuilding a dict returned {rebuilt}"))?;
    Ok(nodes.unbind())
}

fn flatten_with_jax<'py>(object: &Bound<'py, PyAny>) -> Result<Option<FlattenedNode<'py>>> {
    let py = object.py();
    let tree_util = py.import("jax.tree_util")?;
    if tree_util.call_method1("all_leaves", (PyList::new(py, [object])?,))?.is_truthy()? {
        return Ok(None);
    }
    // JAX calls `is_leaf` for the node first and for its children next. True from the second call on flattens one level, also
    // if a node contains itself.
    let is_child = AtomicBool::new(false);
    let is_leaf =
        PyCFunction::new_closure(py, None, None, move |_, _| is_child.swap(true, Ordering::Relaxed))?;
    let (children, definition) = tree_util
        .call_method1("tree_flatten_with_path", (object, is_leaf))?
        .extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()?;
    let children = children.try_iter()?.enumerate().map(|(index, child)| {
        let (path, child) = child?.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()?;
        Ok::<_, Failure>((jax_step(&path.get_item(0)?, index)?, child))
    });
    let children = try_collect(children)?;
    let unflatten = tree_util.getattr("tree_unflatten")?;
    Ok(Some((children, Box::new(move |results| unflatten.call1((definition, results))))))
}

/// The step to the child that JAX names by a `GetAttrKey` or a `DictKey`; other children are numbered.
fn jax_step<'py>(key: &Bound<'py, PyAny>, index: usize) -> Result<PathStep<'py>> {
    Ok(match key.get_type().name()?.to_str()? {
        "GetAttrKey" => PathStep::Field(key.getattr("name")?.to_string()),
        "DictKey" => PathStep::Key(key.getattr("key")?),
        _ => PathStep::Index(index),
    })
}

fn flatten_with_torch<'py>(
    object: &Bound<'py, PyAny>,
    kind: &Bound<'py, PyType>,
    nodes: &Bound<'py, PyAny>,
) -> Result<Option<FlattenedNode<'py>>> {
    if !nodes.contains(kind)? {
        return Ok(None);
    }
    let node = nodes.get_item(kind)?;
    let (children, context) =
        node.getattr("flatten_fn")?.call1((object,))?.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()?;
    let unflatten = node.getattr("unflatten_fn")?;
    Ok(Some((numbered(&children)?, Box::new(move |results| unflatten.call1((results, context))))))
}
