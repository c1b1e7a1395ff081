//! `ferry.pickling.plan`: collects the plans of payloads while a pickler runs, instead of copying their bytes.

use crate::errors::Result;
use crate::reports::{PlanReport, TensorReport, TreeReport};
use pyo3::prelude::*;
use std::cell::RefCell;
use tensorferry_core::fallible::try_push;

thread_local! {
    static PLANS: RefCell<Option<Vec<PlanReport>>> = const { RefCell::new(None) };
}

/// The name of the target in plans.
pub(super) const TARGET: &str = "pickle";

/// Whether plans are collected on this thread.
pub(super) fn are_collected() -> bool {
    PLANS.with_borrow(Option::is_some)
}

/// Adds the plan of a payload.
pub(super) fn add(report: TensorReport) -> Result<()> {
    PLANS.with_borrow_mut(|plans| {
        let Some(plans) = plans else { return Ok(()) };
        let name = format!("payload {}", plans.len());
        Ok(try_push(plans, PlanReport::from(report).named(name))?)
    })
}

/// Collection on this thread, which ends with a drop.
struct Collection(Option<Vec<PlanReport>>);

impl Drop for Collection {
    fn drop(&mut self) {
        PLANS.set(self.0.take());
    }
}

/// Calls `pickle`, which runs a pickler, and returns the plan of the payloads that it would have written.
#[pyfunction]
pub(crate) fn _plan_payloads(pickle: &Bound<'_, PyAny>) -> Result<PlanReport> {
    let outer = Collection(PLANS.replace(Some(Vec::new())));
    pickle.call0()?;
    let parts = PLANS.take().unwrap_or_default();
    drop(outer);
    Ok(TreeReport::new(TARGET.to_owned(), parts).into())
}
