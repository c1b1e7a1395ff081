//! Reports about planned conversions of trees of tensors.

use super::plan_data::{PlanReport, TreeReport};
use crate::errors::Result;
use crate::text::{format_bytes, format_duration};
use std::fmt::Write;
use tensorferry_core::fallible::try_reserve;
use tensorferry_core::plan::count_noun;

impl TreeReport {
    pub(crate) fn new(target: String, parts: Vec<PlanReport>) -> Self {
        Self { target, parts }
    }

    pub(super) fn action(&self) -> &'static str {
        if self.parts.iter().any(|part| !part.shares()) {
            "copy"
        } else if self.parts.iter().any(|part| part.action() == "share") {
            "share"
        } else {
            "itself"
        }
    }

    /// The expected duration of all copies that the host waits for. None if there is none, or if one duration is not known.
    pub(super) fn expected_seconds(&self) -> Option<f64> {
        let times = self.parts.iter().filter(|part| part.blocks_host()).map(PlanReport::expected_seconds);
        times.reduce(|sum, next| Some(sum? + next?)).flatten()
    }

    pub(super) fn headline(&self) -> String {
        let moved: usize = self.parts.iter().map(PlanReport::bytes_moved).sum();
        format!("of {}, {} moved", count_noun(self.parts.len(), "tensor"), format_bytes(moved))
    }

    pub(super) fn summary(&self) -> String {
        let copied = self.parts.iter().filter(|part| !part.shares()).count();
        let moved: usize = self.parts.iter().map(PlanReport::bytes_moved).sum();
        let mut text = format!(
            "{}: {} shared, {copied} copied ({})",
            count_noun(self.parts.len(), "tensor"),
            self.parts.len() - copied,
            format_bytes(moved)
        );
        if copied > 0 {
            let extra: usize = self.parts.iter().map(PlanReport::extra_bytes).sum();
            let _ = write!(text, ", {} of new memory", format_bytes(extra));
            if let Some(seconds) = self.expected_seconds() {
                let _ = write!(text, ", about {}", format_duration(seconds));
            }
        }
        text
    }

    pub(super) fn text(&self) -> Result<Vec<u8>> {
        let mut text = self.summary().into_bytes();
        for plan in &self.parts {
            for part in ["\n".as_bytes(), plan.display_name().as_bytes(), b": ", &plan.text()?] {
                try_reserve(&mut text, part.len())?;
                text.extend_from_slice(part);
            }
        }
        Ok(text)
    }
}
