//! A deflated member of a zip, inflated piece by piece straight to where it goes.
//!
//! How much comes out is decided before: the caller asks for as many bytes as the member has declared, and what would be
//! more is never inflated. At the end the stream must end too, its input must be used up, and the checksum must be right.

use crate::fault::bad;
use crate::source::FileSource;
use flate2::{Decompress, FlushDecompress, Status};
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use tensorferry_core::Result;

/// Compressed bytes that are read at a time.
const INPUT: u64 = 64 << 10;

/// The state of one member.
pub(crate) struct Inflate {
    source: Arc<FileSource>,
    /// The compressed bytes that are still in the file.
    offset: u64,
    left: u64,
    input: Vec<u8>,
    used: usize,
    state: Decompress,
    ended: bool,
    hasher: crc32fast::Hasher,
}

impl Inflate {
    pub(crate) fn new(source: Arc<FileSource>, offset: u64, compressed: u64) -> Self {
        Self {
            source,
            offset,
            left: compressed,
            input: Vec::new(),
            used: 0,
            state: Decompress::new(false),
            ended: false,
            hasher: crc32fast::Hasher::new(),
        }
    }

    fn refill(&mut self) -> Result<()> {
        if self.used == self.input.len() && self.left > 0 {
            let count = self.left.min(INPUT);
            self.input = self.source.bytes(self.offset, count as usize)?;
            (self.offset, self.left, self.used) = (self.offset + count, self.left - count, 0);
        }
        Ok(())
    }

    /// One step: how many bytes came out.
    fn step(&mut self, out: &mut [MaybeUninit<u8>]) -> Result<usize> {
        self.refill()?;
        let (before_in, before_out) = (self.state.total_in(), self.state.total_out());
        let status = self.state.decompress_uninit(&self.input[self.used..], out, FlushDecompress::None);
        let status = status.map_err(|error| bad(format!("a compressed member is broken: {error}")))?;
        let taken = (self.state.total_in() - before_in) as usize;
        let made = (self.state.total_out() - before_out) as usize;
        self.used += taken;
        self.ended = status == Status::StreamEnd;
        if taken == 0 && made == 0 && !self.ended {
            return Err(bad("a compressed member ends before its data does"));
        }
        Ok(made)
    }

    /// Fills all of `out`.
    pub(crate) fn fill(&mut self, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        let mut done = 0;
        while done < out.len() {
            if self.ended {
                return Err(bad("a compressed member holds less than it declares"));
            }
            let made = self.step(&mut out[done..])?;
            // SAFETY: the bytes that the decoder says it made are written.
            let bytes = unsafe { std::slice::from_raw_parts(out[done..].as_ptr().cast::<u8>(), made) };
            self.hasher.update(bytes);
            done += made;
        }
        Ok(())
    }

    /// Checks that nothing is left, and the checksum.
    pub(crate) fn finish(&mut self, crc: u32) -> Result<()> {
        while !self.ended {
            if self.step(&mut [MaybeUninit::uninit()])? > 0 {
                return Err(bad("a compressed member holds more than it declares"));
            }
        }
        if self.left > 0 || self.used < self.input.len() {
            return Err(bad("a compressed member has bytes behind its end"));
        }
        check(self.hasher.clone(), crc)
    }
}

/// Compares a checksum.
pub(crate) fn check(found: crc32fast::Hasher, crc: u32) -> Result<()> {
    if found.finalize() != crc {
        return Err(bad("the checksum of its bytes is not the one that it declares")
            .with_advice("fetch it again: it is damaged"));
    }
    Ok(())
}

impl io::Read for Inflate {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = out.len();
        // SAFETY: initialised bytes are bytes that may be uninitialised, and `fill` writes only bytes that are initialised.
        let out = unsafe { &mut *(&raw mut *out as *mut [MaybeUninit<u8>]) };
        self.fill(out).map_err(io::Error::other)?;
        Ok(count)
    }
}
