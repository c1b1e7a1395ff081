//! Where the two ends of a trip queue their work on a GPU.

use crate::errors::{Result, fail};
use crate::interpreter::owner::Owner;
use pyo3::prelude::*;
use tensorferry_core::ErrorKind;
use tensorferry_core::plan::TargetCapabilities;
use tensorferry_cuda::{Stream, SyncPoint};

/// Where one end of a trip queues its work.
pub(crate) struct Streams {
    /// What must be done before somebody else uses the memory.
    pub(crate) gives: SyncPoint,
    /// What must wait until somebody else is done with it.
    pub(crate) takes: SyncPoint,
    /// What keeps the stream alive: a framework may destroy it with the object that stands for it, while the result of a
    /// share still refers to it.
    pub(crate) keeper: Option<Owner>,
    /// Whether memory that is ready costs the framework so much less that it is worth asking.
    pub(crate) asks: bool,
}

impl Streams {
    /// On streams that the framework does not name.
    pub(crate) fn unnamed() -> Self {
        Self::between(SyncPoint::Everything, SyncPoint::Everything)
    }

    /// On one stream, which lives as long as its framework.
    pub(crate) fn on(stream: Stream) -> Self {
        Self::between(SyncPoint::Stream(stream), SyncPoint::Stream(stream))
    }

    /// Ready on one side, taken back on another.
    pub(crate) fn between(gives: SyncPoint, takes: SyncPoint) -> Self {
        Self { gives, takes, keeper: None, asks: false }
    }

    /// The same, for a framework that is better off with memory that is ready.
    pub(crate) fn asking(mut self) -> Self {
        self.asks = true;
        self
    }

    /// The same, on a stream that lives as long as an object.
    pub(crate) fn kept_by(mut self, object: Bound<'_, PyAny>) -> Self {
        self.keeper = Some(Owner::object(object.unbind()));
        self
    }
}

/// The stream of a handle that came as a number; `None` where no stream has that number. Handles of streams that are not default
/// ones are addresses of the driver's structs: aligned, and not in the first page. The driver checks no more than that: it follows
/// the address.
///
/// # Safety
/// As [`Stream::from_handle`], but for numbers that are refused here.
pub(crate) unsafe fn stream_of(handle: usize) -> Option<Stream> {
    const DEFAULT_STREAMS: std::ops::RangeInclusive<usize> = 0..=2;
    const FIRST_PAGE_BYTES: usize = 4096;
    let is_address = handle >= FIRST_PAGE_BYTES && handle.is_multiple_of(align_of::<usize>());
    // SAFETY: the caller's contract.
    (is_address || DEFAULT_STREAMS.contains(&handle)).then(|| unsafe { Stream::from_handle(handle) })
}

/// Memory of a framework's own on a GPU, to be filled before anybody sees it.
pub(crate) struct Room<'py> {
    /// The framework's tensor: dense, row-major.
    pub(crate) object: Bound<'py, PyAny>,
    /// Where its memory starts.
    pub(crate) data: *mut u8,
    /// Where the framework queues its work on it.
    pub(crate) streams: Streams,
}

/// A stream that the caller named.
pub(crate) struct NamedStream {
    pub(crate) stream: Stream,
    /// What was passed, which keeps the stream alive if it is a framework's object.
    pub(crate) object: Py<PyAny>,
}

/// Sees that a stream is named only for a framework that lets its users choose one.
pub(crate) fn check_named_stream(
    has_named_streams: bool,
    target: &TargetCapabilities,
    stream: Option<&NamedStream>,
) -> Result<()> {
    if stream.is_none() || has_named_streams {
        return Ok(());
    }
    Err(fail(
        ErrorKind::InvalidArgument,
        format!("{} chooses its streams itself, and stream= was given", target.title),
        "leave stream out: the order is right without it",
    ))
}
