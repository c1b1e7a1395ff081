//! Stream handles, and the sync points between which [`Gpu::order`](crate::Gpu::order) orders work.

use std::ffi::c_void;
use std::ptr;

/// A stream that another library owns and keeps alive. Whoever makes one from a handle vouches for that, so that safe
/// functions may pass it to the driver, which does not check handles.
///
/// ```compile_fail,E0423
/// let stream = tensorferry_cuda::Stream(0xdead_beef);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(usize);

impl Stream {
    /// The default stream that all threads share.
    pub const LEGACY: Self = Self(0);

    /// The default stream of the calling thread.
    const PER_THREAD: Self = Self(2);

    /// The stream with this handle. Handle 1 is the shared default stream, as 0 is.
    ///
    /// ```no_run
    /// # use tensorferry_cuda::{DeviceBlock, Gpu, Stream};
    /// // SAFETY: 2 is the handle of the calling thread's default stream.
    /// let block = DeviceBlock::new(Gpu::get(0)?, 64, unsafe { Stream::from_handle(2) })?;
    /// # Ok::<(), tensorferry_core::Error>(())
    /// ```
    ///
    /// ```compile_fail,E0133
    /// # use tensorferry_cuda::{DeviceBlock, Gpu, Stream};
    /// let block = DeviceBlock::new(Gpu::get(0)?, 64, Stream::from_handle(0xdead_beef))?;
    /// # Ok::<(), tensorferry_core::Error>(())
    /// ```
    ///
    /// # Safety
    /// The handle is that of a default stream (0, 1 or 2), or of a stream of this process that is alive for as long as
    /// the result or a copy of it is used: in a [`SyncPoint`], a [`DeviceBlock`](crate::DeviceBlock) or an open
    /// [`TransferBatch`](crate::TransferBatch). Handle 2 names the default stream of the thread that uses it.
    pub unsafe fn from_handle(handle: usize) -> Self {
        Self(if handle == 1 { 0 } else { handle })
    }

    /// Whether it is a different stream on every thread.
    pub(crate) fn is_per_thread(self) -> bool {
        self == Self::PER_THREAD
    }

    /// The handle.
    pub fn handle(self) -> usize {
        self.0
    }

    /// The handle in its C type, `CUstream`.
    pub(crate) fn pointer(self) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.0)
    }
}

/// The streams whose queued work other work is ordered with.
///
/// A source is *ready after* a sync point, and its memory is *reusable after* another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPoint {
    /// The work on one stream.
    Stream(Stream),
    /// The work on every stream of the GPU, for frameworks that do not name theirs.
    AllStreams,
    /// No work: all of it is complete.
    Complete,
}

impl SyncPoint {
    /// The sync point in a form that any thread may use: the per-thread default stream is a different stream on every
    /// thread, so it becomes all streams.
    #[must_use]
    pub fn thread_independent(self) -> Self {
        match self {
            Self::Stream(stream) if stream.is_per_thread() => Self::AllStreams,
            other => other,
        }
    }
}
