//! Inflates a deflated zip member directly into the caller's buffer.
//!
//! The caller requests exactly the bytes that the member declares, so no more is ever inflated. [`Inflater::finish`] then
//! checks that the stream ends, that its input is used up, and that the CRC-32 matches.

use super::checksum::check_crc32;
use super::file_source::FileSource;
use crate::errors::invalid_file;
use flate2::{Decompress, DecompressError, FlushDecompress, Status};
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use tensorferry_core::Result;

/// The size of one read of compressed bytes.
const INPUT_BYTES: u64 = 64 << 10;

/// The decompressor of one member.
pub(crate) struct Inflater {
    source: Arc<FileSource>,
    /// The offset and number of the compressed bytes that are not yet read.
    offset: u64,
    unread_bytes: u64,
    input: Vec<u8>,
    used: usize,
    state: Decompress,
    is_finished: bool,
    hasher: crc32fast::Hasher,
}

impl Inflater {
    pub(crate) fn new(source: Arc<FileSource>, offset: u64, compressed_bytes: u64) -> Self {
        Self {
            source,
            offset,
            unread_bytes: compressed_bytes,
            input: Vec::new(),
            used: 0,
            state: Decompress::new(false),
            is_finished: false,
            hasher: crc32fast::Hasher::new(),
        }
    }

    fn refill(&mut self) -> Result<()> {
        if self.used == self.input.len() && self.unread_bytes > 0 {
            let count = self.unread_bytes.min(INPUT_BYTES);
            self.input = self.source.read_to_vec(self.offset, count as usize)?;
            (self.offset, self.unread_bytes, self.used) = (self.offset + count, self.unread_bytes - count, 0);
        }
        Ok(())
    }

    /// Inflates some bytes by `decompress`, which is given the next input, and returns their number.
    fn step(
        &mut self,
        decompress: impl FnOnce(&mut Decompress, &[u8]) -> std::result::Result<Status, DecompressError>,
    ) -> Result<usize> {
        self.refill()?;
        let (before_in, before_out) = (self.state.total_in(), self.state.total_out());
        let status = decompress(&mut self.state, &self.input[self.used..]);
        let status =
            status.map_err(|error| invalid_file(format!("a compressed member is corrupt: {error}")))?;
        let consumed = (self.state.total_in() - before_in) as usize;
        let produced = (self.state.total_out() - before_out) as usize;
        self.used += consumed;
        self.is_finished = status == Status::StreamEnd;
        if consumed == 0 && produced == 0 && !self.is_finished {
            return Err(invalid_file("a compressed member is truncated"));
        }
        Ok(produced)
    }

    /// Fills all of `out`.
    pub(crate) fn read_exact_uninit(&mut self, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        let mut done = 0;
        while done < out.len() {
            self.check_unfinished()?;
            let rest = &mut out[done..];
            let produced =
                self.step(|state, input| state.decompress_uninit(input, &mut *rest, FlushDecompress::None))?;
            let filled = &rest[..produced];
            // SAFETY: `decompress_uninit` initialises the bytes by which it increases `total_out`, whose number is
            // `produced`; the slice of that length lies within `rest`. Initialised bytes have the layout of `u8`.
            let bytes = unsafe { std::slice::from_raw_parts(filled.as_ptr().cast::<u8>(), filled.len()) };
            self.hasher.update(bytes);
            done += produced;
        }
        Ok(())
    }

    fn check_unfinished(&self) -> Result<()> {
        if self.is_finished {
            return Err(invalid_file("a compressed member inflates to less than its declared size"));
        }
        Ok(())
    }

    /// Fills all of `out`, which is initialised.
    fn read_exact(&mut self, out: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < out.len() {
            self.check_unfinished()?;
            let rest = &mut out[done..];
            let produced =
                self.step(|state, input| state.decompress(input, &mut *rest, FlushDecompress::None))?;
            self.hasher.update(&rest[..produced]);
            done += produced;
        }
        Ok(())
    }

    /// Checks that the stream ends here and that the checksum matches.
    pub(crate) fn finish(&mut self, crc32: u32) -> Result<()> {
        while !self.is_finished {
            if self.step(|state, input| state.decompress(input, &mut [0], FlushDecompress::None))? > 0 {
                return Err(invalid_file("a compressed member inflates to more than its declared size"));
            }
        }
        if self.unread_bytes > 0 || self.used < self.input.len() {
            return Err(invalid_file("a compressed member has trailing bytes"));
        }
        check_crc32(self.hasher.clone(), crc32)
    }
}

impl io::Read for Inflater {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.read_exact(out).map_err(io::Error::other)?;
        Ok(out.len())
    }
}
