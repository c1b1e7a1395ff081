//! Bytes between a GPU and the host, and between GPUs.

use crate::driver::Address;
use crate::gpu::Gpu;
use crate::stream::{Side, Stream};
use tensorferry_core::Result;

impl Gpu {
    /// Copies bytes to the host, after what is queued on the stream, and waits for them.
    ///
    /// # Errors
    /// When the device fails, or an earlier kernel has.
    ///
    /// # Safety
    /// So many bytes are readable on this GPU and writable on the host; the stream is alive, and of this GPU.
    pub unsafe fn download(&self, from: *const u8, to: *mut u8, bytes: usize, stream: Stream) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: the caller's contract; both live until the wait is over.
        unsafe {
            let queued = self.driver.download(to.cast(), from as Address, bytes, stream.raw());
            // Whatever was queued before a failure must not write to memory that is given back.
            self.wait(Side::Stream(stream)).and(queued)
        }
    }

    /// Copies bytes from the host, after what is queued on the stream, and waits for them.
    ///
    /// # Errors
    /// When the device fails, or an earlier kernel has.
    ///
    /// # Safety
    /// So many bytes are readable on the host and writable on this GPU; the stream is alive, and of this GPU.
    pub unsafe fn upload(&self, from: *const u8, to: *mut u8, bytes: usize, stream: Stream) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: the caller's contract; both live until the wait is over.
        unsafe {
            let queued = self.driver.upload(to as Address, from.cast(), bytes, stream.raw());
            self.wait(Side::Stream(stream)).and(queued)
        }
    }

    /// Queues a copy of bytes from this GPU to another, or to itself.
    ///
    /// # Errors
    /// When a device fails.
    ///
    /// # Safety
    /// So many bytes are readable here and writable there, and live until the stream, one of this GPU, is past the copy.
    pub unsafe fn copy_to(
        &self,
        other: &Gpu,
        from: *const u8,
        to: *mut u8,
        bytes: usize,
        stream: Stream,
    ) -> Result<()> {
        let _entered = self.enter()?;
        let (from, to) = (from as Address, to as Address);
        // SAFETY: the caller's contract.
        unsafe { self.driver.copy_to_peer(to, other.context, from, self.context, bytes, stream.raw()) }
    }
}
