//! Plans of whole trees as Python objects.

use super::{PlanReport, duration_in_words, html, in_words};
use crate::errors::Result;
use crate::tree::TENSOR_OVERHEAD_BYTES;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use std::fmt::Write;
use tensorferry_core::emergency;
use tensorferry_core::growth::reserve;

/// Memory that the dict of one plan is taken to need, with its 17 entries.
const AS_DICT_BYTES: usize = 4096;

/// The plans of all tensors in a tree, each with its place.
///
/// Example:
///     >>> plan = ferry.plan([np.arange(3), np.ones(2)], "torch")
///     >>> len(plan), plan.shares
///     (2, True)
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
    fn plans<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyList>> {
        let plans = PyList::empty(py);
        for (place, plan) in &self.plans {
            emergency::spend(TENSOR_OVERHEAD_BYTES)?;
            plans.append((place, plan.clone()))?;
        }
        Ok(plans)
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

    /// Bytes of new memory for all results.
    #[getter]
    fn extra_bytes(&self) -> usize {
        self.plans.iter().map(|(_, plan)| plan.extra_bytes).sum()
    }

    /// How long all of it will take; None where that is not known of a tensor that moves and is waited for.
    #[getter]
    fn expected_seconds(&self) -> Option<f64> {
        self.plans
            .iter()
            .filter(|(_, plan)| plan.is_waited_for())
            .map(|(_, plan)| plan.expected_seconds())
            .sum()
    }

    fn __len__(&self) -> usize {
        self.plans.len()
    }

    /// Place and plan of each tensor as dicts of plain values, for JSON.
    fn as_dict<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let plans = PyList::empty(py);
        for (place, plan) in &self.plans {
            emergency::spend(AS_DICT_BYTES)?;
            let dict = plan.as_dict(py)?;
            dict.set_item("place", place)?;
            plans.append(dict)?;
        }
        let dict = PyDict::new(py);
        dict.set_item("shares", self.shares())?;
        dict.set_item("bytes_moved", self.bytes_moved())?;
        dict.set_item("extra_bytes", self.extra_bytes())?;
        dict.set_item("expected_seconds", self.expected_seconds())?;
        dict.set_item("plans", plans)?;
        Ok(dict)
    }

    fn __str__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyString>> {
        let mut text = self.summary().into_bytes();
        for (place, plan) in &self.plans {
            for part in ["\n", place, ": ", &plan.__str__()] {
                reserve(&mut text, part.len())?;
                text.extend_from_slice(part.as_bytes());
            }
        }
        string(py, &text)
    }

    fn __repr__(&self) -> String {
        format!("<TreePlan of {} tensors, {} moved>", self.plans.len(), in_words(self.bytes_moved()))
    }

    fn _repr_html_<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyString>> {
        string(py, html::tree(&self.plans, &self.summary())?.as_bytes())
    }
}

/// Python's string of a text of ours. PyO3's own constructor panics where there is no memory.
fn string<'py>(py: Python<'py>, text: &[u8]) -> Result<Bound<'py, PyString>> {
    // SAFETY: Python copies so many bytes, and checks that they are UTF-8; a null result has an error set.
    unsafe {
        let made = ffi::PyUnicode_FromStringAndSize(text.as_ptr().cast(), text.len() as ffi::Py_ssize_t);
        Ok(Bound::from_owned_ptr_or_err(py, made)?.cast_into_unchecked())
    }
}

impl TreePlan {
    fn summary(&self) -> String {
        let copied = self.plans.iter().filter(|(_, plan)| !plan.shares()).count();
        let mut text = format!(
            "{} tensor{}: {} shared, {copied} copied ({})",
            self.plans.len(),
            if self.plans.len() == 1 { "" } else { "s" },
            self.plans.len() - copied,
            in_words(self.bytes_moved())
        );
        if copied > 0 {
            let _ = write!(text, ", {} of new memory", in_words(self.extra_bytes()));
            if let Some(seconds) = self.expected_seconds().filter(|seconds| *seconds > 0.0) {
                let _ = write!(text, ", about {}", duration_in_words(seconds));
            }
        }
        text
    }
}
