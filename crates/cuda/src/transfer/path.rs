//! Transfer paths, the sizes at which one path becomes faster than another, and the destination of a download.

use super::options::RingOptions;
use super::pinned::is_pinned;
use crate::gpu::Gpu;
use tensorferry_core::{DType, Layout};

/// Smaller downloads are fastest as one copy by the driver.
pub(crate) const SMALL_DOWNLOAD_BYTES: usize = 512 << 10;
/// Smaller uploads pass through a staging buffer, larger ones through a ring buffer. It is the size of a huge page.
pub const SMALL_UPLOAD_BYTES: usize = 2 << 20;
/// Smaller uploads are fastest as one copy by the driver.
pub const STAGING_THRESHOLD_BYTES: usize = 384 << 10;

/// How bytes cross between a GPU and the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferPath {
    /// One copy by the driver, which stages pageable memory itself.
    Driver,
    /// A copy by the GPU into or from pinned memory.
    Pinned,
    /// As `Pinned`, into memory of an earlier result, from which queued copies may still read.
    Recycled,
    /// In chunks through a ring buffer of pinned memory, on several threads.
    Ring(RingOptions),
}

/// Host memory that a download fills.
#[derive(Clone, Copy)]
pub struct HostDestination<'a> {
    /// The first element.
    pub data: *mut u8,
    /// Element type.
    pub dtype: DType,
    /// Shape and strides.
    pub layout: &'a Layout,
}

impl Gpu {
    /// The transfer path into or out of memory that the caller provides.
    pub fn transfer_path(&'static self, data: *const u8, bytes: usize, ring: RingOptions) -> TransferPath {
        match bytes {
            0..SMALL_DOWNLOAD_BYTES => TransferPath::Driver,
            _ if is_pinned(data, bytes) => TransferPath::Pinned,
            _ => TransferPath::Ring(ring),
        }
    }
}
