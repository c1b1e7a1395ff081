//! The ready state of attached GPU tensors: waiting for the work that the producer has queued on them.

use crate::errors::{producer_timed_out, ticket_rejected};
use crate::lease::Lease;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tensorferry_core::Result;
use tensorferry_cuda::Gpu;
use tensorferry_cuda::ipc::RemoteEvent;

/// How long the host spins for the producer's GPU work, and how long it sleeps at a time after that.
const SPIN_TIME: Duration = Duration::from_micros(50);

/// When the attached tensors on one GPU are ready.
#[derive(Debug)]
pub struct ReadyState {
    pub(crate) gpu: &'static Gpu,
    pub(crate) event: Option<RemoteEvent>,
    // Dropped after the event: the producer destroys its own event when the lease ends.
    pub(crate) lease: Arc<Lease>,
}

impl ReadyState {
    /// The GPU.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Whether the tensors are ready now, so that nothing has to wait.
    ///
    /// # Errors
    /// The device fails.
    pub fn is_ready(&self) -> Result<bool> {
        self.event.as_ref().map_or(Ok(true), RemoteEvent::is_complete)
    }

    /// Waits on the host until the tensors are ready. Unlike a stream, the host notices if the producer ends before
    /// that.
    ///
    /// # Errors
    /// The device fails, the producer ends, or the timeout passes.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        let begin = Instant::now();
        while !self.is_ready()? {
            if self.lease.is_disconnected() && !self.is_ready()? {
                return Err(ticket_rejected("the producer died before the published tensors were ready"));
            }
            match begin.elapsed() {
                waited if waited > timeout => return Err(producer_timed_out(timeout)),
                waited if waited < SPIN_TIME => std::hint::spin_loop(),
                _ => thread::sleep(SPIN_TIME),
            }
        }
        Ok(())
    }
}
