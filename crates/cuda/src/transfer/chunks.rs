//! A transfer cut into parts, each of which fits into a slot of its buffers.

use crate::driver::Address;
use crate::transfer::endpoints::OnGpu;
use tensorferry_core::chunks::Chunks;
use tensorferry_core::{Layout, Result};

/// The parts of a transfer, in the order of the dense tensor on the GPU.
pub(crate) struct Parts {
    pieces: Chunks,
    wire: OnGpu,
    /// Bytes of the largest.
    most: usize,
}

/// One part.
pub(crate) struct Part {
    /// Where it is on the host, from the first element, and its layout there.
    pub(crate) offset: i64,
    pub(crate) host: Layout,
    /// Its layout in the slot.
    pub(crate) dense: Layout,
}

impl Parts {
    /// Of a tensor of this layout on the host, of so many bytes each at most.
    pub(crate) fn new(host: &Layout, wire: OnGpu, bytes: usize) -> Self {
        let pieces = Chunks::new(host, bytes / wire.dtype.size());
        let most = pieces.span(0).1.max(1) * wire.dtype.size();
        Self { pieces, wire, most }
    }

    pub(crate) fn count(&self) -> usize {
        self.pieces.count()
    }

    /// Bytes of the largest, which is the first: they are all alike, but for the last of each loop around them.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// The part of this number.
    pub(crate) fn get(&self, number: usize) -> Result<Part> {
        let piece = self.pieces.get(number)?;
        let dense = Layout::dense(self.wire.dtype.size(), piece.layout.shape())?;
        Ok(Part { offset: piece.offset, host: piece.layout, dense })
    }

    /// Where the parts from one number up to another are on the GPU, and how many bytes they have.
    pub(crate) fn stretch(&self, from: usize, to: usize) -> (Address, usize) {
        let size = self.wire.dtype.size();
        let (begin, _) = self.pieces.span(from);
        let (last, count) = self.pieces.span(to - 1);
        (self.wire.data + (begin * size) as Address, (last + count - begin) * size)
    }

    /// Whether a part fills its slot, so that the next one follows it there as it does on the GPU.
    pub(crate) fn is_full(&self, number: usize) -> bool {
        self.pieces.span(number).1 * self.wire.dtype.size() == self.most
    }
}
