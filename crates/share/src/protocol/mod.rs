//! The protocol between consumer and producer: one request and one reply, in a fixed binary format.
//!
//! All numbers are little-endian. A message is a header (magic `TFSH`, version u16, kind u16, length of the body u32)
//! and a body.
//!
//! - Request: id (16 bytes), secret (16 bytes).
//! - Reply that rejects: status 1 (u8), reason (u8), length of the text (u16), text.
//! - Reply that delivers: status 0 (u8), access (u8, 0 read-only, 1 read-write), then
//!   - number of GPUs (u32); for each its UUID (16 bytes), whether an event follows (u8), and the event handle (64
//!     bytes);
//!   - number of memories (u32); for each its kind (u8: 0 host, 1 GPU with a descriptor, 2 GPU with a legacy handle)
//!     and length (u64), on a GPU also the index of the GPU (u32) and the id of the allocation (16 bytes), and for
//!     kind 2 the legacy handle (64 bytes);
//!   - number of tensors (u32); for each its memory (u32), the offset of its first element (u64), the type code and
//!     bits of DLPack (u8, u8), rank (u16), shape and strides in bytes (i64 each);
//!   - length of the tree structure (u32), tree structure.
//!
//! The descriptors of all memories except legacy ones are sent with the bytes of the reply, in the order of the
//! memories.
//!
//! The peer is not trusted. Every number is compared with its limit and with the bytes that are left before anything is
//! allocated for it, and every element of every tensor must be inside its memory. Each message has exactly one
//! encoding: what decodes also encodes to the same bytes.

mod delivery;
mod descriptions;
mod header;
mod limits;
mod reader;
mod reply;
mod request;
mod tree_structure;

pub use delivery::Delivery;
pub use descriptions::{
    ExportDescription, GpuDescription, MemoryDescription, MemoryLocation, TensorDescription,
};
pub use header::{FrameKind, HEADER_BYTES, read_header};
pub use limits::{
    MAX_BODY_BYTES, MAX_DIMENSIONS, MAX_GPUS, MAX_MEMORIES, MAX_STRUCTURE_BYTES, MAX_TENSORS, MAX_TREE_DEPTH,
};
pub use reply::{RejectReason, Reply};
pub use request::{AttachRequest, REQUEST_BYTES};
pub use tree_structure::TreeStructure;
