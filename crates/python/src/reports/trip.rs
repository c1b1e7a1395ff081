//! Trips as Python objects.

use super::content::PlanReport;
use super::html;
use super::tensor::TensorReport;
use crate::text::format_duration;
use pyo3::prelude::*;
use std::time::Duration;

/// What did happen to a tensor.
///
/// Example:
///     >>> with ferry.trace() as trips:
///     ...     t = ferry.to(np.arange(3), "torch", copy=True)
///     >>> trips[0].bytes_moved
///     24
#[pyclass(frozen, module = "tensorferry", name = "Trip")]
#[derive(Clone)]
pub(crate) struct Trip {
    plan: TensorReport,
    /// How long it took.
    #[pyo3(get)]
    seconds: f64,
}

impl Trip {
    pub(crate) fn new(plan: TensorReport, elapsed: Duration) -> Self {
        Self { plan, seconds: elapsed.as_secs_f64() }
    }
}

#[pymethods]
impl Trip {
    /// The plan as it was carried out.
    #[getter]
    fn plan(&self) -> PlanReport {
        self.plan.clone().into()
    }

    /// Bytes that were written, as they were planned: a trip does what its plan says, or fails.
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
        format!("{}, {}", self.plan.headline(), format_duration(self.seconds))
    }

    fn __repr__(&self) -> String {
        format!("<Trip {}>", self.__str__())
    }

    fn _repr_html_(&self) -> String {
        html::trip(&self.plan, self.seconds)
    }
}
