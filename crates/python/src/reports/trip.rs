//! The Python class `Trip`: a finished conversion, as `trace` records it.

use super::html;
use super::plan_data::PlanReport;
use crate::errors::Result;
use crate::interpreter::objects;
use crate::text::format_duration;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::time::Duration;

/// A finished conversion of a tensor, dense or sparse.
///
/// Example:
///     >>> with ferry.trace() as trips:
///     ...     t = ferry.to(np.arange(3), "torch", copy=True)
///     >>> trips[0].bytes_moved
///     24
#[expect(rustdoc::broken_intra_doc_links, reason = "a docstring of Python")]
#[pyclass(frozen, module = "tensorferry", name = "Trip")]
#[derive(Clone)]
pub(crate) struct Trip {
    /// The plan that was executed.
    #[pyo3(get)]
    plan: PlanReport,
    /// The duration in seconds; that of `to_async` and `feed` is the time from the submission to the completion.
    #[pyo3(get)]
    seconds: f64,
}

impl Trip {
    pub(crate) fn new(plan: PlanReport, elapsed: Duration) -> Self {
        Self { plan, seconds: elapsed.as_secs_f64() }
    }

    pub(super) fn report(&self) -> &PlanReport {
        &self.plan
    }

    pub(super) fn seconds(&self) -> f64 {
        self.seconds
    }
}

#[pymethods]
impl Trip {
    /// The number of bytes that were written. It is the planned number: a conversion follows its plan, or fails.
    #[getter]
    fn bytes_moved(&self) -> usize {
        self.plan.bytes_moved()
    }

    /// Whether the result shares the memory of the source.
    #[getter]
    fn shares(&self) -> bool {
        self.plan.shares()
    }

    fn __str__(&self) -> String {
        format!("{}, {}", self.plan.headline(), format_duration(self.seconds))
    }

    fn __repr__(&self) -> String {
        format!("<Trip {}>", self.__str__())
    }

    fn _repr_html_<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyString>> {
        Ok(objects::string(py, html::trip_html(&self.plan, self.seconds)?.as_bytes())?)
    }
}
