//! The reply of a producer: a delivery, or a rejection with its reason.

use super::delivery::Delivery;
use super::header::{FrameKind, write_header};
use super::limits::{MAX_BODY_BYTES, MAX_REJECTION_TEXT_BYTES};
use super::reader::{Reader, check_limit};
use crate::errors::protocol_error;
use tensorferry_core::Result;
use tensorferry_core::fallible::try_reserve;

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// The publication was withdrawn or never existed, or the secret is not the right one.
    Unknown = 1,
    /// The ticket has expired.
    Expired = 2,
    /// The ticket was valid for one consumer, and was used.
    Used = 3,
    /// The request breaks the protocol.
    Malformed = 4,
    /// The producer failed; the text says why.
    Failed = 5,
    /// The producer has no descriptor left; the text contains the limit.
    NoDescriptor = 6,
    /// Too many descriptors are in flight to consumers that do not read; the text contains the limit.
    TooManyInFlight = 7,
}

impl RejectReason {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::Unknown,
        Self::Expired,
        Self::Used,
        Self::Malformed,
        Self::Failed,
        Self::NoDescriptor,
        Self::TooManyInFlight,
    ];

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&reason| reason as u8 == code)
    }
}

/// The reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The request is rejected.
    Rejection {
        /// Why.
        reason: RejectReason,
        /// The reason as text, for messages.
        text: String,
    },
    /// The tensors.
    Delivery(Delivery),
}

impl Reply {
    /// Encodes the reply, header included.
    ///
    /// # Errors
    /// The reply exceeds a limit, or a tensor exceeds its memory.
    pub fn write(&self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        match self {
            Self::Rejection { reason, text } => {
                let longest = text.len().min(MAX_REJECTION_TEXT_BYTES);
                let end = (0..=longest).rev().find(|&end| text.is_char_boundary(end));
                let text = &text.as_bytes()[..end.unwrap_or(0)];
                body.extend([1, *reason as u8]);
                body.extend((text.len() as u16).to_le_bytes());
                body.extend(text);
            }
            Self::Delivery(delivery) => delivery.write(&mut body)?,
        }
        check_limit("bytes of a message", body.len(), MAX_BODY_BYTES)?;
        let mut message = write_header(FrameKind::Reply, body.len());
        try_reserve(&mut message, body.len())?;
        message.extend(body);
        Ok(message)
    }

    /// Decodes the body of a reply.
    ///
    /// # Errors
    /// The body breaks the protocol.
    pub fn read(body: &[u8]) -> Result<Self> {
        let mut reader = Reader(body);
        let reply = match reader.u8()? {
            0 => Self::Delivery(Delivery::read(&mut reader)?),
            1 => {
                let code = reader.u8()?;
                let reason = RejectReason::from_code(code);
                let reason = reason.ok_or_else(|| protocol_error(format!("unknown reject reason {code}")))?;
                let length = usize::from(reader.u16()?);
                check_limit("bytes of rejection text", length, MAX_REJECTION_TEXT_BYTES)?;
                let text = String::from_utf8(reader.take(length)?.to_vec());
                let text = text.map_err(|_| protocol_error("the text of a rejection is not UTF-8"))?;
                Self::Rejection { reason, text }
            }
            status => return Err(protocol_error(format!("unknown reply status {status}"))),
        };
        reader.finish("reply")?;
        Ok(reply)
    }
}
