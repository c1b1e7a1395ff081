//! The header of every message.

use super::limits::MAX_BODY_BYTES;
use super::reader::Reader;
use crate::errors::protocol_error;
use tensorferry_core::Result;

const MAGIC: [u8; 4] = *b"TFSH";
/// The version of the protocol.
const VERSION: u16 = 2;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 12;
/// Bytes of the body of a request: id and secret.
pub(super) const REQUEST_BODY_BYTES: usize = 32;

/// Which message follows the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// From consumer to producer.
    Request = 1,
    /// From producer to consumer.
    Reply = 2,
}

pub(super) fn write_header(kind: FrameKind, body_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((kind as u16).to_le_bytes());
    bytes.extend((body_bytes as u32).to_le_bytes());
    bytes
}

/// Checks a header and returns the length of the body.
///
/// # Errors
/// The magic, the version, the kind or the length is not as expected.
pub fn read_header(bytes: &[u8; HEADER_BYTES], expected: FrameKind) -> Result<usize> {
    let mut reader = Reader(bytes);
    if reader.array::<4>()? != MAGIC {
        return Err(protocol_error("the peer does not speak the tensorferry protocol"));
    }
    let version = reader.u16()?;
    if version != VERSION {
        return Err(protocol_error(format!(
            "the peer speaks protocol version {version}, this process speaks version {VERSION}"
        )));
    }
    let kind = reader.u16()?;
    if kind != expected as u16 {
        return Err(protocol_error(format!("the message has kind {kind}, expected {}", expected as u16)));
    }
    let length = reader.u32()? as usize;
    let is_valid = match expected {
        FrameKind::Request => length == REQUEST_BODY_BYTES,
        FrameKind::Reply => (1..=MAX_BODY_BYTES).contains(&length),
    };
    if is_valid {
        Ok(length)
    } else {
        Err(protocol_error(format!("the header announces a body of {length} bytes")))
    }
}
