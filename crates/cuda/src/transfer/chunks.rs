//! The chunks of a transfer, each of which fits into one slot of the ring buffer.

use super::endpoints::GpuEndpoint;
use crate::driver::handles::Address;
use tensorferry_core::chunks::Chunks;
use tensorferry_core::{Layout, Result};

/// All chunks of a transfer, in the order of the dense tensor on the GPU.
pub(crate) struct TransferChunks {
    chunks: Chunks,
    gpu: GpuEndpoint,
    max_bytes: usize,
}

/// One chunk.
pub(crate) struct TransferChunk {
    /// Bytes from the first element on the host to the chunk's first element.
    pub(crate) offset: i64,
    /// The layout on the host.
    pub(crate) host: Layout,
    /// The layout in the slot.
    pub(crate) dense: Layout,
}

impl TransferChunks {
    /// Splits a tensor with this layout on the host into chunks of at most `bytes`.
    pub(crate) fn new(host: &Layout, gpu: GpuEndpoint, bytes: usize) -> Self {
        let chunks = Chunks::new(host, bytes / gpu.dtype.size());
        let max_bytes = chunks.span(0).1.max(1) * gpu.dtype.size();
        Self { chunks, gpu, max_bytes }
    }

    pub(crate) fn count(&self) -> usize {
        self.chunks.count()
    }

    /// Bytes of the largest chunk, which is the first: only the last chunk of each surrounding loop is smaller.
    pub(crate) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    pub(crate) fn get(&self, index: usize) -> Result<TransferChunk> {
        let chunk = self.chunks.get(index)?;
        let dense = Layout::dense(self.gpu.dtype.size(), chunk.layout.shape())?;
        Ok(TransferChunk { offset: chunk.offset, host: chunk.layout, dense })
    }

    /// The address on the GPU and the bytes of the chunks `begin..end`.
    pub(crate) fn gpu_range(&self, begin: usize, end: usize) -> (Address, usize) {
        let size = self.gpu.dtype.size();
        let (first, _) = self.chunks.span(begin);
        let (last, count) = self.chunks.span(end - 1);
        (self.gpu.data + (first * size) as Address, (last + count - first) * size)
    }

    /// Whether a chunk fills its slot, so that the next chunk is adjacent in the ring as it is on the GPU.
    pub(crate) fn fills_slot(&self, index: usize) -> bool {
        self.chunks.span(index).1 * self.gpu.dtype.size() == self.max_bytes
    }
}
