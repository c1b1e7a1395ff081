//! Errors about a ticket: the reasons of a rejection, and what a failed connection means.

use crate::errors::{system_error, ticket_rejected};
use crate::hints;
use crate::protocol::RejectReason;
use crate::ticket::{Ticket, is_producer_alive};
use rustix::io::Errno;
use tensorferry_core::{Error, ErrorKind};

/// Characters of the producer's text that a message contains at most.
const MAX_PEER_TEXT_CHARS: usize = 80;

/// The producer has ended.
pub(super) fn stale(ticket: &Ticket) -> Error {
    ticket_rejected(format!("{ticket} is stale: that process has ended"))
}

/// The producer closed the connection before the reply was complete.
pub(super) fn connection_closed(ticket: &Ticket) -> Error {
    if is_producer_alive(ticket) {
        ticket_rejected(format!("the producer of {ticket} closed the connection before it replied"))
    } else {
        stale(ticket)
    }
}

/// Sending or receiving failed.
pub(super) fn connection_failed(ticket: &Ticket, error: Errno) -> Error {
    match error {
        Errno::PIPE | Errno::CONNRESET => connection_closed(ticket),
        Errno::MFILE => system_error("no descriptor left for the memory of the producer", error),
        _ => system_error("the connection to the producer failed", error),
    }
}

/// The producer rejected the request.
pub(super) fn rejected(ticket: &Ticket, reason: RejectReason, text: &str) -> Error {
    let hint = match reason {
        RejectReason::Unknown => {
            let fact = format!("{ticket} was withdrawn, its publication was dropped, or it was never issued");
            return Error::new(ErrorKind::TicketRejected, fact).with_hint(hints::KEEP_PUBLICATION);
        }
        RejectReason::Expired => return ticket_rejected(format!("{ticket} has expired")),
        RejectReason::Used => {
            return ticket_rejected(format!("{ticket} was used, and is valid for one consumer"));
        }
        RejectReason::NoDescriptor => hints::RAISE_PRODUCER_FD_LIMIT,
        RejectReason::TooManyInFlight => hints::STOP_IDLE_CONSUMERS,
        RejectReason::Failed => hints::FIX_PRODUCER,
        RejectReason::Malformed => hints::MATCH_VERSIONS,
    };
    // The text is not trusted: it is quoted, which keeps it on one line, and truncated.
    let text: String = text.chars().take(MAX_PEER_TEXT_CHARS).collect();
    Error::new(ErrorKind::TicketRejected, format!("{ticket} was rejected: {text:?}")).with_hint(hint)
}
