//! The CUDA streams on which the source and the target of a conversion queue their work.

use crate::errors::{Result, fail};
use crate::interpreter::owner::Owner;
use pyo3::prelude::*;
use tensorferry_core::ErrorKind;
use tensorferry_core::plan::TargetCapabilities;
use tensorferry_cuda::{Gpu, Stream, SyncPoint};

/// The sync points of one framework for one piece of GPU memory.
pub(crate) struct Streams {
    /// The memory is ready for others after the work queued here.
    pub(crate) ready_after: SyncPoint,
    /// The framework uses the memory next on this sync point, which must wait for others.
    pub(crate) next_use: SyncPoint,
    /// Keeps the stream alive. A framework may destroy a stream together with its Python object, while a shared result
    /// still refers to it.
    pub(crate) owner: Option<Owner>,
    /// Whether the framework writes memory that is ready so much faster that a query of the source's stream pays off.
    pub(crate) prefers_ready_memory: bool,
}

impl Streams {
    /// For a framework that does not tell its streams.
    pub(crate) fn unnamed() -> Self {
        Self::new(SyncPoint::AllStreams, SyncPoint::AllStreams)
    }

    /// For one stream, which lives as long as its framework.
    pub(crate) fn on(stream: Stream) -> Self {
        Self::new(SyncPoint::Stream(stream), SyncPoint::Stream(stream))
    }

    /// For two different sync points.
    pub(crate) fn new(ready_after: SyncPoint, next_use: SyncPoint) -> Self {
        Self { ready_after, next_use, owner: None, prefers_ready_memory: false }
    }

    /// The same streams, for a framework that is faster with memory that is ready.
    pub(crate) fn preferring_ready_memory(mut self) -> Self {
        self.prefers_ready_memory = true;
        self
    }

    /// The same streams, which live as long as `object`.
    pub(crate) fn with_owner(mut self, object: Bound<'_, PyAny>) -> Self {
        self.owner = Some(Owner::object(object.unbind()));
        self
    }
}

/// The stream with this handle, or `None` if no stream can have it.
///
/// The handle of a stream that is not a default stream is the address of a struct of the driver: aligned, and not in the
/// first page. The driver does not check handles; it dereferences them.
///
/// # Safety
/// An aligned handle from 4096 on is that of a stream of this process, which is alive for as long as the result or a copy of it is
/// used.
pub(crate) unsafe fn stream_of(handle: usize) -> Option<Stream> {
    const DEFAULT_STREAMS: std::ops::RangeInclusive<usize> = 0..=2;
    const FIRST_PAGE_BYTES: usize = 4096;
    let is_address = handle >= FIRST_PAGE_BYTES && handle.is_multiple_of(align_of::<usize>());
    // SAFETY: `from_handle` requires a stream that is alive as long as the result: the contract of `stream_of` says so.
    (is_address || DEFAULT_STREAMS.contains(&handle)).then(|| unsafe { Stream::from_handle(handle) })
}

/// Orders the work at `after` behind the work that is queued at `before`. The GIL is released, because an old driver makes the host
/// wait.
pub(crate) fn order(
    py: Python<'_>,
    gpu: &'static Gpu,
    before: SyncPoint,
    after: SyncPoint,
) -> tensorferry_core::Result<()> {
    py.detach(|| gpu.order(before, after))
}

/// Waits on the host for the work that is queued at a sync point, with the GIL released.
pub(crate) fn wait(py: Python<'_>, gpu: &'static Gpu, point: SyncPoint) -> tensorferry_core::Result<()> {
    py.detach(|| gpu.wait(point))
}

/// New GPU memory of a framework, to be filled before the caller gets it.
pub(crate) struct DeviceAllocation<'py> {
    /// The framework's tensor: dense, row-major.
    pub(crate) object: Bound<'py, PyAny>,
    /// The address of its first element.
    pub(crate) data: *mut u8,
    /// The streams on which the framework uses it.
    pub(crate) streams: Streams,
}

/// A stream that the caller named.
pub(crate) struct NamedStream {
    pub(crate) stream: Stream,
    /// The argument, which keeps the stream alive if it is a framework's object.
    pub(crate) object: Py<PyAny>,
}

/// Raises if a stream is named for a framework whose users do not choose streams.
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
        "leave stream out: work is ordered without it",
    ))
}
