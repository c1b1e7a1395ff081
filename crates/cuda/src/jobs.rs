//! What a kernel is told, as it travels to the GPU.
//!
//! Compiled into the host's side, the kernels and the test driver alike, so that all three mean the same bytes.

/// The most dimensions of a gather.
pub(crate) const MOST: usize = 64;

/// A tensor with gaps, and the dense one that it becomes.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Gather {
    pub(crate) from: *const u8,
    pub(crate) to: *mut u8,
    /// How many elements.
    pub(crate) count: u64,
    /// How many of the dimensions below count; the last runs fastest.
    pub(crate) rank: u64,
    pub(crate) lengths: [u64; MOST],
    /// Steps of the source, in bytes.
    pub(crate) steps: [i64; MOST],
}

/// Elements without gaps, and as many of another type that they become.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Dense {
    pub(crate) from: *const u8,
    pub(crate) to: *mut u8,
    pub(crate) count: u64,
}

/// A batch of planes whose rows and columns are exchanged. In the source the rows are dense, in the target the columns.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Planes {
    pub(crate) from: *const u8,
    pub(crate) to: *mut u8,
    /// Of the source: how many rows, and elements in each.
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    /// Bytes from one row of the source to the next, and from one row of the target to the next.
    pub(crate) from_pitch: i64,
    pub(crate) to_pitch: i64,
    /// Bytes from one plane to the next.
    pub(crate) from_plane: i64,
    pub(crate) to_plane: i64,
}
