//! What will happen to one dense tensor.

use super::time::Work;
use super::transfer_path::transfer_path;
use super::{Steps, duration_in_words, format_shape, in_words};
use crate::errors::advice_of_hint;
use std::fmt::Write;
use tensorferry_core::Access;
use tensorferry_core::plan::{Plan, Reason, Route, SourceDescription, SourceMutability, TargetCapabilities};

/// The device and the type of a tensor without memory.
const UNKNOWN: &str = "unknown";

/// What will happen to one dense tensor, and why. The members are those of the Python class `Plan`.
#[derive(Clone)]
pub(crate) struct TensorReport {
    /// The framework of the source.
    pub(super) source: String,
    /// The framework of the result.
    pub(super) target: String,
    /// Where the source is.
    pub(super) source_device: String,
    /// Where the result is.
    pub(super) device: String,
    /// `"itself"`, `"share"` or `"copy"`.
    pub(super) action: &'static str,
    /// The element type of the source.
    pub(super) source_dtype: &'static str,
    /// The element type of the result.
    pub(super) dtype: &'static str,
    /// None where the source has no memory.
    pub(super) shape: Option<Vec<i64>>,
    /// Bytes that are written.
    pub(super) bytes_moved: usize,
    /// Bytes of new memory for the result.
    pub(super) extra_bytes: usize,
    /// Whether the caller gave a destination.
    into: bool,
    /// Whether the result may be written, as far as its framework can say so.
    pub(super) writable: bool,
    pub(super) steps: Steps,
    work: Work,
    /// How bytes cross between a GPU and the host, and why so; None where they do not.
    pub(super) transfer_path: Option<String>,
    /// What to know about aliases, gradients and snapshots.
    pub(super) notes: Vec<String>,
    /// What would make it free of copies; None when it is, or when nothing would.
    pub(super) advice: Option<String>,
}

impl TensorReport {
    pub(crate) fn new(source: &SourceDescription<'_>, target: &TargetCapabilities, plan: &Plan) -> Self {
        let reasons = plan.reasons();
        let steps =
            reasons.iter().map(|reason| (reason.kind().into(), reason.sentence(source, target).into_owned()));
        // Advice that avoids only some of the reasons would not avoid the copy.
        let hints: Option<Vec<_>> = reasons.iter().map(|reason| reason.hint()).collect();
        let advice = hints.and_then(|hints| {
            let advice: Option<Vec<_>> = hints.iter().map(advice_of_hint).collect();
            advice.map(|advice| advice.join(", and "))
        });
        let bytes = source.layout.count().saturating_mul(plan.dtype.size());
        let bytes_moved = if plan.shares() { 0 } else { bytes };
        Self {
            source: source.framework.to_owned(),
            target: target.framework.to_owned(),
            source_device: source.device.to_string(),
            device: plan.device.to_string(),
            action: match plan.route {
                // What stands for a variable is its value, another object over the same memory.
                Route::Itself if source.mutability != SourceMutability::Snapshot => "itself",
                Route::Itself | Route::Share => "share",
                Route::Copy(_) => "copy",
            },
            source_dtype: source.dtype.name(),
            dtype: plan.dtype.name(),
            shape: Some(source.layout.shape().to_vec()),
            bytes_moved,
            // A destination of the caller's is there already.
            extra_bytes: if reasons.contains(&Reason::Into) { 0 } else { bytes_moved },
            into: reasons.contains(&Reason::Into),
            work: Work::of(source, plan, bytes),
            writable: plan.access == Access::ReadWrite,
            steps: steps.collect(),
            transfer_path: transfer_path(source, plan),
            notes: plan.notes.iter().map(|note| note.sentence(source, target).into_owned()).collect(),
            advice: advice.filter(|advice| !advice.is_empty()),
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
            shape: None,
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
        let Some(shape) = &self.shape else { return "type and shape are not known".to_owned() };
        let becomes =
            if self.dtype == self.source_dtype { String::new() } else { format!(", becomes {}", self.dtype) };
        format!("{} of shape {}{becomes}", self.source_dtype, format_shape(shape))
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

    /// Whether no byte moves.
    pub(super) fn shares(&self) -> bool {
        self.action != "copy"
    }

    /// How long it will take; None where no byte moves, the host does not wait, or nothing has gone that way yet.
    pub(super) fn expected_seconds(&self) -> Option<f64> {
        self.work.expected(self.bytes_moved).map(|(seconds, _)| seconds)
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n  {}", self.headline(), self.what());
        for (number, (kind, reason)) in self.steps.iter().enumerate() {
            let _ = write!(text, "\n  {}. {kind}: {reason}", number + 1);
        }
        for (name, line) in self.lines() {
            let _ = write!(text, "\n  {name}: {line}");
        }
        text
    }
}
