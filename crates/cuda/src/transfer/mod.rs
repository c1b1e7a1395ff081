//! Transfers of tensors between a GPU and the host.
//!
//! - [`Gpu::download`](crate::Gpu::download) and [`Gpu::upload`](crate::Gpu::upload) accept any layout and type on either side, and
//!   move each element over the link once.
//! - Both wait for the bytes, except that a [`TransferBatch`] waits for its small uploads at its end. When they return,
//!   nothing that was queued uses the caller's host memory, even after an error.
//!
//! The bytes cross on one of these paths ([`TransferPath`]):
//!
//! | bytes | path |
//! |---|---|
//! | few | one copy by the driver; uploads that are not tiny pass through a staging buffer (`staging`) |
//! | many, pinned host memory | one copy by the GPU (`download`, `upload`) |
//! | many, other host memory | in chunks through a ring buffer of pinned memory, on several threads (`chunked`) |
//!
//! A scheduler (`scheduler`) shares the chunks of a transfer between the threads and the GPU. [`TransferControl`] reports
//! progress and cancels.

mod batch;
mod chunked;
mod chunks;
mod control;
mod download;
mod download_buffer;
mod endpoints;
mod options;
mod parallel_fill;
mod path;
mod pinned;
mod ring_buffer;
mod scheduler;
mod slabs;
mod staging;
mod upload;

pub use batch::TransferBatch;
pub use control::TransferControl;
pub use download_buffer::{DownloadBuffer, choose_download_buffer};
pub use options::RingOptions;
pub use path::{HostDestination, SMALL_UPLOAD_BYTES, STAGING_THRESHOLD_BYTES, TransferPath};
pub use pinned::is_pinned;
