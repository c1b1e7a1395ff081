//! Publishing and attaching in the order of GPU work: the functions that name streams.
//!
//! They are together because they have one contract: a stream is alive while the driver uses it, and belongs to the GPU
//! that the caller names with it.

use crate::consumer::ready_state::ReadyState;
use crate::producer::publication::{Publication, publish_recorded};
use crate::producer::publish_options::{PublishOptions, PublishedTensor};
use tensorferry_core::Result;
use tensorferry_cuda::ipc::ReadyEvent;
use tensorferry_cuda::{Gpu, SyncPoint};

/// Publishes tensors with an encoded tree structure of at most 16 MiB.
///
/// Consumers wait for all work that this process has queued on the GPUs of the tensors until now. Callers that know the
/// streams use [`publish_after`].
///
/// # Errors
/// - A tensor exceeds its memory, or the reply exceeds a limit.
/// - Memory that was attached as read-only is published as writable.
/// - GPU memory that cannot be protected is published as read-only ([`SharedMemory::can_be_read_only`]).
/// - The system or the driver fails.
///
/// [`SharedMemory::can_be_read_only`]: crate::SharedMemory::can_be_read_only
pub fn publish(
    tensors: &[PublishedTensor],
    structure: &[u8],
    options: &PublishOptions,
) -> Result<Publication> {
    publish_recorded(tensors, structure, options, |gpu| {
        // SAFETY: `ReadyEvent::after` requires that every stream is alive. `AllStreams` names none.
        unsafe { ReadyEvent::after(gpu, &[SyncPoint::AllStreams]) }
    })
}

/// As [`publish`], but consumers wait only for the work that is queued at these sync points until now.
///
/// # Errors
/// As [`publish`], and if a stream is being captured.
///
/// # Safety
/// The streams are alive, and belong to their GPU or are default streams.
///
/// Safe code cannot call it:
///
/// ```compile_fail,E0133
/// use tensorferry_share::{PublishOptions, publish_after};
///
/// publish_after(&[], b"", &PublishOptions::default(), &[]);
/// ```
pub unsafe fn publish_after(
    tensors: &[PublishedTensor],
    structure: &[u8],
    options: &PublishOptions,
    ready_after: &[(&'static Gpu, SyncPoint)],
) -> Result<Publication> {
    publish_recorded(tensors, structure, options, |gpu| {
        let sync_points = ready_after.iter().filter(|(other, _)| std::ptr::eq(*other, gpu));
        let sync_points: Vec<SyncPoint> = sync_points.map(|(_, sync_point)| *sync_point).collect();
        // SAFETY: `ReadyEvent::after` requires that every stream is alive, and belongs to `gpu` or is a default stream.
        // The caller promises both for each pair of `ready_after`, and `filter` kept the pairs of `gpu`.
        unsafe { ReadyEvent::after(gpu, &sync_points) }
    })
}

impl ReadyState {
    /// Makes work that is queued at `after` from now on wait until the tensors are ready.
    ///
    /// A stream that waits for a producer which is then killed in the middle of its work waits forever, and so does
    /// everything that waits for that stream (H200, driver 580). [`ReadyState::wait`] does not.
    ///
    /// # Errors
    /// The device fails, or the stream is being captured while the tensors are not ready.
    ///
    /// # Safety
    /// The stream is alive, and belongs to this GPU or is a default stream.
    ///
    /// Safe code cannot call it:
    ///
    /// ```compile_fail,E0133
    /// use tensorferry_cuda::SyncPoint;
    ///
    /// fn order(ready: &tensorferry_share::ReadyState) {
    ///     ready.order(SyncPoint::AllStreams);
    /// }
    /// ```
    pub unsafe fn order(&self, after: SyncPoint) -> Result<()> {
        let Some(event) = &self.event else { return Ok(()) };
        // SAFETY: `RemoteEvent::order` requires that the stream is alive, and belongs to the GPU of the event or is a
        // default stream. The caller promises both for `self.gpu`, and `map_delivery` opened the event on that GPU.
        unsafe { event.order(after) }
    }
}
