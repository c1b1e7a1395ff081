//! The bytes of a tensor from the first to the last, wherever they come from.
//!
//! What is stored as it is can be read from any place, by many threads; deflated members and protobuf values only from the
//! front. A [`TensorReader`] is the one way that works for all: whoever sends a tensor somewhere while it is being read asks for
//! piece after piece. The last piece is handed out only after the checksum, where there is one, has been found right.

use crate::entry::{FileEntry, Member, Place};
use crate::fault::{bad, failed, wrong};
use crate::inflate::{Inflate, check};
use crate::proto::Decoder;
use crate::source::FileSource;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use tensorferry_core::{Error, Result};

/// The bytes of one tensor, in order. Keeps its file open by itself.
pub struct TensorReader {
    from: From,
    left: u64,
}

enum From {
    Stored { source: Arc<FileSource>, offset: u64, check: Option<(u32, crc32fast::Hasher)> },
    Inflate(Box<Inflate>, u32),
    Values(Box<Decoder>),
}

impl TensorReader {
    pub(crate) fn new(sources: &[Arc<FileSource>], entry: &FileEntry) -> Result<Self> {
        let from = match &entry.place {
            Place::Stored { file, offset, member } => {
                let source = sources.get(*file).ok_or_else(foreign)?.clone();
                let check = member.map(|member| Ok((member.crc, hash_header(&source, member, *offset)?)));
                From::Stored { source, offset: *offset, check: check.transpose()? }
            }
            Place::Deflated { offset, compressed, header, crc } => {
                let source = sources.first().ok_or_else(foreign)?.clone();
                let mut inflate = Inflate::new(source, *offset, *compressed);
                skip(&mut inflate, *header)?;
                From::Inflate(Box::new(inflate), *crc)
            }
            Place::Values(values) => {
                let source = sources.first().ok_or_else(foreign)?.clone();
                From::Values(Box::new(Decoder::new(source, values.clone(), entry.dtype())))
            }
        };
        Ok(Self { from, left: entry.bytes() })
    }

    /// Bytes that are still to come.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Fills all of `out` with the next bytes.
    ///
    /// # Errors
    /// When there are not as many, the file cannot be read, or what is read is not what the file declares.
    pub fn read(&mut self, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        let count = out.len() as u64;
        if count > self.left {
            return Err(wrong(
                format!("{count} bytes were asked for, and {} are left", self.left),
                "ask for no more than there are",
            ));
        }
        self.left -= count;
        match &mut self.from {
            From::Stored { source, offset, check: sum } => {
                source.read(*offset, out)?;
                *offset += count;
                if let Some((crc, hasher)) = sum {
                    // SAFETY: `read` has filled it.
                    hasher
                        .update(unsafe { std::slice::from_raw_parts(out.as_ptr().cast::<u8>(), out.len()) });
                    if self.left == 0 {
                        check(hasher.clone(), *crc)?;
                    }
                }
            }
            From::Inflate(inflate, crc) => {
                inflate.fill(out)?;
                if self.left == 0 {
                    inflate.finish(*crc)?;
                }
            }
            From::Values(decoder) => decoder.fill(out)?,
        }
        Ok(())
    }
}

impl std::fmt::Debug for TensorReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("left", &self.left).finish_non_exhaustive()
    }
}

/// The checksum of what comes before the data of a stored member.
pub(crate) fn hash_header(source: &FileSource, member: Member, offset: u64) -> Result<crc32fast::Hasher> {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&source.bytes(member.start, (offset - member.start) as usize)?);
    Ok(hasher)
}

fn skip(inflate: &mut Inflate, count: u64) -> Result<()> {
    let mut header = vec![MaybeUninit::uninit(); count as usize];
    inflate.fill(&mut header)
}

/// An entry that came from another file.
pub(crate) fn foreign() -> Error {
    wrong("the entry is of another file", "pass an entry of this one")
}

/// An error that went through a library, as it was.
pub(crate) fn from_io(error: io::Error) -> Error {
    let kind = error.kind();
    if error.get_ref().is_some_and(|inner| inner.is::<Error>())
        && let Some(inner) = error.into_inner().and_then(|inner| inner.downcast::<Error>().ok())
    {
        return *inner;
    }
    match kind {
        io::ErrorKind::UnexpectedEof => bad("it ends before what it should hold"),
        kind => failed("it cannot be read", &io::Error::from(kind)),
    }
}
