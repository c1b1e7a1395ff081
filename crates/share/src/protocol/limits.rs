//! Limits of a message. A peer that exceeds one breaks the protocol.

/// GPUs in a reply.
pub const MAX_GPUS: usize = 64;
/// Memories in a reply.
pub const MAX_MEMORIES: usize = 4096;
/// Tensors in a reply.
pub const MAX_TENSORS: usize = 1 << 20;
/// Bytes of an encoded tree structure.
pub const MAX_STRUCTURE_BYTES: usize = 16 << 20;
/// Levels of a tree structure. Decoding recurses.
pub const MAX_TREE_DEPTH: usize = 128;
/// Bytes of a body.
pub const MAX_BODY_BYTES: usize = 256 << 20;
/// Dimensions of a tensor; the core accepts as many from DLPack.
pub const MAX_DIMENSIONS: usize = 1024;
/// Bytes of the text of a rejection; longer ones are truncated.
pub(crate) const MAX_REJECTION_TEXT_BYTES: usize = 512;
