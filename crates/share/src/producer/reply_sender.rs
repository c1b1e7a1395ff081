//! Sends a reply with its descriptors in steps that never block.

use super::lease_grant::LeaseGrant;
use super::rejection::{self, Rejection};
use crate::memory::shared_memory::SharedMemory;
use crate::protocol::RejectReason;
use crate::socket::{self, MAX_DESCRIPTORS_PER_SEND};
use crate::system;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use tensorferry_core::Access;

/// How long a consumer may take to read the reply.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long sending is retried while too many descriptors are in flight, before the consumer is rejected.
const IN_FLIGHT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pauses between retries double from the first to the last: the kernel does not signal when descriptors have arrived.
const MIN_RETRY_PAUSE: Duration = Duration::from_millis(1);
const MAX_RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Bytes that are sent to one consumer before the next one is served. Otherwise a consumer that reads as fast as the
/// thread writes would occupy the thread until a long reply is complete.
const MAX_BYTES_PER_STEP: usize = 512 << 10;

/// Memories of a writable delivery that are reopened for its consumer. With more of them, the descriptors of this process
/// are sent: its limit on descriptors may be low.
const MAX_REOPENED_WRITABLE: usize = 64;

enum OutgoingReply {
    Rejection(Vec<u8>),
    Delivery { grant: LeaseGrant, descriptors: Vec<OutgoingDescriptor> },
}

/// A descriptor of a delivery.
enum OutgoingDescriptor {
    /// The descriptor of the publication's memory with this index.
    Memory(usize),
    /// A descriptor that was opened for this consumer.
    Reopened(OwnedFd),
}

impl OutgoingDescriptor {
    /// The descriptor; `None` for memory without one.
    fn borrow<'a>(&'a self, memories: &'a [SharedMemory]) -> Option<BorrowedFd<'a>> {
        match self {
            Self::Reopened(descriptor) => Some(descriptor.as_fd()),
            Self::Memory(index) => descriptor_of(memories.get(*index)?),
        }
    }
}

fn descriptor_of(memory: &SharedMemory) -> Option<BorrowedFd<'_>> {
    match memory {
        SharedMemory::Host(arena) => Some(arena.descriptor()),
        SharedMemory::Gpu(arena) => arena.export_handle().descriptor(),
    }
}

/// Retries after `ETOOMANYREFS`.
#[derive(Clone, Copy)]
struct Retry {
    since: Instant,
    pause: Duration,
    next: Instant,
}

/// A reply that is being sent.
pub(super) struct ReplySender {
    reply: OutgoingReply,
    sent_bytes: usize,
    sent_descriptors: usize,
    deadline: Instant,
    retry: Option<Retry>,
}

/// The result of one step.
pub(super) enum SendProgress {
    Complete,
    /// The consumer has to read first, or other consumers are served first.
    Partial,
    /// The user of this process has too many descriptors in flight, to any process.
    TooManyInFlight,
}

impl ReplySender {
    /// Starts a delivery, or a rejection if the grant is an error or descriptors run out.
    pub(super) fn new(grant: Result<LeaseGrant, RejectReason>, now: Instant) -> Self {
        let grant = grant.map_err(|reason| (reason, rejection::default_text(reason).to_owned()));
        match grant.and_then(prepare_delivery) {
            Ok(reply) => Self::start(reply, now),
            Err(rejection) => Self::reject(rejection, now),
        }
    }

    /// Starts a rejection.
    pub(super) fn reject((reason, text): Rejection, now: Instant) -> Self {
        Self::start(OutgoingReply::Rejection(rejection::encode(reason, &text)), now)
    }

    fn start(reply: OutgoingReply, now: Instant) -> Self {
        Self { reply, sent_bytes: 0, sent_descriptors: 0, deadline: now + READ_TIMEOUT, retry: None }
    }

    /// The lease that is being delivered; `None` for a rejection.
    pub(super) fn grant(&self) -> Option<&LeaseGrant> {
        match &self.reply {
            OutgoingReply::Delivery { grant, .. } => Some(grant),
            OutgoingReply::Rejection(_) => None,
        }
    }

    /// As [`ReplySender::grant`], for a reply that is complete.
    pub(super) fn into_grant(self) -> Option<LeaseGrant> {
        match self.reply {
            OutgoingReply::Delivery { grant, .. } => Some(grant),
            OutgoingReply::Rejection(_) => None,
        }
    }

    /// When the consumer must have read the reply.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// When the next step is due even if the socket reports nothing.
    pub(super) fn next_step(&self) -> Instant {
        self.retry.map_or(self.deadline, |retry| retry.next.min(self.deadline))
    }

    /// Whether sending pauses because too many descriptors are in flight.
    pub(super) fn is_paused(&self) -> bool {
        self.retry.is_some()
    }

    /// Whether the pause is not over yet.
    pub(super) fn is_paused_at(&self, now: Instant) -> bool {
        self.retry.is_some_and(|retry| retry.next > now)
    }

    /// Sends as much as the socket accepts, up to [`MAX_BYTES_PER_STEP`].
    pub(super) fn send(&mut self, socket: &OwnedFd) -> rustix::io::Result<SendProgress> {
        let (bytes, descriptors, memories) = match &self.reply {
            OutgoingReply::Rejection(bytes) => (&bytes[..], &[][..], &[][..]),
            OutgoingReply::Delivery { grant, descriptors } => {
                let published = grant.published();
                (&published.encoded_reply[..], &descriptors[..], &published.memories[..])
            }
        };
        let step_end = bytes.len().min(self.sent_bytes + MAX_BYTES_PER_STEP);
        while self.sent_bytes < step_end {
            let rest = &descriptors[self.sent_descriptors..];
            let batch = &rest[..rest.len().min(MAX_DESCRIPTORS_PER_SEND)];
            // Each batch except the last goes with one byte. The description of a memory has more than one.
            let end = if rest.len() > batch.len() { self.sent_bytes + 1 } else { step_end };
            let borrowed: Vec<BorrowedFd<'_>> = batch.iter().filter_map(|one| one.borrow(memories)).collect();
            match socket::send(socket, &bytes[self.sent_bytes..end], &borrowed) {
                Ok(count) => {
                    self.sent_bytes += count;
                    self.sent_descriptors += batch.len();
                    self.retry = None;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(SendProgress::Partial),
                Err(Errno::TOOMANYREFS) => return Ok(SendProgress::TooManyInFlight),
                Err(error) => return Err(error),
            }
        }
        Ok(if self.sent_bytes == bytes.len() { SendProgress::Complete } else { SendProgress::Partial })
    }

    /// Schedules a retry. Returns false if the consumer is to be rejected instead, which is possible only before the
    /// first byte.
    pub(super) fn schedule_retry(&mut self, now: Instant) -> bool {
        let (since, pause) = self
            .retry
            .map_or((now, MIN_RETRY_PAUSE), |retry| (retry.since, MAX_RETRY_PAUSE.min(2 * retry.pause)));
        self.retry = Some(Retry { since, pause, next: now + pause });
        self.sent_bytes > 0 || now < since + IN_FLIGHT_TIMEOUT
    }
}

/// Collects the descriptors of a delivery. Host memory is reopened for this consumer: the description of a read-only one
/// permits reading only, and every one tells this process for how long the memory is in use
/// ([`crate::memory::idle_arenas`]). Read-only GPU memory is mapped as such by the consumer.
fn prepare_delivery(grant: LeaseGrant) -> Result<OutgoingReply, Rejection> {
    let mut descriptors = Vec::new();
    let published = grant.published();
    let may_reopen = published.memories.len() <= MAX_REOPENED_WRITABLE;
    for (index, memory) in published.memories.iter().enumerate() {
        match memory {
            SharedMemory::Host(arena) if published.access == Access::ReadOnly => {
                let opened = system::reopen(arena.descriptor(), Access::ReadOnly).map_err(|error| {
                    rejection::no_descriptor(error.errno())
                        .unwrap_or_else(|| (RejectReason::Failed, error.fact().to_owned()))
                })?;
                arena.record_delivery(false);
                descriptors.push(OutgoingDescriptor::Reopened(opened));
            }
            SharedMemory::Host(arena) => {
                let opened = if may_reopen {
                    system::reopen(arena.descriptor(), Access::ReadWrite).ok()
                } else {
                    None
                };
                arena.record_delivery(opened.is_none());
                descriptors
                    .push(opened.map_or(OutgoingDescriptor::Memory(index), OutgoingDescriptor::Reopened));
            }
            // Legacy GPU memory has no descriptor.
            SharedMemory::Gpu(_) => {
                descriptors.extend(descriptor_of(memory).map(|_| OutgoingDescriptor::Memory(index)))
            }
        }
    }
    Ok(OutgoingReply::Delivery { grant, descriptors })
}
