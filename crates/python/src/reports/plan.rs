//! The Python class `Plan`: what will happen to a tensor, a tree of tensors, a sparse tensor, or an array of one.

use super::content::{ArrayReport, Content, PlanReport, SparseReport, TreeReport};
use super::html;
use super::tensor::{Steps, TensorReport};
use crate::errors::Result;
use crate::trees::traverse::TENSOR_OVERHEAD_BYTES;
use pyo3::exceptions::PyAttributeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyList, PyString, PyTuple};
use tensorferry_core::emergency_pool;

/// Memory that the dict of one plan is taken to need, with its entries.
const AS_DICT_BYTES: usize = 4096;

use Content::{Array, Sparse, Tensor, Tree};

impl From<TensorReport> for PlanReport {
    fn from(report: TensorReport) -> Self {
        Self { name: None, content: Tensor(report) }
    }
}

impl From<TreeReport> for PlanReport {
    fn from(report: TreeReport) -> Self {
        Self { name: None, content: Tree(report) }
    }
}

impl From<SparseReport> for PlanReport {
    fn from(report: SparseReport) -> Self {
        Self { name: None, content: Sparse(report) }
    }
}

impl From<ArrayReport> for PlanReport {
    fn from(report: ArrayReport) -> Self {
        Self { name: None, content: Array(report) }
    }
}

impl PlanReport {
    /// The same plan as a part of another.
    pub(crate) fn named(self, name: String) -> Self {
        Self { name: Some(name), ..self }
    }

    /// The name of a part.
    pub(super) fn part_name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    pub(super) fn content(&self) -> &Content {
        &self.content
    }

    fn parts(&self) -> &[Self] {
        match &self.content {
            Tree(tree) => &tree.parts,
            Sparse(sparse) => &sparse.parts,
            Tensor(_) | Array(_) => &[],
        }
    }

    /// The error of an attribute that this kind of plan does not have.
    fn lacks(&self, attribute: &str) -> PyErr {
        let hint = match (&self.content, attribute) {
            (Sparse(_) | Array(_), "writable" | "transfer_path" | "advice") => {
                "the plan of a dense tensor has it"
            }
            (Tree(_) | Sparse(_), _) => "see the plans in parts",
            (Tensor(_), "shape") => "the source has no memory: ask it for its shape",
            (Tensor(_), _) => "the plan of a sparse tensor has it",
            (Array(_), _) => "see the plan of the sparse tensor",
        };
        PyAttributeError::new_err(format!(
            "the plan of {} has no {attribute}\nhint: {hint}",
            self.content.described()
        ))
    }

    /// The text, which grows with a tree, and for which there may be no memory.
    pub(super) fn text(&self) -> Result<Vec<u8>> {
        match &self.content {
            Tensor(tensor) => Ok(tensor.text().into_bytes()),
            Tree(tree) => tree.text(),
            Sparse(sparse) => Ok(sparse.text().into_bytes()),
            Array(array) => Ok(array.text(self.part_name()).into_bytes()),
        }
    }

    /// Whether the host is busy with it until it is done.
    pub(super) fn is_waited_for(&self) -> bool {
        match &self.content {
            Tensor(tensor) => tensor.is_waited_for(),
            _ => !self.shares(),
        }
    }
}

impl Content {
    fn kind(&self) -> &'static str {
        match self {
            Tensor(_) => "tensor",
            Tree(_) => "tree",
            Sparse(_) => "sparse",
            Array(_) => "array",
        }
    }

    fn described(&self) -> &'static str {
        match self {
            Tensor(_) => "a dense tensor",
            Tree(_) => "a tree",
            Sparse(_) => "a sparse tensor",
            Array(_) => "an array of a sparse tensor",
        }
    }
}

#[pymethods]
impl PlanReport {
    /// What it is a plan of: `"tensor"`, `"tree"`, `"sparse"`, or `"array"`, which is one of the arrays of a sparse tensor.
    #[getter]
    fn kind(&self) -> &'static str {
        self.content.kind()
    }

    /// The plans of the tensors in a tree, or of the arrays of a sparse tensor; empty for one dense tensor.
    #[getter(parts)]
    fn list_of_parts<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyList>> {
        let parts = PyList::empty(py);
        for part in self.parts() {
            emergency_pool::reserve_headroom(TENSOR_OVERHEAD_BYTES)?;
            parts.append(Bound::new(py, part.clone())?)?;
        }
        Ok(parts)
    }

    /// `"itself"`, `"share"` or `"copy"`; of a tree and of a sparse tensor `"copy"` if a part is copied.
    #[getter]
    pub(super) fn action(&self) -> &'static str {
        match &self.content {
            Tensor(tensor) => tensor.action,
            Tree(tree) => tree.action(),
            Sparse(sparse) => sparse.action(),
            Array(array) => array.action(),
        }
    }

    /// Whether no byte moves.
    #[getter]
    pub(super) fn shares(&self) -> bool {
        self.action() != "copy"
    }

    /// Bytes that are written.
    #[getter]
    pub(super) fn bytes_moved(&self) -> usize {
        match &self.content {
            Tensor(tensor) => tensor.bytes_moved,
            Array(array) => array.bytes_moved,
            Tree(_) | Sparse(_) => self.parts().iter().map(Self::bytes_moved).sum(),
        }
    }

    /// Bytes of new memory for the result.
    #[getter]
    pub(super) fn extra_bytes(&self) -> usize {
        match &self.content {
            Tensor(tensor) => tensor.extra_bytes,
            Array(array) => array.extra_bytes,
            Tree(_) | Sparse(_) => self.parts().iter().map(Self::extra_bytes).sum(),
        }
    }

    /// How long it will take, from what this machine was measured to do; None where no byte moves, the host does not wait,
    /// nothing has gone that way yet, or a tensor that moves is sparse.
    #[getter]
    pub(super) fn expected_seconds(&self) -> Option<f64> {
        match &self.content {
            Tensor(tensor) => tensor.expected_seconds(),
            Tree(tree) => tree.expected_seconds(),
            Sparse(_) | Array(_) => None,
        }
    }

    /// The framework of the source.
    #[getter]
    fn source(&self) -> PyResult<&str> {
        match &self.content {
            Tensor(tensor) => Ok(&tensor.source),
            Sparse(sparse) => Ok(&sparse.source),
            Tree(_) | Array(_) => Err(self.lacks("source")),
        }
    }

    /// The framework of the result.
    #[getter]
    fn target(&self) -> PyResult<&str> {
        match &self.content {
            Tensor(tensor) => Ok(&tensor.target),
            Tree(tree) => Ok(&tree.target),
            Sparse(sparse) => Ok(&sparse.target),
            Array(_) => Err(self.lacks("target")),
        }
    }

    /// Where the source is.
    #[getter]
    fn source_device(&self) -> PyResult<&str> {
        match &self.content {
            Tensor(tensor) => Ok(&tensor.source_device),
            Sparse(sparse) => Ok(&sparse.source_device),
            Tree(_) | Array(_) => Err(self.lacks("source_device")),
        }
    }

    /// Where the result is.
    #[getter]
    fn device(&self) -> PyResult<&str> {
        match &self.content {
            Tensor(tensor) => Ok(&tensor.device),
            Sparse(sparse) => Ok(&sparse.device),
            Tree(_) | Array(_) => Err(self.lacks("device")),
        }
    }

    /// The element type of the source.
    #[getter]
    fn source_dtype(&self) -> PyResult<&str> {
        match &self.content {
            Tensor(tensor) => Ok(tensor.source_dtype),
            Sparse(sparse) => Ok(&sparse.source_dtype),
            Tree(_) | Array(_) => Err(self.lacks("source_dtype")),
        }
    }

    /// The element type of the result.
    #[getter]
    fn dtype(&self) -> PyResult<&str> {
        match &self.content {
            Tensor(tensor) => Ok(tensor.dtype),
            Sparse(sparse) => Ok(&sparse.dtype),
            Array(array) => Ok(&array.dtype),
            Tree(_) => Err(self.lacks("dtype")),
        }
    }

    /// The shape of the tensor.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.lengths().ok_or_else(|| self.lacks("shape"))?)
    }

    /// Whether the result may be written, as far as its framework can say so.
    #[getter]
    fn writable(&self) -> PyResult<bool> {
        match &self.content {
            Tensor(tensor) => Ok(tensor.writable),
            _ => Err(self.lacks("writable")),
        }
    }

    /// What is done, each with its reason; empty when no byte moves.
    #[getter]
    fn steps(&self) -> PyResult<Steps> {
        self.own_steps().cloned().ok_or_else(|| self.lacks("steps"))
    }

    /// How bytes cross between a GPU and the host, and why so; None where they do not.
    #[getter]
    fn transfer_path(&self) -> PyResult<Option<&str>> {
        match &self.content {
            Tensor(tensor) => Ok(tensor.transfer_path.as_deref()),
            _ => Err(self.lacks("transfer_path")),
        }
    }

    /// What to know about aliases, gradients, snapshots and the order of sparse elements.
    #[getter]
    fn notes(&self) -> PyResult<Vec<String>> {
        match &self.content {
            Tensor(tensor) => Ok(tensor.notes.clone()),
            Sparse(sparse) => Ok(sparse.notes.clone()),
            Array(array) => Ok(array.notes.clone()),
            Tree(_) => Err(self.lacks("notes")),
        }
    }

    /// What would make it free of copies; None when it is, or when nothing would.
    #[getter]
    fn advice(&self) -> PyResult<Option<&str>> {
        match &self.content {
            Tensor(tensor) => Ok(tensor.advice.as_deref()),
            _ => Err(self.lacks("advice")),
        }
    }

    /// The sparse format of the source.
    #[getter]
    fn source_format(&self) -> PyResult<&str> {
        match &self.content {
            Sparse(sparse) => Ok(&sparse.source_format),
            _ => Err(self.lacks("source_format")),
        }
    }

    /// The sparse format of the result; None for a dense one.
    #[getter]
    fn format(&self) -> PyResult<Option<&str>> {
        match &self.content {
            Sparse(sparse) => Ok(sparse.format.as_deref()),
            _ => Err(self.lacks("format")),
        }
    }

    /// How many elements the sparse source stores, explicit zeros among them.
    #[getter]
    fn nnz(&self) -> PyResult<usize> {
        match &self.content {
            Sparse(sparse) => Ok(sparse.nnz),
            _ => Err(self.lacks("nnz")),
        }
    }

    /// All that this kind of plan has as a dict of plain values, for JSON.
    fn as_dict<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        emergency_pool::reserve_headroom(AS_DICT_BYTES)?;
        let dict = PyDict::new(py);
        dict.set_item("kind", self.kind())?;
        dict.set_item("name", &self.name)?;
        if let Sparse(sparse) = &self.content {
            dict.set_item("source_format", &sparse.source_format)?;
            dict.set_item("format", &sparse.format)?;
            dict.set_item("nnz", sparse.nnz)?;
        }
        if let Ok(target) = self.target() {
            dict.set_item("target", target)?;
        }
        if let Ok(source) = self.source() {
            dict.set_item("source", source)?;
            dict.set_item("source_device", self.source_device()?)?;
            dict.set_item("device", self.device()?)?;
            dict.set_item("source_dtype", self.source_dtype()?)?;
        }
        if let Ok(dtype) = self.dtype() {
            dict.set_item("dtype", dtype)?;
            dict.set_item("notes", self.notes()?)?;
        }
        if let Some(shape) = self.lengths() {
            dict.set_item("shape", shape)?;
        }
        dict.set_item("action", self.action())?;
        dict.set_item("shares", self.shares())?;
        dict.set_item("bytes_moved", self.bytes_moved())?;
        dict.set_item("extra_bytes", self.extra_bytes())?;
        dict.set_item("expected_seconds", self.expected_seconds())?;
        if let Some(steps) = self.own_steps() {
            let steps = steps.iter().map(|(kind, reason)| {
                [("kind", kind.as_ref()), ("reason", reason.as_str())].into_py_dict(py)
            });
            dict.set_item("steps", steps.collect::<PyResult<Vec<_>>>()?)?;
        }
        if let Tensor(tensor) = &self.content {
            dict.set_item("writable", tensor.writable)?;
            dict.set_item("transfer_path", &tensor.transfer_path)?;
            dict.set_item("advice", &tensor.advice)?;
        }
        let parts = PyList::empty(py);
        for part in self.parts() {
            parts.append(part.as_dict(py)?)?;
        }
        dict.set_item("parts", parts)?;
        Ok(dict)
    }

    fn __str__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyString>> {
        string(py, &self.text()?)
    }

    fn __repr__(&self) -> String {
        let text = match &self.content {
            Tensor(tensor) => tensor.headline(),
            Tree(tree) => tree.headline(),
            Sparse(sparse) => sparse.headline(),
            Array(array) => array.headline(self.part_name()),
        };
        format!("<Plan {text}>")
    }

    fn _repr_html_<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyString>> {
        string(py, html::plan(self)?.as_bytes())
    }
}

impl PlanReport {
    fn lengths(&self) -> Option<&[i64]> {
        match &self.content {
            Tensor(tensor) => tensor.shape.as_deref(),
            Sparse(sparse) => Some(&sparse.shape),
            Array(array) => Some(&array.shape),
            Tree(_) => None,
        }
    }

    fn own_steps(&self) -> Option<&Steps> {
        match &self.content {
            Tensor(tensor) => Some(&tensor.steps),
            Array(array) => Some(&array.steps),
            Tree(_) | Sparse(_) => None,
        }
    }
}

/// A Python string. PyO3's own constructor panics when memory runs out.
fn string<'py>(py: Python<'py>, text: &[u8]) -> Result<Bound<'py, PyString>> {
    // SAFETY: pointer and length are those of `text`, which Python copies and checks to be UTF-8. A null result has an
    // error set.
    unsafe {
        let made = ffi::PyUnicode_FromStringAndSize(text.as_ptr().cast(), text.len() as ffi::Py_ssize_t);
        Ok(Bound::from_owned_ptr_or_err(py, made)?.cast_into_unchecked())
    }
}
