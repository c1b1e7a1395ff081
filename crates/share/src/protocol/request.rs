//! The request of a consumer: which publication it attaches.

use super::header::{FrameKind, HEADER_BYTES, REQUEST_BODY_BYTES, read_header, write_header};
use super::reader::Reader;
use std::fmt;
use tensorferry_core::Result;

/// Bytes of a request, header included.
pub const REQUEST_BYTES: usize = HEADER_BYTES + REQUEST_BODY_BYTES;

/// A request to attach a publication.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AttachRequest {
    /// The id of the publication.
    pub id: [u8; 16],
    /// The secret of the publication.
    pub secret: [u8; 16],
}

/// The secret is left out.
impl fmt::Debug for AttachRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttachRequest").field("id", &self.id).finish_non_exhaustive()
    }
}

impl AttachRequest {
    /// Encodes the request, header included.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = write_header(FrameKind::Request, REQUEST_BODY_BYTES);
        bytes.extend(self.id);
        bytes.extend(self.secret);
        bytes
    }

    /// Decodes a request, header included.
    ///
    /// # Errors
    /// The header is not that of a request.
    pub fn read(bytes: &[u8; REQUEST_BYTES]) -> Result<Self> {
        let mut reader = Reader(bytes);
        read_header(&reader.array()?, FrameKind::Request)?;
        Ok(Self { id: reader.array()?, secret: reader.array()? })
    }
}
