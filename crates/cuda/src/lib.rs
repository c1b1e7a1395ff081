//! CUDA for tensorferry: the driver, loaded at run time, and what tensors need of it.
//!
//! Three floors. [`driver`] finds the driver's functions and turns statuses into results. [`Gpu`], [`Stream`] and
//! [`DeviceBlock`] own what they stand for. On them stand the order of work ([`Gpu::order`]), copies within a GPU
//! ([`Gpu::convert`]) and transfers.
//!
//! Everything happens in primary contexts, which the frameworks use too; a context is current only for the time of a
//! call.

mod abi;
mod convert;
pub mod driver;
mod gpu;
pub mod ipc;
mod jobs;
mod kernels;
mod memory;
mod status;
mod stream;
mod stream_pool;
mod transfer;

pub use convert::DeviceSource;
pub use driver::Driver;
pub use gpu::Gpu;
pub use memory::{DeviceBlock, device_of_address, out_of_memory};
pub use stream::{Stream, SyncPoint};
pub use transfer::{
    DownloadBuffer, HostDestination, RingOptions, SMALL_UPLOAD_BYTES, STAGING_THRESHOLD_BYTES, TransferBatch,
    TransferControl, TransferPath, choose_download_buffer, is_pinned,
};
