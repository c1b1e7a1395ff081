//! Formats plans as text: kinds of steps, reasons and notes.

use super::inputs::{SourceDescription, TargetCapabilities};
use super::outcome::Note;
use super::reason::{Pending, Reason};
use std::borrow::Cow;

/// Formats a shape as a tuple: `(2, 3)`, `(2,)`.
pub fn format_shape(shape: &[i64]) -> String {
    let lengths: Vec<String> = shape.iter().map(i64::to_string).collect();
    format!("({}{})", lengths.join(", "), if lengths.len() == 1 { "," } else { "" })
}

/// Formats a count with its noun: `1 tensor`, `2 tensors`.
pub fn count_noun(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

impl Reason {
    /// The step that this reason leads to, in a word or two.
    pub fn kind(self) -> &'static str {
        match self {
            Reason::Cast { .. } => "cast",
            Reason::Swapped => "swap bytes",
            Reason::Moved { to, .. } if to.is_host() => "download",
            Reason::Moved { from, .. } if from.is_host() => "upload",
            Reason::Moved { .. } => "peer copy",
            Reason::NotDense | Reason::Gaps | Reason::NegativeStride | Reason::FractionalStride => "pack",
            Reason::Pending(Pending::Conjugate | Pending::Negate) => "resolve",
            Reason::Pending(Pending::Unpack) => "unpack",
            Reason::Pending(Pending::Gather) => "gather",
            Reason::Pending(Pending::Convert | Pending::ConvertUnknown) => "convert",
            Reason::Pending(Pending::Download) => "download",
            Reason::Pending(Pending::Chunks) => "gather",
            Reason::Pending(Pending::Bits | Pending::Validity) => "unpack",
            Reason::Pending(Pending::Nulls) => "fill",
            Reason::Pending(Pending::Dictionary) => "decode",
            Reason::Pending(Pending::Stack) => "stack",
            Reason::Pending(Pending::Offsets) => "count",
            Reason::Pending(Pending::Pad) => "pad",
            Reason::Pending(Pending::Stream) => "read",
            Reason::Repacked => "repack",
            _ => "copy",
        }
    }

    /// The reason, as one clause.
    pub fn sentence(self, source: &SourceDescription<'_>, target: &TargetCapabilities) -> Cow<'static, str> {
        let title = target.title;
        match self {
            Reason::Requested => "a copy was requested".into(),
            Reason::Cast { from, to } => format!("the values are converted from {from} to {to}").into(),
            Reason::Moved { from, to, requested: true } => {
                format!("the source is on {from} and the result was requested on {to}").into()
            }
            Reason::Moved { from, to, requested: false } => {
                let supported = if to.is_host() { "host" } else { "GPU" };
                format!("the source is on {from} and {title} holds {supported} memory only").into()
            }
            Reason::Swapped => {
                format!("the source is not in native byte order, and {title} supports no other").into()
            }
            Reason::NotDense => format!("strided; {title} accepts only dense row-major memory").into(),
            Reason::Gaps => format!("strided; {title} accepts only memory without gaps").into(),
            Reason::NegativeStride => {
                format!("a stride is negative, which {title} does not support").into()
            }
            Reason::FractionalStride => {
                format!("a stride is not a multiple of the element size, which {title} cannot express").into()
            }
            Reason::Unaligned { needs } => {
                let excess = source.address % needs;
                format!("unaligned; {title} needs an address that is a multiple of {needs}, and this one is {excess} bytes past one")
                    .into()
            }
            Reason::AccidentalAlignment { needs } => format!(
                "{title} shares only memory aligned to {needs} bytes, which the source's allocator does not guarantee; \
                 a share by chance would change with the source"
            )
            .into(),
            Reason::ReadOnly => format!("the source is read-only; {title} would let it be written").into(),
            Reason::WritableRequested => {
                "a writable result was requested, and the memory of the source is read-only or that of an immutable tensor"
                    .into()
            }
            Reason::CachedScalar => "TensorFlow reuses the memory of its scalars".into(),
            Reason::Pending(Pending::Conjugate) => "PyTorch has deferred a conjugation".into(),
            Reason::Pending(Pending::Negate) => "PyTorch has deferred a negation".into(),
            Reason::Pending(Pending::Unpack) => {
                format!("the source stores {} packed, several elements per byte", source.dtype).into()
            }
            Reason::Pending(Pending::Gather) => "the source is spread over several devices".into(),
            Reason::Pending(Pending::Convert | Pending::ConvertUnknown) => {
                "converted by its own library".into()
            }
            Reason::Pending(Pending::Download) => {
                format!("the source is on {}, and is downloaded by its own framework", source.device).into()
            }
            Reason::Pending(Pending::Chunks) => "the column has several chunks".into(),
            Reason::Pending(Pending::Bits) => "Arrow stores booleans as bits".into(),
            Reason::Pending(Pending::Validity) => "Arrow stores validity as bits".into(),
            Reason::Pending(Pending::Nulls) => "the nulls of the column are replaced by a value".into(),
            Reason::Pending(Pending::Dictionary) => "the column stores codes of a dictionary".into(),
            Reason::Pending(Pending::Stack) => "the columns are written to one matrix".into(),
            Reason::Pending(Pending::Offsets) => "the offsets of the lists count from the first element".into(),
            Reason::Pending(Pending::Pad) => "the lists of the column are padded to one length".into(),
            Reason::Pending(Pending::Stream) => {
                "a plan reads no stream and runs no query, so it knows only the types and counts 0 rows".into()
            }
            Reason::OwnMemory => format!("{title} supports only memory that it allocated").into(),
            Reason::DropLock => {
                format!("Paddle releases memory under a lock, and {title} releases it on its own threads: a share could deadlock")
                    .into()
            }
            Reason::Private => "the source is in memory that cannot be shared with other processes".into(),
            Reason::Exposed { bytes } => {
                let mib = bytes >> 20;
                format!("sharing would expose its whole allocation of {mib} MiB to other processes").into()
            }
            Reason::Unprotected => "its memory cannot be shared read-only".into(),
            Reason::Into => "the caller passed a destination".into(),
            Reason::Repacked => {
                format!("{title} stores {} in its own packed format", source.dtype).into()
            }
        }
    }
}

impl Note {
    /// The note as one sentence.
    pub fn sentence(self, target: &TargetCapabilities) -> Cow<'static, str> {
        match self {
            Note::AliasesImmutable => "aliases an immutable source: do not write in place".into(),
            Note::SourceMustNotChange => format!(
                "do not write the source while the result, or work queued on it, exists: {} treats it as immutable \
                 (a copy is a snapshot)",
                target.title
            )
            .into(),
            Note::Counts(unit) => format!("the integers count {}", unit.name()).into(),
            Note::Detached => "detached: no gradient flows back through it".into(),
            Note::Snapshot => "a snapshot of the variable's value at the call".into(),
            Note::ThroughArray => "the memory is what the source's __array__(copy=False) returned".into(),
            Note::KeepsClass => {
                format!("{} copies and casts it by its own function, which keeps the class and its metadata", target.title)
                    .into()
            }
            Note::Aliases => "source and result are the same memory: a write to one is seen in the other".into(),
            Note::Tied => "the same memory as another tensor of the tree: both results are one copy, and a write to one is \
                           seen in the other"
                .into(),
        }
    }
}
