//! Plans as Python objects.

use super::time::Work;
use super::transfer_path::transfer_path;
use super::{duration_in_words, html, in_words};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyTuple};
use std::fmt::Write;
use tensorferry_core::Access;
use tensorferry_core::plan::{Nature, Plan, Reason, Route, SourceFacts, TargetFacts};

/// The device and the type of a tensor without memory.
const UNKNOWN: &str = "unknown";

/// What will happen to a tensor, and why.
///
/// Example:
///     >>> print(ferry.plan(np.arange(3), "torch"))  # doctest: +ELLIPSIS
///     numpy -> torch: shared, no byte moves
///       int64 of shape (3,)...
#[pyclass(frozen, module = "tensorferry", name = "Plan")]
#[derive(Clone)]
pub(crate) struct PlanReport {
    /// The framework of the source.
    #[pyo3(get)]
    source: String,
    /// The framework of the result.
    #[pyo3(get)]
    target: String,
    /// Where the source is.
    #[pyo3(get)]
    source_device: String,
    /// Where the result is.
    #[pyo3(get)]
    device: String,
    /// `"itself"`, `"share"` or `"copy"`.
    #[pyo3(get)]
    action: &'static str,
    /// The element type of the source.
    #[pyo3(get)]
    source_dtype: &'static str,
    /// The element type of the result.
    #[pyo3(get)]
    dtype: &'static str,
    shape: Vec<i64>,
    /// Bytes that are written.
    #[pyo3(get)]
    pub(super) bytes_moved: usize,
    /// Bytes of new memory for the result.
    #[pyo3(get)]
    pub(super) extra_bytes: usize,
    /// Whether the caller gave a destination.
    into: bool,
    /// Whether the result may be written, as far as its framework can say so.
    #[pyo3(get)]
    writable: bool,
    pub(super) steps: Vec<(&'static str, String)>,
    work: Work,
    /// How bytes cross between a GPU and the host, and why so; None where they do not.
    #[pyo3(get)]
    transfer_path: Option<String>,
    /// What to know about aliases, gradients and snapshots.
    #[pyo3(get)]
    notes: Vec<String>,
    /// What would make it free of copies; None when it is, or when nothing would.
    #[pyo3(get)]
    advice: Option<String>,
}

impl PlanReport {
    pub(crate) fn new(source: &SourceFacts<'_>, target: &TargetFacts, plan: &Plan) -> Self {
        let reasons = plan.reasons();
        let steps =
            reasons.iter().map(|reason| (reason.kind(), reason.sentence(source, target).into_owned()));
        // Advice that leaves another reason standing would be in vain.
        let advice: Option<Vec<_>> = reasons.iter().map(|reason| reason.advice()).collect();
        let bytes = source.layout.count().saturating_mul(plan.dtype.size());
        let bytes_moved = if plan.shares() { 0 } else { bytes };
        Self {
            source: source.framework.to_owned(),
            target: target.framework.to_owned(),
            source_device: source.device.to_string(),
            device: plan.device.to_string(),
            action: match plan.route {
                // What stands for a variable is its value, another object over the same memory.
                Route::Itself if source.nature != Nature::Snapshot => "itself",
                Route::Itself | Route::Share => "share",
                Route::Copy(_) => "copy",
            },
            source_dtype: source.dtype.name(),
            dtype: plan.dtype.name(),
            shape: source.layout.shape().to_vec(),
            bytes_moved,
            // A destination of the caller's is there already.
            extra_bytes: if reasons.contains(&Reason::Into) { 0 } else { bytes_moved },
            into: reasons.contains(&Reason::Into),
            work: Work::of(source, plan, bytes),
            writable: plan.access == Access::ReadWrite,
            steps: steps.collect(),
            transfer_path: transfer_path(source, plan),
            notes: plan.notes.iter().map(|note| note.sentence(source, target).into_owned()).collect(),
            advice: advice.map(|advice| advice.join(", and ")).filter(|advice| !advice.is_empty()),
        }
    }

    /// An object that comes back as it is and has no memory: its device is not known, nor are its type and shape.
    pub(crate) fn of_itself(framework: &str) -> Self {
        Self {
            source: framework.to_owned(),
            target: framework.to_owned(),
            source_device: UNKNOWN.to_owned(),
            device: UNKNOWN.to_owned(),
            action: "itself",
            source_dtype: UNKNOWN,
            dtype: UNKNOWN,
            shape: Vec::new(),
            bytes_moved: 0,
            extra_bytes: 0,
            into: false,
            work: Work::Nothing,
            writable: false,
            steps: Vec::new(),
            transfer_path: None,
            notes: vec!["the source has no memory of its own, and is not read".to_owned()],
            advice: None,
        }
    }

    /// Whether the host is busy with it until it is done.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.shares() && self.work != Work::Queued
    }

    /// What happens, in a word.
    pub(super) fn verb(&self) -> &'static str {
        match self.action {
            "itself" => "nothing",
            "share" => "shared",
            _ => "copied",
        }
    }

    pub(super) fn outcome(&self) -> String {
        match self.action {
            "itself" => "nothing to do, the source itself comes back".to_owned(),
            "share" => "shared, no byte moves".to_owned(),
            _ => format!("copied, {}", in_words(self.bytes_moved)),
        }
    }

    /// The source's framework, and its device where one of the two is not the host.
    pub(super) fn from(&self) -> String {
        self.placed(&self.source, &self.source_device)
    }

    /// The same of the result.
    pub(super) fn to(&self) -> String {
        self.placed(&self.target, &self.device)
    }

    fn placed(&self, framework: &str, device: &str) -> String {
        let on_host = self.source_device == "cpu" && self.device == "cpu";
        if on_host { framework.to_owned() } else { format!("{framework} on {device}") }
    }

    pub(super) fn headline(&self) -> String {
        format!("{} -> {}: {}", self.from(), self.to(), self.outcome())
    }

    /// Type and shape.
    pub(super) fn what(&self) -> String {
        let shape: Vec<String> = self.shape.iter().map(i64::to_string).collect();
        let comma = if shape.len() == 1 { "," } else { "" };
        let becomes =
            if self.dtype == self.source_dtype { String::new() } else { format!(", becomes {}", self.dtype) };
        format!("{} of shape ({}{comma}){becomes}", self.source_dtype, shape.join(", "))
    }

    /// All that there is to say besides what happens and why, each with its name.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        if let Some(path) = &self.transfer_path {
            lines.push(("transfer path", path.clone()));
        }
        if !self.shares() {
            let memory = match self.into {
                true => "none besides the destination".to_owned(),
                false => format!(
                    "{} for the result, which shares nothing with the source",
                    in_words(self.extra_bytes)
                ),
            };
            lines.push(("memory", memory));
            if let Some((seconds, speed)) = self.work.expected(self.bytes_moved) {
                lines.push(("time", format!("about {}, {speed}", duration_in_words(seconds))));
            } else if self.work == Work::Queued {
                lines.push(("time", "queued on the GPU: the host does not wait for it".to_owned()));
            } else if matches!(self.work, Work::Cross(_)) {
                lines.push(("time", "not known before the first transfer of this kind".to_owned()));
            }
        }
        if self.action == "share" && !self.writable && self.notes.is_empty() {
            lines.push(("note", "the result is read-only: it is memory that must not be written".to_owned()));
        }
        lines.extend(self.notes.iter().map(|note| ("note", note.clone())));
        if let Some(advice) = &self.advice {
            lines.push(("to avoid the copy", advice.clone()));
        }
        lines
    }
}

#[pymethods]
impl PlanReport {
    /// The shape of the tensor.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// Whether no byte moves.
    #[getter]
    pub(super) fn shares(&self) -> bool {
        self.action != "copy"
    }

    /// What is done, each with its reason; empty when no byte moves.
    #[getter]
    fn steps(&self) -> Vec<(&'static str, String)> {
        self.steps.clone()
    }

    /// How long it will take, from what this machine was measured to do; None where no byte moves, the host does not wait, or
    /// nothing has gone that way yet.
    #[getter]
    pub(super) fn expected_seconds(&self) -> Option<f64> {
        self.work.expected(self.bytes_moved).map(|(seconds, _)| seconds)
    }

    /// All of it as a dict of plain values, for JSON.
    pub(super) fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let steps: Vec<Bound<'py, PyDict>> = self
            .steps
            .iter()
            .map(|(kind, reason)| [("kind", *kind), ("reason", reason.as_str())].into_py_dict(py))
            .collect::<PyResult<_>>()?;
        let dict = PyDict::new(py);
        dict.set_item("source", &self.source)?;
        dict.set_item("target", &self.target)?;
        dict.set_item("source_device", &self.source_device)?;
        dict.set_item("device", &self.device)?;
        dict.set_item("action", self.action)?;
        dict.set_item("shares", self.shares())?;
        dict.set_item("source_dtype", self.source_dtype)?;
        dict.set_item("dtype", self.dtype)?;
        dict.set_item("shape", &self.shape)?;
        dict.set_item("bytes_moved", self.bytes_moved)?;
        dict.set_item("extra_bytes", self.extra_bytes)?;
        dict.set_item("expected_seconds", self.expected_seconds())?;
        dict.set_item("writable", self.writable)?;
        dict.set_item("steps", steps)?;
        dict.set_item("transfer_path", &self.transfer_path)?;
        dict.set_item("notes", &self.notes)?;
        dict.set_item("advice", &self.advice)?;
        Ok(dict)
    }

    pub(super) fn __str__(&self) -> String {
        let mut text = format!("{}\n  {}", self.headline(), self.what());
        for (number, (kind, reason)) in self.steps.iter().enumerate() {
            let _ = write!(text, "\n  {}. {kind}: {reason}", number + 1);
        }
        for (name, line) in self.lines() {
            let _ = write!(text, "\n  {name}: {line}");
        }
        text
    }

    fn __repr__(&self) -> String {
        format!("<Plan {}>", self.headline())
    }

    fn _repr_html_(&self) -> String {
        html::plan(self)
    }
}
