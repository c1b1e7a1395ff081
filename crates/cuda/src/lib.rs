//! CUDA for tensorferry: the driver, loaded at run time, and what tensors need of it.
//!
//! Three floors. [`driver`] finds the driver's functions and turns statuses into results. [`Gpu`], [`Stream`] and
//! [`DeviceBlock`] own what they stand for. On them stand the order of work ([`Gpu::order`]), copies within a GPU
//! ([`Gpu::convert`]) and transfers.
//!
//! Everything happens in primary contexts, which the frameworks use too; a context is current only for the time of a
//! call.

mod batch;
mod convert;
mod desk;
pub mod driver;
mod ends;
mod gpu;
pub mod ipc;
mod jobs;
mod kept;
mod kernels;
mod lanes;
mod memory;
mod parts;
mod pinned;
mod stage;
mod status;
mod stream;
mod transfer;
mod watch;

pub use batch::TransferBatch;
pub use convert::DeviceSource;
pub use driver::Driver;
pub use gpu::Gpu;
pub use lanes::RingOptions;
pub use memory::{DeviceBlock, device_of_address, out_of_memory};
pub use pinned::{DownloadBuffer, choose_download_buffer, is_pinned};
pub use stream::{Stream, SyncPoint};
pub use transfer::{HostDestination, SMALL_UPLOAD_BYTES, STAGING_THRESHOLD_BYTES, TransferPath};
pub use watch::TransferControl;
