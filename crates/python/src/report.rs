//! Plans and trips as Python objects.

use crate::settings;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::fmt::Write;
use std::time::Duration;
use tensorferry_core::plan::{Nature, Plan, Reason, Route, SourceFacts, TargetFacts};
use tensorferry_core::{Access, ByteOrder};
use tensorferry_cuda::{Landing, Lanes};

/// What will happen to a tensor, and why.
#[pyclass(frozen, module = "tensorferry", name = "Plan")]
#[derive(Clone)]
pub(crate) struct PlanReport {
    /// The framework of the source.
    #[pyo3(get)]
    source: String,
    /// The framework of the result.
    #[pyo3(get)]
    target: String,
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
    /// Bytes that are written, which is also the extra memory.
    #[pyo3(get)]
    bytes_moved: usize,
    /// Whether the result may be written, as far as its framework can say so.
    #[pyo3(get)]
    writable: bool,
    steps: Vec<(&'static str, String)>,
    /// How bytes cross between a GPU and the host, and why so; None where they do not.
    #[pyo3(get)]
    road: Option<String>,
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
        Self {
            source: source.framework.to_owned(),
            target: target.framework.to_owned(),
            action: match plan.route {
                // What stands for a variable is its value, another object over the same memory.
                Route::Itself if source.nature != Nature::Snapshot => "itself",
                Route::Itself | Route::Share => "share",
                Route::Copy(_) => "copy",
            },
            source_dtype: source.dtype.name(),
            dtype: plan.dtype.name(),
            shape: source.layout.shape().to_vec(),
            bytes_moved: if plan.shares() {
                0
            } else {
                source.layout.count().saturating_mul(plan.dtype.size())
            },
            writable: plan.access == Access::ReadWrite,
            steps: steps.collect(),
            road: road(source, plan),
            notes: plan.notes.iter().map(|note| note.sentence(source, target).into_owned()).collect(),
            advice: advice.map(|advice| advice.join(", and ")).filter(|advice| !advice.is_empty()),
        }
    }

    fn headline(&self) -> String {
        let what = match self.action {
            "itself" => "nothing to do, the source itself comes back".to_owned(),
            "share" => "shared, no byte moves".to_owned(),
            _ => format!("copied, {}", in_words(self.bytes_moved)),
        };
        format!("{} -> {}: {what}", self.source, self.target)
    }
}

/// The road between a GPU and the host, if it is one of those trips, as things stand now.
fn road(source: &SourceFacts<'_>, plan: &Plan) -> Option<String> {
    let bytes = source.layout.count().saturating_mul(plan.dtype.size());
    let Lanes { threads, chunk, .. } = settings::transfer();
    let lanes = |why: &str| {
        format!(
            "through pinned buffers of up to {} on up to {threads} threads: {why}",
            in_words(2 * threads * chunk)
        )
    };
    let small = || "by one call of the driver's: it is small".to_owned();
    let words = match (source.device.is_cuda(), plan.device.is_cuda()) {
        (true, false) => match tensorferry_cuda::landing(bytes) {
            Landing::Small => small(),
            Landing::Unpinned => {
                "by one call of the driver's: it is not large, and its memory is not pinned".to_owned()
            }
            Landing::Kept => "by the GPU itself, into pinned memory that an earlier result left".to_owned(),
            Landing::Pin => {
                "by the GPU itself, into memory that is pinned for this and later results".to_owned()
            }
            Landing::Fresh => lanes("the result's memory is fresh"),
        },
        (false, true) => {
            let as_it_is =
                source.layout.is_dense() && source.dtype == plan.dtype && source.order == ByteOrder::Native;
            if bytes < tensorferry_cuda::SMALL_UPLOAD {
                small()
            } else if as_it_is
                && tensorferry_cuda::is_pinned(std::ptr::with_exposed_provenance(source.address), bytes)
            {
                "by the GPU itself, out of pinned memory".to_owned()
            } else {
                lanes(if as_it_is {
                    "the source's memory is not pinned"
                } else {
                    "it is packed or cast on the way"
                })
            }
        }
        _ => return None,
    };
    // Memory of the caller's may be anything.
    let ours = !plan.shares() && !plan.reasons().contains(&Reason::Into);
    ours.then_some(words)
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
    fn shares(&self) -> bool {
        self.action != "copy"
    }

    /// What is done, each with its reason; empty when no byte moves.
    #[getter]
    fn steps(&self) -> Vec<(&'static str, String)> {
        self.steps.clone()
    }

    fn __str__(&self) -> String {
        let mut text = self.headline();
        let shape: Vec<String> = self.shape.iter().map(i64::to_string).collect();
        let comma = if shape.len() == 1 { "," } else { "" };
        let _ = write!(text, "\n  {} of shape ({}{comma})", self.source_dtype, shape.join(", "));
        if self.dtype != self.source_dtype {
            let _ = write!(text, ", becomes {}", self.dtype);
        }
        for (number, (kind, reason)) in self.steps.iter().enumerate() {
            let _ = write!(text, "\n  {}. {kind}: {reason}", number + 1);
        }
        if let Some(road) = &self.road {
            let _ = write!(text, "\n  road: {road}");
        }
        for note in &self.notes {
            let _ = write!(text, "\n  note: {note}");
        }
        if let Some(advice) = &self.advice {
            let _ = write!(text, "\n  to avoid the copy: {advice}");
        }
        text
    }

    fn __repr__(&self) -> String {
        format!("<Plan {}>", self.headline())
    }
}

/// What did happen to a tensor.
#[pyclass(frozen, module = "tensorferry", name = "Trip")]
#[derive(Clone)]
pub(crate) struct Trip {
    /// The plan as it was carried out.
    #[pyo3(get)]
    plan: PlanReport,
    /// How long it took.
    #[pyo3(get)]
    seconds: f64,
}

impl Trip {
    pub(crate) fn new(plan: PlanReport, elapsed: Duration) -> Self {
        Self { plan, seconds: elapsed.as_secs_f64() }
    }
}

#[pymethods]
impl Trip {
    /// Bytes that were written.
    #[getter]
    fn bytes_moved(&self) -> usize {
        self.plan.bytes_moved
    }

    /// Whether no byte moved.
    #[getter]
    fn shares(&self) -> bool {
        self.plan.shares()
    }

    fn __str__(&self) -> String {
        format!("{}, {}", self.plan.headline(), duration_in_words(self.seconds))
    }

    fn __repr__(&self) -> String {
        format!("<Trip {}>", self.__str__())
    }
}

/// The plans of all tensors in a tree, each with its place.
#[pyclass(frozen, module = "tensorferry", name = "TreePlan")]
pub(crate) struct TreePlan {
    plans: Vec<(String, PlanReport)>,
}

impl TreePlan {
    pub(crate) fn new(plans: Vec<(String, PlanReport)>) -> Self {
        Self { plans }
    }
}

#[pymethods]
impl TreePlan {
    /// Place and plan of each tensor.
    #[getter]
    fn plans(&self) -> Vec<(String, PlanReport)> {
        self.plans.clone()
    }

    /// Whether no byte of the whole tree moves.
    #[getter]
    fn shares(&self) -> bool {
        self.plans.iter().all(|(_, plan)| plan.shares())
    }

    /// Bytes that are written, over the whole tree.
    #[getter]
    fn bytes_moved(&self) -> usize {
        self.plans.iter().map(|(_, plan)| plan.bytes_moved).sum()
    }

    fn __len__(&self) -> usize {
        self.plans.len()
    }

    fn __str__(&self) -> String {
        let copied = self.plans.iter().filter(|(_, plan)| !plan.shares()).count();
        let mut text = format!(
            "{} tensor{}: {} shared, {copied} copied ({})",
            self.plans.len(),
            if self.plans.len() == 1 { "" } else { "s" },
            self.plans.len() - copied,
            in_words(self.bytes_moved())
        );
        for (place, plan) in &self.plans {
            let _ = write!(text, "\n{place}: {}", plan.__str__());
        }
        text
    }

    fn __repr__(&self) -> String {
        format!("<TreePlan of {} tensors, {} moved>", self.plans.len(), in_words(self.bytes_moved()))
    }
}

pub(crate) fn in_words(bytes: usize) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

fn duration_in_words(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
