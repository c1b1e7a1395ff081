//! The connection of one consumer, as a state machine: it receives the request, sends the reply, and then is the lease.

use super::lease_grant::LeaseGrant;
use super::publication_record::Published;
use super::rejection;
use super::reply_sender::{ReplySender, SendProgress};
use crate::protocol::{AttachRequest, FrameKind, HEADER_BYTES, REQUEST_BYTES, RejectReason, read_header};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a consumer may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

enum ConnectionState {
    ReceivingRequest { bytes: [u8; REQUEST_BYTES], filled: usize, deadline: Instant },
    SendingReply(ReplySender),
    Leased(LeaseGrant),
    Done,
}

/// What a step of a connection led to.
pub(super) enum Progress {
    /// Nothing more can be done without waiting.
    Waiting,
    /// The request has arrived; `None` if it is malformed.
    Requested(Option<AttachRequest>),
    /// The publication cannot be delivered, and a rejection is sent instead.
    Undeliverable(Arc<Published>),
    /// The connection has ended.
    Closed,
}

/// A connection to a consumer.
pub(crate) struct Connection {
    socket: OwnedFd,
    state: ConnectionState,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, now: Instant) -> Self {
        let deadline = now + REQUEST_TIMEOUT;
        let state = ConnectionState::ReceivingRequest { bytes: [0; REQUEST_BYTES], filled: 0, deadline };
        Self { socket, state }
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(super) fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// The epoll events to wait for. The end of the connection is always reported.
    pub(super) fn events(&self) -> EventFlags {
        match &self.state {
            ConnectionState::ReceivingRequest { .. } => EventFlags::IN,
            ConnectionState::SendingReply(sender) if !sender.is_paused() => EventFlags::OUT,
            // A paused sender waits for descriptors to arrive, not for the socket.
            ConnectionState::SendingReply(_) | ConnectionState::Leased(_) | ConnectionState::Done => {
                EventFlags::RDHUP
            }
        }
    }

    /// When the next step is due even if the socket reports nothing.
    pub(super) fn next_step(&self) -> Option<Instant> {
        match &self.state {
            ConnectionState::ReceivingRequest { deadline, .. } => Some(*deadline),
            ConnectionState::SendingReply(sender) => Some(sender.next_step()),
            ConnectionState::Leased(_) | ConnectionState::Done => None,
        }
    }

    pub(super) fn is_timed_out(&self, now: Instant) -> bool {
        match &self.state {
            ConnectionState::ReceivingRequest { deadline, .. } => *deadline <= now,
            ConnectionState::SendingReply(sender) => sender.deadline() <= now,
            ConnectionState::Leased(_) | ConnectionState::Done => false,
        }
    }

    /// Whether the request has not arrived completely.
    pub(super) fn awaits_request(&self) -> bool {
        matches!(self.state, ConnectionState::ReceivingRequest { .. })
    }

    /// The publication that the connection holds, or is about to.
    pub(super) fn leased(&self) -> Option<&Arc<Published>> {
        match &self.state {
            ConnectionState::Leased(grant) => Some(grant.published()),
            _ => self.undelivered(),
        }
    }

    /// The publication that is being sent and has not arrived completely.
    pub(super) fn undelivered(&self) -> Option<&Arc<Published>> {
        match &self.state {
            ConnectionState::SendingReply(sender) => sender.grant().map(LeaseGrant::published),
            _ => None,
        }
    }

    /// Starts the reply.
    pub(super) fn reply(&mut self, grant: Result<LeaseGrant, RejectReason>, now: Instant) {
        self.state = ConnectionState::SendingReply(ReplySender::new(grant, now));
    }

    /// Reads or writes as much as possible without waiting.
    pub(super) fn advance(&mut self, now: Instant) -> Progress {
        match &mut self.state {
            ConnectionState::ReceivingRequest { bytes, filled, .. } => {
                receive_request(&self.socket, bytes, filled)
            }
            // Before the next retry, the only event is the end of the connection.
            ConnectionState::SendingReply(sender) if sender.is_paused_at(now) => Progress::Closed,
            ConnectionState::SendingReply(sender) => match sender.send(&self.socket) {
                Ok(SendProgress::Complete) => self.finish_reply(),
                Ok(SendProgress::Partial) => Progress::Waiting,
                Ok(SendProgress::TooManyInFlight) if sender.schedule_retry(now) => Progress::Waiting,
                Ok(SendProgress::TooManyInFlight) => {
                    let published = self.undelivered().cloned();
                    let sender = ReplySender::reject(rejection::too_many_in_flight(), now);
                    self.state = ConnectionState::SendingReply(sender);
                    published.map_or(Progress::Waiting, Progress::Undeliverable)
                }
                Err(_) => Progress::Closed,
            },
            // A consumer has nothing to send after its request, so that any event is the end.
            ConnectionState::Leased(_) | ConnectionState::Done => Progress::Closed,
        }
    }

    fn finish_reply(&mut self) -> Progress {
        let state = std::mem::replace(&mut self.state, ConnectionState::Done);
        let ConnectionState::SendingReply(sender) = state else { return Progress::Closed };
        let Some(grant) = sender.into_grant() else { return Progress::Closed };
        grant.record_delivery();
        self.state = ConnectionState::Leased(grant);
        Progress::Waiting
    }
}

fn receive_request(socket: &OwnedFd, bytes: &mut [u8; REQUEST_BYTES], filled: &mut usize) -> Progress {
    loop {
        // `recv` has no control buffer: the kernel closes descriptors that a consumer has no reason to send.
        match rustix::net::recv(socket, &mut bytes[*filled..], RecvFlags::empty()) {
            Ok((0, _)) => return Progress::Closed,
            Ok((count, _)) => *filled += count,
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => return Progress::Waiting,
            Err(_) => return Progress::Closed,
        }
        let header = bytes[..*filled].first_chunk::<HEADER_BYTES>();
        if header.is_some_and(|header| read_header(header, FrameKind::Request).is_err()) {
            return Progress::Requested(None);
        }
        if *filled == REQUEST_BYTES {
            return Progress::Requested(AttachRequest::read(bytes).ok());
        }
    }
}
