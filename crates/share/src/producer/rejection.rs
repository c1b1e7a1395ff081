//! Rejections: the texts of the reasons, and their encoding as a reply.

use crate::protocol::{RejectReason, Reply};
use crate::system;

/// A reason with the text for the consumer.
pub(super) type Rejection = (RejectReason, String);

/// Encodes a rejection as a reply.
pub(super) fn encode(reason: RejectReason, text: &str) -> Vec<u8> {
    Reply::Rejection { reason, text: text.into() }.write().unwrap_or_default()
}

/// The text of a reason that needs no numbers.
pub(super) fn default_text(reason: RejectReason) -> &'static str {
    match reason {
        RejectReason::Unknown => "the ticket was withdrawn or never issued",
        RejectReason::Expired => "the ticket has expired",
        RejectReason::Used => "the ticket was used",
        RejectReason::Malformed => "the request is malformed",
        RejectReason::Failed | RejectReason::NoDescriptor | RejectReason::TooManyInFlight => {
            "the producer cannot deliver the tensors"
        }
    }
}

/// The rejection for a system call that failed because descriptors ran out; `None` if it failed for another reason.
pub(super) fn no_descriptor(errno: Option<i32>) -> Option<Rejection> {
    let text = match (errno?, system::descriptor_limit()) {
        (libc::EMFILE, Some(limit)) => format!("the producer has no descriptor left (limit {limit})"),
        (libc::EMFILE | libc::ENFILE, _) => "the producer's system has no descriptor left".into(),
        _ => return None,
    };
    Some((RejectReason::NoDescriptor, text))
}

/// The rejection for `ETOOMANYREFS`.
pub(super) fn too_many_in_flight() -> Rejection {
    let count = system::descriptor_limit().map_or("too many".into(), |limit| format!("more than {limit}"));
    let text = format!("{count} descriptors are in flight to consumers that do not read");
    (RejectReason::TooManyInFlight, text)
}
