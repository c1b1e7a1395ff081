//! Host memory that we made: aligned for every framework, freed by its own drop.

use crate::error::{Error, ErrorKind, Result};
use std::alloc::{self, Layout as AllocLayout};
use std::ptr::NonNull;

/// The alignment of every block, in bytes: TensorFlow and JAX use memory in place only from here on.
pub const ALIGNMENT: usize = 64;

/// An uninitialised block of host memory that this process owns.
#[derive(Debug)]
pub struct HostBlock {
    data: NonNull<u8>,
    layout: AllocLayout,
}

// SAFETY: the block is plain memory with one owner; the global allocator frees it from any thread.
unsafe impl Send for HostBlock {}

impl HostBlock {
    /// A block of `bytes` bytes, not initialised.
    ///
    /// # Errors
    /// When the system has no such memory.
    pub fn new(bytes: usize) -> Result<Self> {
        let out_of_memory = || {
            Error::new(ErrorKind::OutOfMemory, format!("no memory for {bytes} bytes on the host"))
                .with_hint("free something first, or convert a slice at a time")
        };
        // One byte at the least: a zero-sized tensor still gets an address of its own.
        let layout = AllocLayout::from_size_align(bytes.max(1), ALIGNMENT).map_err(|_| out_of_memory())?;
        // SAFETY: the size is not zero.
        let data = unsafe { alloc::alloc(layout) };
        let data = NonNull::new(data).ok_or_else(out_of_memory)?;
        Ok(Self { data, layout })
    }

    /// Where the block starts.
    pub fn data(&self) -> *mut u8 {
        self.data.as_ptr()
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and dropped once.
        unsafe { alloc::dealloc(self.data.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_even_when_empty() {
        for bytes in [0, 1, 63, 64, 1 << 20] {
            let block = HostBlock::new(bytes).unwrap();
            assert_eq!(block.data() as usize % ALIGNMENT, 0);
        }
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        assert_eq!(HostBlock::new(usize::MAX).unwrap_err().kind(), ErrorKind::OutOfMemory);
        // Miri ends the program instead of refusing.
        if !cfg!(miri) {
            let size = isize::MAX as usize - 4096;
            assert_eq!(HostBlock::new(size).unwrap_err().kind(), ErrorKind::OutOfMemory);
        }
    }
}
