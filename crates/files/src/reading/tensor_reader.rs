//! Sequential reading of a tensor's bytes, from any location.
//!
//! Stored bytes can be read from any offset by several threads; deflated members and protobuf values only from the start. A
//! [`TensorReader`] works for all of them, so that a transfer can send a tensor while it is being read. The last bytes are
//! returned only after the CRC-32, where there is one, was verified.

use super::checksum::{check_crc32, hash_member_header};
use super::file_source::FileSource;
use super::inflate::Inflater;
use crate::entry::{DataLocation, FileEntry};
use crate::errors::{entry_of_another_file, invalid_argument};
use crate::formats::protobuf::values::ValueDecoder;
use crate::hints;
use std::mem::MaybeUninit;
use std::sync::Arc;
use tensorferry_core::{Result, fallible};

/// Reads the bytes of one tensor in order. It keeps the file open.
pub struct TensorReader {
    decoder: Decoder,
    left: u64,
}

enum Decoder {
    Stored { source: Arc<FileSource>, offset: u64, checksum: Option<(u32, crc32fast::Hasher)> },
    Deflated(Box<Inflater>, u32),
    Encoded(Box<ValueDecoder>),
}

impl TensorReader {
    pub(crate) fn new(sources: &[Arc<FileSource>], entry: &FileEntry) -> Result<Self> {
        let decoder = match entry.location() {
            DataLocation::Stored { file, offset, member } => {
                let source = sources.get(*file).ok_or_else(entry_of_another_file)?.clone();
                let checksum =
                    member.map(|member| Ok((member.crc32, hash_member_header(&source, member, *offset)?)));
                Decoder::Stored { source, offset: *offset, checksum: checksum.transpose()? }
            }
            DataLocation::Deflated { offset, compressed_bytes, header_bytes, crc32 } => {
                let source = sources.first().ok_or_else(entry_of_another_file)?.clone();
                let mut inflater = Inflater::new(source, *offset, *compressed_bytes);
                let mut header = Vec::<u8>::new();
                fallible::try_reserve(&mut header, *header_bytes as usize)?;
                inflater.read_exact_uninit(&mut header.spare_capacity_mut()[..*header_bytes as usize])?;
                Decoder::Deflated(Box::new(inflater), *crc32)
            }
            DataLocation::Encoded(values) => {
                let source = sources.first().ok_or_else(entry_of_another_file)?.clone();
                Decoder::Encoded(Box::new(ValueDecoder::new(source, values.clone(), entry.dtype())))
            }
        };
        Ok(Self { decoder, left: entry.bytes() })
    }

    /// The number of bytes that are not yet read.
    pub fn bytes_left(&self) -> u64 {
        self.left
    }

    /// Fills all of `out` with the next bytes.
    ///
    /// # Errors
    /// When fewer bytes are left, the file cannot be read, or its contents contradict its header.
    pub fn read(&mut self, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        let count = out.len() as u64;
        if count > self.left {
            return Err(invalid_argument(
                format!("{count} bytes requested, and {} are left", self.left),
                hints::READ_WITHIN_TENSOR,
            ));
        }
        self.left -= count;
        match &mut self.decoder {
            Decoder::Stored { source, offset, checksum } => {
                source.read_each(*offset, out, |bytes| {
                    if let Some((_, hasher)) = checksum {
                        hasher.update(bytes);
                    }
                })?;
                *offset += count;
                if let Some((crc32, hasher)) = checksum
                    && self.left == 0
                {
                    check_crc32(hasher.clone(), *crc32)?;
                }
            }
            Decoder::Deflated(inflater, crc32) => {
                inflater.read_exact_uninit(out)?;
                if self.left == 0 {
                    inflater.finish(*crc32)?;
                }
            }
            Decoder::Encoded(decoder) => decoder.read(out)?,
        }
        Ok(())
    }
}

impl std::fmt::Debug for TensorReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TensorReader").field("left", &self.left).finish_non_exhaustive()
    }
}
