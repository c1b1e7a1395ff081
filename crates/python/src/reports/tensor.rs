//! Reports about planned conversions of dense tensors.

use super::time::ByteWork;
use super::transfer_path::transfer_path;
use crate::errors::advice_of_hint;
use crate::text::{format_bytes, format_duration};
use std::borrow::Cow;
use std::fmt::Write;
use tensorferry_core::Access;
use tensorferry_core::plan::{
    Pending, Plan, Reason, Route, SourceDescription, SourceMutability, TargetCapabilities, format_shape,
};

/// What is done with a tensor: the kind of step, and the reason.
pub(crate) type Steps = Vec<(Cow<'static, str>, String)>;

/// The device and dtype of a tensor without memory.
const UNKNOWN: &str = "unknown";
/// What is said of a type, shape or size that only a conversion by the source's library tells.
const UNREAD: &str = "known when its library reads it";

/// The memory of a source that is copied, and the size of its copy.
#[derive(Clone, Copy)]
pub(crate) struct CopiedMemory {
    pub(super) address: usize,
    /// From the first byte of the elements to one past the last.
    pub(super) extent_bytes: usize,
    pub(super) copy_bytes: usize,
}

impl CopiedMemory {
    fn of(source: &SourceDescription<'_>, copy_bytes: usize) -> Self {
        let (low, high) = source.layout.extent();
        let address = source.address.wrapping_add_signed(low as isize);
        Self { address, extent_bytes: (high - low) as usize, copy_bytes }
    }
}

/// The planned conversion of one dense tensor. The fields are attributes of the Python class `Plan`.
#[derive(Clone)]
pub(crate) struct TensorReport {
    /// The framework of the source.
    pub(super) source: String,
    /// The framework of the result.
    pub(super) target: String,
    /// The device of the source.
    pub(super) source_device: String,
    /// The device of the result.
    pub(super) device: String,
    /// `"itself"`, `"share"` or `"copy"`.
    pub(super) action: &'static str,
    /// The element type of the source.
    pub(super) source_dtype: &'static str,
    /// The element type of the result.
    pub(super) dtype: &'static str,
    /// None if the source has no memory, or its library has not told the shape yet.
    pub(super) shape: Option<Vec<i64>>,
    /// Bytes that are written.
    pub(super) bytes_moved: usize,
    /// Bytes of new memory for the result.
    pub(super) extra_bytes: usize,
    /// Whether the caller passed a destination.
    has_destination: bool,
    /// Whether the result may be written, as far as its framework can express it.
    pub(super) writable: bool,
    pub(super) steps: Steps,
    work: ByteWork,
    /// The transfer path between a GPU and the host, and its reason; None without such a transfer.
    pub(super) transfer_path: Option<String>,
    /// Notes on aliasing, gradients and snapshots.
    pub(super) notes: Vec<String>,
    /// How to avoid the copy; None without a copy, or if it cannot be avoided.
    pub(super) advice: Option<String>,
    /// The memory of the source, if it is copied and has an address.
    pub(crate) copied: Option<CopiedMemory>,
}

impl TensorReport {
    pub(crate) fn new(source: &SourceDescription<'_>, target: &TargetCapabilities, plan: &Plan) -> Self {
        let reasons = plan.reasons();
        let is_unknown = source.pending == Some(Pending::ConvertUnknown);
        let known = reasons.iter().filter(|reason| !is_unknown || !matches!(reason, Reason::Cast { .. }));
        let steps = known.map(|reason| (reason.kind().into(), reason.sentence(source, target).into_owned()));
        // Advice that avoids only some of the reasons would not avoid the copy.
        let hints: Option<Vec<_>> = reasons.iter().map(|reason| reason.hint()).collect();
        let advice = hints.and_then(|hints| {
            let advice: Option<Vec<_>> = hints.iter().map(advice_of_hint).collect();
            advice.map(|advice| advice.join(", and "))
        });
        let bytes = source.layout.count().saturating_mul(plan.dtype.size());
        let has_dtype = !is_unknown || plan.dtype != source.dtype;
        let has_shape = !is_unknown || !source.layout.is_empty();
        let bytes_moved = if plan.shares() || !(has_dtype && has_shape) { 0 } else { bytes };
        Self {
            source: source.framework.to_owned(),
            target: target.framework.to_owned(),
            source_device: source.device.to_string(),
            device: plan.device.to_string(),
            action: match plan.route {
                // A variable is represented by its value, another object over the same memory.
                Route::Itself if source.mutability != SourceMutability::Snapshot => "itself",
                Route::Itself | Route::Share => "share",
                Route::Copy(_) => "copy",
            },
            source_dtype: if is_unknown { UNKNOWN } else { source.dtype.name() },
            dtype: if has_dtype { plan.dtype.name() } else { UNKNOWN },
            shape: has_shape.then(|| source.layout.shape().to_vec()),
            bytes_moved,
            // The caller's destination is not new memory.
            extra_bytes: if reasons.contains(&Reason::Into) { 0 } else { bytes_moved },
            has_destination: reasons.contains(&Reason::Into),
            work: if is_unknown { ByteWork::NoCopy } else { ByteWork::of(source, plan, bytes) },
            writable: plan.access == Access::ReadWrite,
            steps: steps.collect(),
            transfer_path: transfer_path(source, plan),
            notes: plan.notes.iter().map(|note| note.sentence(target).into_owned()).collect(),
            advice: advice.filter(|advice| !advice.is_empty()),
            copied: (bytes_moved > 0 && source.pending.is_none())
                .then(|| CopiedMemory::of(source, bytes_moved)),
        }
    }

    /// The report about an object without memory, which is returned as it is. Its device, dtype and shape are not known.
    pub(crate) fn unchanged(framework: &str) -> Self {
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
            has_destination: false,
            work: ByteWork::NoCopy,
            writable: false,
            steps: Vec::new(),
            transfer_path: None,
            notes: vec!["the source has no memory of its own, and is not read".to_owned()],
            advice: None,
            copied: None,
        }
    }

    /// Whether the host waits for the conversion.
    pub(super) fn blocks_host(&self) -> bool {
        !self.shares() && self.work != ByteWork::Queued
    }

    pub(super) fn outcome(&self) -> String {
        self.outcome_of(self.bytes_moved)
    }

    /// The outcome of this conversion, or of several like it that move `bytes_moved` together.
    pub(super) fn outcome_of(&self, bytes_moved: usize) -> String {
        match self.action {
            "itself" => "nothing to do, the source itself is returned".to_owned(),
            "share" => "shared, no byte moves".to_owned(),
            _ if !self.has_size() => format!("copied, size {UNREAD}"),
            _ => format!("copied, {}", format_bytes(bytes_moved)),
        }
    }

    /// Whether the size of the result is known before the conversion.
    pub(super) fn has_size(&self) -> bool {
        self.dtype != UNKNOWN && self.shape.is_some()
    }

    /// The source's framework, and its device where one of the two is not the host.
    pub(super) fn from(&self) -> String {
        self.with_device(&self.source, &self.source_device)
    }

    /// The target framework, and its device where one of the two is not the host.
    pub(super) fn to(&self) -> String {
        self.with_device(&self.target, &self.device)
    }

    fn with_device(&self, framework: &str, device: &str) -> String {
        let is_on_host = self.source_device == "cpu" && self.device == "cpu";
        if is_on_host { framework.to_owned() } else { format!("{framework} on {device}") }
    }

    pub(super) fn headline(&self) -> String {
        format!("{} -> {}: {}", self.from(), self.to(), self.outcome())
    }

    /// Type and shape.
    pub(super) fn type_and_shape(&self) -> String {
        match &self.shape {
            Some(shape) => self.type_and(&format!("shape {}", format_shape(shape))),
            None if self.shares() => "type and shape are not known".to_owned(),
            None => format!("type and shape {UNREAD}"),
        }
    }

    /// The type, with a description of the shapes.
    pub(super) fn type_and(&self, shapes: &str) -> String {
        let dtype_change =
            if self.dtype == self.source_dtype { String::new() } else { format!(", becomes {}", self.dtype) };
        let dtype = match self.source_dtype {
            UNKNOWN => format!("type {UNREAD},"),
            dtype => dtype.to_owned(),
        };
        format!("{dtype} of {shapes}{dtype_change}")
    }

    /// The details of the report besides the steps, each with its name.
    pub(super) fn detail_lines(&self) -> Vec<(&'static str, String)> {
        self.detail_lines_of(self.extra_bytes, self.expected_seconds())
    }

    /// The details of this conversion, or of several like it that take this memory and time together.
    pub(super) fn detail_lines_of(
        &self,
        extra_bytes: usize,
        seconds: Option<f64>,
    ) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        if let Some(path) = &self.transfer_path {
            lines.push(("transfer path", path.clone()));
        }
        if !self.shares() {
            let memory = match self.has_destination {
                true => "only the destination".to_owned(),
                false if !self.has_size() => format!("the size of the result is {UNREAD}"),
                false => format!(
                    "{} for the result, which shares nothing with the source",
                    format_bytes(extra_bytes)
                ),
            };
            lines.push(("memory", memory));
            if let (Some(seconds), Some((_, basis))) = (seconds, self.work.expected_time(self.bytes_moved)) {
                lines.push(("time", format!("about {}, {basis}", format_duration(seconds))));
            } else if self.work == ByteWork::Queued {
                lines.push(("time", "queued on the GPU: the host does not wait".to_owned()));
            } else if matches!(self.work, ByteWork::Transfer(_)) {
                lines.push(("time", "not known before the first transfer of this kind".to_owned()));
            }
        }
        if self.action == "share" && !self.writable && self.notes.is_empty() {
            lines.push(("note", "the result is read-only: its memory must not be written".to_owned()));
        }
        lines.extend(self.notes.iter().map(|note| ("note", note.clone())));
        if let Some(advice) = &self.advice {
            lines.push(("to avoid the copy", advice.clone()));
        }
        lines
    }

    /// Whether the result shares the memory of the source.
    pub(super) fn shares(&self) -> bool {
        self.action != "copy"
    }

    /// The expected duration. None if nothing is copied, the host does not wait, or no transfer of this kind has run yet.
    pub(super) fn expected_seconds(&self) -> Option<f64> {
        self.work.expected_time(self.bytes_moved).map(|(seconds, _)| seconds)
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n  {}", self.headline(), self.type_and_shape());
        for (number, (kind, reason)) in self.steps.iter().enumerate() {
            let _ = write!(text, "\n  {}. {kind}: {reason}", number + 1);
        }
        for (name, line) in self.detail_lines() {
            let _ = write!(text, "\n  {name}: {line}");
        }
        text
    }
}
