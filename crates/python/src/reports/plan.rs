//! The Python class `Plan`: the planned conversion of a tensor, a tree, a sparse tensor, or an array of a sparse tensor.

use super::html;
use super::plan_data::{ArrayReport, PlanContent, PlanReport, SparseReport, TreeReport};
use super::tensor::{CopiedMemory, Steps, TensorReport};
use crate::errors::Result;
use crate::interpreter::objects::{self, TENSOR_OVERHEAD_BYTES};
use crate::text::format_bytes;
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyList, PyString, PyTuple};
use std::fmt::Write;
use tensorferry_core::emergency_pool;
use tensorferry_core::plan::format_shape;

/// An estimate of the memory for the dict of one plan, with its entries.
const DICT_OVERHEAD_BYTES: usize = 4096;

use PlanContent::{Array, Sparse, Tensor, Tree};

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
    /// The plan as a named part of another plan.
    pub(crate) fn named(self, name: String) -> Self {
        Self { name: Some(name), ..self }
    }

    /// The plan as a part of another plan, with this path in front of its own name.
    pub(crate) fn below(self, path: String) -> Self {
        let name = path + self.display_name();
        self.named(name)
    }

    /// The name of a part; empty for a plan that is not a part.
    pub(super) fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    pub(super) fn content(&self) -> &PlanContent {
        &self.content
    }

    /// The memory of the source of a dense tensor that is copied.
    pub(crate) fn copied(&self) -> Option<CopiedMemory> {
        if let Tensor(tensor) = &self.content { tensor.copied } else { None }
    }

    fn child_plans(&self) -> &[Self] {
        match &self.content {
            Tree(tree) => &tree.parts,
            Sparse(sparse) => &sparse.parts,
            Tensor(_) | Array(_) => &[],
        }
    }

    /// The error of an attribute that this kind of plan does not have.
    fn missing_attribute(&self, attribute: &str) -> PyErr {
        let hint = match (&self.content, attribute) {
            (Sparse(_) | Array(_), "writable" | "transfer_path" | "advice") => {
                "only the plan of a dense tensor has it"
            }
            (Tree(_) | Sparse(_), _) => "see the plans in parts",
            (Tensor(_), "shape") => "read the shape of the source itself, or convert it",
            (Tensor(_), _) => "only the plan of a sparse tensor has it",
            (Array(_), _) => "see the plan of the sparse tensor",
        };
        PyAttributeError::new_err(format!(
            "the plan of {} has no {attribute}\nhint: {hint}",
            self.content.description()
        ))
    }

    pub(super) fn headline(&self) -> String {
        match &self.content {
            Tensor(tensor) => tensor.headline(),
            Tree(tree) => tree.headline(),
            Sparse(sparse) => sparse.headline(),
            Array(array) => array.headline(self.display_name()),
        }
    }

    /// The text of the plan. Its length grows with the tree, so the allocation can fail.
    pub(super) fn text(&self) -> Result<Vec<u8>> {
        match &self.content {
            Tensor(tensor) => Ok(tensor.text().into_bytes()),
            Tree(tree) => tree.text(),
            Sparse(sparse) => Ok(sparse.text().into_bytes()),
            Array(array) => Ok(array.text(self.display_name()).into_bytes()),
        }
    }

    /// The shape and the size, for a list of several conversions.
    pub(super) fn shape_and_size(&self) -> String {
        let mut text = self.shape_lengths().map(format_shape).unwrap_or_default();
        if self.bytes_moved() > 0 {
            let _ = write!(text, ", {}", format_bytes(self.bytes_moved()));
        }
        text
    }

    /// Whether the host waits for the conversion.
    pub(super) fn blocks_host(&self) -> bool {
        match &self.content {
            Tensor(tensor) => tensor.blocks_host(),
            _ => !self.shares(),
        }
    }
}

impl PlanContent {
    fn kind(&self) -> &'static str {
        match self {
            Tensor(_) => "tensor",
            Tree(_) => "tree",
            Sparse(_) => "sparse",
            Array(_) => "array",
        }
    }

    fn description(&self) -> &'static str {
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
    /// The kind of object: `"tensor"`, `"tree"`, `"sparse"`, or `"array"`, which is an array of a sparse tensor.
    #[getter]
    fn kind(&self) -> &'static str {
        self.content.kind()
    }

    /// The plans of the tensors in a tree, or of the arrays of a sparse tensor; empty for one dense tensor.
    #[getter(parts)]
    fn list_child_plans<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyList>> {
        let parts = PyList::empty(py);
        for part in self.child_plans() {
            emergency_pool::ensure_headroom(TENSOR_OVERHEAD_BYTES)?;
            parts.append(Bound::new(py, part.clone())?)?;
        }
        Ok(parts)
    }

    /// `"itself"`, `"share"` or `"copy"`. A tree or a sparse tensor has `"copy"` if any part is copied.
    #[getter]
    pub(super) fn action(&self) -> &'static str {
        match &self.content {
            Tensor(tensor) => tensor.action,
            Tree(tree) => tree.action(),
            Sparse(sparse) => sparse.action(),
            Array(array) => array.action(),
        }
    }

    /// Whether the result shares the memory of the source.
    #[getter]
    pub(super) fn shares(&self) -> bool {
        self.action() != "copy"
    }

    /// The number of bytes that are written; 0 if the type or the shape is not known.
    #[getter]
    pub(super) fn bytes_moved(&self) -> usize {
        match &self.content {
            Tensor(tensor) => tensor.bytes_moved,
            Array(array) => array.bytes_moved,
            Tree(_) | Sparse(_) => self.child_plans().iter().map(Self::bytes_moved).sum(),
        }
    }

    /// The number of bytes of new memory for the result.
    #[getter]
    pub(super) fn extra_bytes(&self) -> usize {
        match &self.content {
            Tensor(tensor) => tensor.extra_bytes,
            Array(array) => array.extra_bytes,
            Tree(_) | Sparse(_) => self.child_plans().iter().map(Self::extra_bytes).sum(),
        }
    }

    /// The expected duration, from throughput measured on this machine. None if nothing is copied, the host does not wait,
    /// no transfer of this kind has run yet, or a sparse tensor is copied.
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
            Tree(_) | Array(_) => Err(self.missing_attribute("source")),
        }
    }

    /// The framework of the result.
    #[getter]
    fn target(&self) -> PyResult<&str> {
        match &self.content {
            Tensor(tensor) => Ok(&tensor.target),
            Tree(tree) => Ok(&tree.target),
            Sparse(sparse) => Ok(&sparse.target),
            Array(_) => Err(self.missing_attribute("target")),
        }
    }

    /// The device of the source.
    #[getter]
    fn source_device(&self) -> PyResult<&str> {
        match &self.content {
            Tensor(tensor) => Ok(&tensor.source_device),
            Sparse(sparse) => Ok(&sparse.source_device),
            Tree(_) | Array(_) => Err(self.missing_attribute("source_device")),
        }
    }

    /// The device of the result.
    #[getter]
    fn device(&self) -> PyResult<&str> {
        match &self.content {
            Tensor(tensor) => Ok(&tensor.device),
            Sparse(sparse) => Ok(&sparse.device),
            Tree(_) | Array(_) => Err(self.missing_attribute("device")),
        }
    }

    /// The element type of the source; `"unknown"` if only a conversion by its library tells.
    #[getter]
    fn source_dtype(&self) -> PyResult<&str> {
        match &self.content {
            Tensor(tensor) => Ok(tensor.source_dtype),
            Sparse(sparse) => Ok(&sparse.source_dtype),
            Tree(_) | Array(_) => Err(self.missing_attribute("source_dtype")),
        }
    }

    /// The element type of the result; `"unknown"` if only a conversion by the source's library tells.
    #[getter]
    fn dtype(&self) -> PyResult<&str> {
        match &self.content {
            Tensor(tensor) => Ok(tensor.dtype),
            Sparse(sparse) => Ok(&sparse.dtype),
            Array(array) => Ok(&array.dtype),
            Tree(_) => Err(self.missing_attribute("dtype")),
        }
    }

    /// The shape of the tensor.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.shape_lengths().ok_or_else(|| self.missing_attribute("shape"))?)
    }

    /// Whether the result may be written, as far as its framework can express it.
    #[getter]
    fn writable(&self) -> PyResult<bool> {
        match &self.content {
            Tensor(tensor) => Ok(tensor.writable),
            _ => Err(self.missing_attribute("writable")),
        }
    }

    /// The steps of the copy, each with its reason; empty if the result shares memory.
    #[getter]
    fn steps(&self) -> PyResult<Steps> {
        self.own_steps().cloned().ok_or_else(|| self.missing_attribute("steps"))
    }

    /// The transfer path between a GPU and the host, and its reason; None without such a transfer.
    #[getter]
    fn transfer_path(&self) -> PyResult<Option<&str>> {
        match &self.content {
            Tensor(tensor) => Ok(tensor.transfer_path.as_deref()),
            _ => Err(self.missing_attribute("transfer_path")),
        }
    }

    /// Notes on aliasing, gradients, snapshots, the order of sparse elements, and on what passes in a tree.
    #[getter]
    fn notes(&self) -> Vec<String> {
        match &self.content {
            Tensor(tensor) => tensor.notes.clone(),
            Sparse(sparse) => sparse.notes.clone(),
            Array(array) => array.notes.clone(),
            Tree(tree) => tree.notes.clone(),
        }
    }

    /// How to avoid the copy; None without a copy, or if it cannot be avoided.
    #[getter]
    fn advice(&self) -> PyResult<Option<&str>> {
        match &self.content {
            Tensor(tensor) => Ok(tensor.advice.as_deref()),
            _ => Err(self.missing_attribute("advice")),
        }
    }

    /// The sparse format of the source.
    #[getter]
    fn source_format(&self) -> PyResult<&str> {
        match &self.content {
            Sparse(sparse) => Ok(&sparse.source_format),
            _ => Err(self.missing_attribute("source_format")),
        }
    }

    /// The sparse format of the result; None for a dense one.
    #[getter]
    fn format(&self) -> PyResult<Option<&str>> {
        match &self.content {
            Sparse(sparse) => Ok(sparse.format.as_deref()),
            _ => Err(self.missing_attribute("format")),
        }
    }

    /// The number of elements that the sparse source stores, including explicit zeros.
    #[getter]
    fn nnz(&self) -> PyResult<usize> {
        match &self.content {
            Sparse(sparse) => Ok(sparse.nnz),
            _ => Err(self.missing_attribute("nnz")),
        }
    }

    /// The attributes of this kind of plan as a dict of plain values, for JSON.
    fn as_dict<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        emergency_pool::ensure_headroom(DICT_OVERHEAD_BYTES)?;
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
        }
        dict.set_item("notes", self.notes())?;
        if let Some(shape) = self.shape_lengths() {
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
        for part in self.child_plans() {
            parts.append(part.as_dict(py)?)?;
        }
        dict.set_item("parts", parts)?;
        Ok(dict)
    }

    fn __str__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyString>> {
        Ok(objects::string(py, &self.text()?)?)
    }

    fn __repr__(&self) -> String {
        format!("<Plan {}>", self.headline())
    }

    fn _repr_html_<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyString>> {
        Ok(objects::string(py, html::plan_html(self)?.as_bytes())?)
    }
}

impl PlanReport {
    fn shape_lengths(&self) -> Option<&[i64]> {
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
