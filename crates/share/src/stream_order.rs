//! Publishing and attaching in the order of GPU work: the functions that name streams.
//!
//! A [`SyncPoint`] names only streams that are alive: that is the contract of `Stream::from_handle`.

use crate::consumer::ready_state::ReadyState;
use crate::producer::publication::{Publication, publish_recorded};
use crate::producer::publish_options::{PublishOptions, PublishedTensor};
use std::any::Any;
use std::sync::Arc;
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
    publish_recorded(tensors, structure, options, None, record_all_streams)
}

/// As [`publish`]. `owner` is dropped, on any thread, when the ticket is invalid and no consumer has a lease: a producer that
/// must not write the memory until then learns of it.
///
/// # Errors
/// As [`publish`].
pub fn publish_with_owner(
    tensors: &[PublishedTensor],
    structure: &[u8],
    options: &PublishOptions,
    owner: Box<dyn Any + Send + Sync>,
) -> Result<Publication> {
    publish_recorded(tensors, structure, options, Some(owner), record_all_streams)
}

/// As [`publish`], but consumers wait only for the work that is queued at these sync points until now.
///
/// # Errors
/// As [`publish`], and if a stream is being captured.
pub fn publish_after(
    tensors: &[PublishedTensor],
    structure: &[u8],
    options: &PublishOptions,
    ready_after: &[(&'static Gpu, SyncPoint)],
) -> Result<Publication> {
    publish_recorded(tensors, structure, options, None, |gpu| {
        let sync_points = ready_after.iter().filter(|(other, _)| std::ptr::eq(*other, gpu));
        let sync_points: Vec<SyncPoint> = sync_points.map(|(_, sync_point)| *sync_point).collect();
        ReadyEvent::after(gpu, &sync_points)
    })
}

fn record_all_streams(gpu: &'static Gpu) -> Result<Option<Arc<ReadyEvent>>> {
    ReadyEvent::after(gpu, &[SyncPoint::AllStreams])
}

impl ReadyState {
    /// Makes work that is queued at `after` from now on wait until the tensors are ready.
    ///
    /// A stream that waits for a producer which is then killed in the middle of its work waits forever, and so does
    /// everything that waits for that stream (H200, driver 580). [`ReadyState::wait`] does not.
    ///
    /// # Errors
    /// The device fails, or the stream is being captured while the tensors are not ready.
    pub fn order(&self, after: SyncPoint) -> Result<()> {
        let Some(event) = &self.event else { return Ok(()) };
        event.order(after)
    }
}
