//! Reports about planned and finished conversions: the Python classes `Plan` and `Trip`, as text, as HTML and as dicts.

mod html;
mod plan;
mod sparse;
mod tensor;
mod time;
pub(crate) mod trace;
mod transfer_path;
mod tree;
mod trip;

use pyo3::prelude::*;
use std::borrow::Cow;
use tensorferry_core::plan::{count_noun, format_shape};

pub(crate) use plan::PlanReport;
pub(crate) use sparse::{ArrayReport, SparseReport};
pub(crate) use tensor::TensorReport;
pub(crate) use tree::TreeReport;
pub(crate) use trip::Trip;

/// The steps of a conversion: the kind of each, and its reason.
type Steps = Vec<(Cow<'static, str>, String)>;

/// Adds the classes.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PlanReport>()?;
    module.add_class::<Trip>()
}

/// A number of bytes with a unit, such as `1.5 MiB`.
pub(crate) fn in_words(bytes: usize) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return count_noun(bytes, "byte");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// A duration with a unit, such as `3.2 ms`.
fn format_duration(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
