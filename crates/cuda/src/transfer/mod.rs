//! Tensors between a GPU and the host.

mod batch;
mod chunks;
mod control;
mod download;
mod endpoints;
mod pinned;
mod ring_buffer;
mod scheduler;
mod staging;

pub use batch::TransferBatch;
pub use control::TransferControl;
pub use download::{HostDestination, SMALL_UPLOAD_BYTES, STAGING_THRESHOLD_BYTES, TransferPath};
pub use pinned::{DownloadBuffer, choose_download_buffer, is_pinned};
pub use ring_buffer::RingOptions;
