//! Inflates a deflated zip member directly into the caller's buffer.
//!
//! The caller requests exactly the bytes that the member declares, so no more is ever inflated. [`Inflater::finish`] then
//! checks that the stream ends, that its input is used up, and that the CRC-32 matches.

use super::checksum::check_crc32;
use super::file_source::FileSource;
use crate::errors::invalid_file;
use flate2::{Decompress, FlushDecompress, Status};
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

    /// Inflates some bytes into `out` and returns their number.
    fn step(&mut self, out: &mut [MaybeUninit<u8>]) -> Result<usize> {
        self.refill()?;
        let (before_in, before_out) = (self.state.total_in(), self.state.total_out());
        let status = self.state.decompress_uninit(&self.input[self.used..], out, FlushDecompress::None);
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
            if self.is_finished {
                return Err(invalid_file("a compressed member inflates to less than its declared size"));
            }
            let produced = self.step(&mut out[done..])?;
            // SAFETY: the decoder has written the bytes that it reports as produced.
            let bytes = unsafe { std::slice::from_raw_parts(out[done..].as_ptr().cast::<u8>(), produced) };
            self.hasher.update(bytes);
            done += produced;
        }
        Ok(())
    }

    /// Checks that the stream ends here and that the checksum matches.
    pub(crate) fn finish(&mut self, crc32: u32) -> Result<()> {
        while !self.is_finished {
            if self.step(&mut [MaybeUninit::uninit()])? > 0 {
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
        let count = out.len();
        // SAFETY: initialised bytes are bytes that may be uninitialised, and `read_exact_uninit` writes only bytes that are
        // initialised.
        let out = unsafe { &mut *(&raw mut *out as *mut [MaybeUninit<u8>]) };
        self.read_exact_uninit(out).map_err(io::Error::other)?;
        Ok(count)
    }
}
