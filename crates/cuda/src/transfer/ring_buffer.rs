//! The ring buffer of a chunked transfer: one pinned block of the host pool, and a stream.
//!
//! The block returns to the pool after each transfer. One block serves all threads: with a block for each thread, every
//! thread would wait for the driver, which takes most of a millisecond to pin any block.

use super::options::RingOptions;
use super::pinned::{self, PrefaultJob};
use crate::gpu::Gpu;
use crate::hints;
use crate::stream_pool::PooledStream;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};
use tensorferry_core::pool::{BlockUse, PoolBlock, has_idle};
use tensorferry_core::{Error, ErrorKind, Result, workers};

/// Pinned memory and a stream for one transfer.
pub(crate) struct RingBuffer {
    /// The options for this transfer's size.
    pub(crate) options: RingOptions,
    pub(crate) block: PoolBlock,
    pub(crate) stream: PooledStream,
}

impl RingBuffer {
    /// A ring buffer for a transfer of this size, in an entered context. `None` where the driver cannot pin memory, which
    /// some systems forbid.
    ///
    /// # Errors
    /// If the host is out of memory, or the device fails.
    pub(crate) fn take(gpu: &'static Gpu, options: RingOptions, bytes: usize) -> Result<Option<Self>> {
        let options = options.for_transfer(bytes);
        let size = options.ring_bytes();
        if let Some(block) = PoolBlock::idle(size, BlockUse::Staging) {
            return Ok(Some(Self { options, block, stream: gpu.take_stream()? }));
        }
        let out_of_memory = || {
            Error::new(ErrorKind::OutOfMemory, format!("no memory for {size} bytes of buffers on the host"))
                .with_hint(hints::REDUCE_BUFFERS)
        };
        let mut block = PoolBlock::new(size).ok_or_else(out_of_memory)?;
        pinned::prefault(&mut block, options.threads);
        if pinned::pin(gpu, &mut block, BlockUse::Staging).is_err() {
            return Ok(None);
        }
        Ok(Some(Self { options, block, stream: gpu.take_stream()? }))
    }

    /// Pins the block of a later transfer into fresh memory. While the driver pins, other threads prefault that memory, whose
    /// content is lost.
    pub(crate) fn prepare(gpu: &'static Gpu, fresh: &mut [MaybeUninit<u8>], options: RingOptions) {
        let options = options.for_transfer(fresh.len());
        let size = options.ring_bytes();
        if has_idle(size, BlockUse::Staging) {
            return;
        }
        let Some(mut block) = PoolBlock::new(size) else { return };
        pinned::prefault(&mut block, options.threads);
        let prefault = PrefaultJob::new(fresh);
        let block_to_pin = Mutex::new(Some(&mut block));
        workers::run_parallel(options.threads, || {
            let taken = block_to_pin.lock().unwrap_or_else(PoisonError::into_inner).take();
            match taken {
                Some(block) => {
                    // If this fails, the transfer finds no pinned block and takes another path.
                    let _ = pinned::pin(gpu, block, BlockUse::Staging);
                    prefault.stop();
                }
                None => prefault.run(),
            }
        });
    }
}
