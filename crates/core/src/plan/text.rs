//! Plans in sentences.

use super::inputs::{Pending, SourceDescription, TargetCapabilities};
use super::{Note, Reason};
use std::borrow::Cow;

/// Lengths of axes, as Python writes a tuple.
pub fn format_shape(shape: &[i64]) -> String {
    let lengths: Vec<String> = shape.iter().map(i64::to_string).collect();
    format!("({}{})", lengths.join(", "), if lengths.len() == 1 { "," } else { "" })
}

/// A number of things.
pub fn count_noun(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

impl Reason {
    /// The kind of copy that this reason leads to, in a word.
    pub fn kind(self) -> &'static str {
        match self {
            Reason::Cast { .. } => "cast",
            Reason::Swapped => "swap bytes",
            Reason::Moved { to, .. } if to.is_host() => "download",
            Reason::Moved { from, .. } if from.is_host() => "upload",
            Reason::Moved { .. } => "peer copy",
            Reason::NotDense | Reason::Gaps | Reason::NegativeStride | Reason::BrokenStride => "pack",
            Reason::Pending(Pending::Conjugate | Pending::Negate) => "resolve",
            Reason::Pending(Pending::Unpack) => "unpack",
            Reason::Pending(Pending::Gather) => "gather",
            Reason::Pending(Pending::Convert) => "convert",
            Reason::Repacked => "repack",
            _ => "copy",
        }
    }

    /// The fact behind the reason, as one clause.
    pub fn sentence(self, source: &SourceDescription<'_>, target: &TargetCapabilities) -> Cow<'static, str> {
        let title = target.title;
        match self {
            Reason::Asked => "copy=True was asked for".into(),
            Reason::Cast { from, to } => format!("the values become {to} from {from}").into(),
            Reason::Moved { from, to, asked: true } => {
                format!("the source is on {from} and the result is wanted on {to}").into()
            }
            Reason::Moved { from, to, asked: false } => {
                let holds = if to.is_host() { "host" } else { "GPU" };
                format!("the source is on {from} and {title} holds {holds} memory only").into()
            }
            Reason::Swapped => {
                format!("the source is in the other byte order; {title} holds only the machine's own").into()
            }
            Reason::NotDense => format!("strided; {title} takes only dense row-major memory").into(),
            Reason::Gaps => format!("strided; {title} takes only memory without gaps").into(),
            Reason::NegativeStride => {
                format!("a stride runs backwards; {title} takes no negative strides").into()
            }
            Reason::BrokenStride => {
                format!("a stride is no whole number of elements, which {title} cannot express").into()
            }
            Reason::Unaligned { needs } => {
                let off = source.address % needs;
                format!("unaligned; {title} needs an address that is a multiple of {needs} and this one is {off} past").into()
            }
            Reason::AccidentalAlignment { needs } => format!(
                "{title} shares only memory aligned to {needs} bytes, which the source's allocator does not guarantee; \
                 a share by chance would change with the source"
            )
            .into(),
            Reason::Frozen => format!("the source is read-only; {title} would let it be written").into(),
            Reason::WritableAsked => "writable=True was asked for and the source must not be written".into(),
            Reason::CachedScalar => "TensorFlow reuses the memory of its scalars".into(),
            Reason::Pending(Pending::Conjugate) => "PyTorch has put off a conjugation".into(),
            Reason::Pending(Pending::Negate) => "PyTorch has put off a negation".into(),
            Reason::Pending(Pending::Unpack) => {
                format!("the source keeps {} packed, several elements to a byte", source.dtype).into()
            }
            Reason::Pending(Pending::Gather) => "the source is spread over several devices".into(),
            Reason::Pending(Pending::Convert) => "converted by the object (__array__)".into(),
            Reason::OwnMemory => format!("{title} keeps tensors only in memory of its own").into(),
            Reason::DropLock => {
                format!("Paddle releases memory under a lock and {title} does so on threads of its own: a share could hang")
                    .into()
            }
            Reason::Private => "the source lies in memory that other processes cannot be given".into(),
            Reason::Exposed { bytes } => {
                let mib = bytes >> 20;
                format!("others would be given all of its allocation, {mib} MiB").into()
            }
            Reason::Unprotected => "others could not be kept from writing its memory".into(),
            Reason::Into => "the caller gave a destination to fill".into(),
            Reason::Repacked => {
                format!("{title} keeps {} in a form of its own", source.dtype).into()
            }
        }
    }

    /// What would make this reason go away; `None` where nothing would.
    pub fn advice(self) -> Option<Cow<'static, str>> {
        Some(match self {
            Reason::Asked => "leave out copy=True".into(),
            Reason::Cast { .. } => "leave out dtype".into(),
            Reason::Moved { asked: true, .. } => "leave out device".into(),
            Reason::Moved { from, asked: false, .. } if from.is_host() => {
                "carry it to a framework that holds host memory".into()
            }
            Reason::Moved { asked: false, .. } => "carry it to a framework that holds GPU memory".into(),
            Reason::Swapped => "keep the source in the machine's byte order".into(),
            Reason::NotDense | Reason::Gaps | Reason::NegativeStride | Reason::BrokenStride => {
                "make the source contiguous where it is made".into()
            }
            Reason::Unaligned { needs } => {
                format!("allocate the source at a multiple of {needs} bytes").into()
            }
            Reason::AccidentalAlignment { .. } => {
                "pass copy=False to share the memory if it is aligned, or allocate the source with ferry.empty_aligned or ferry.empty_shared".into()
            }
            Reason::Frozen => "pass a source that may be written".into(),
            Reason::WritableAsked => "leave out writable=True".into(),
            Reason::Private | Reason::Unprotected => "make it with ferry.empty_shared(...)".into(),
            Reason::Exposed { .. } => "pass copy=False to give them all of it".into(),
            Reason::CachedScalar
            | Reason::Pending(_)
            | Reason::Repacked
            | Reason::OwnMemory
            | Reason::DropLock
            | Reason::Into => return None,
        })
    }
}

impl Note {
    /// The note as one sentence.
    pub fn sentence(self, source: &SourceDescription<'_>, target: &TargetCapabilities) -> Cow<'static, str> {
        match self {
            Note::AliasesImmutable => "aliases an immutable source: do not write in place".into(),
            Note::SourceMustRest => format!(
                "do not write the source while the result, or work queued on it, lives: {} takes it as immutable \
                 (copy=True takes a snapshot)",
                target.title
            )
            .into(),
            Note::Detached => "carried detached: no gradient flows back through it".into(),
            Note::Snapshot => "a snapshot of the variable's value at the call".into(),
            Note::ThroughArray => "the memory is what the source's __array__(copy=False) returned".into(),
            Note::DropsImaginary => format!("the imaginary part of {} is dropped", source.dtype).into(),
            Note::Aliases => "source and result are the same memory: a write to one is seen in the other".into(),
            Note::Tied => "the same memory as another tensor of the tree: one copy is both, and a write to one is seen in \
                           the other"
                .into(),
        }
    }
}
