//! CUDA for tensorferry: the driver, loaded at run time, and the GPU operations that tensors need.
//!
//! The crate has three layers:
//!
//! 1. [`driver`] loads the driver's functions and turns statuses into results.
//! 2. [`Gpu`] owns a primary context with its stream pool, event pool and kernels; [`DeviceBlock`] owns memory.
//! 3. On these build the order of work ([`Gpu::order`]), copies within a GPU ([`Gpu::convert`]), transfers between GPU and
//!    host ([`Gpu::download`], [`Gpu::upload`]), and memory that several processes use ([`ipc`]).
//!
//! All work happens in primary contexts, which the frameworks use too. A context is current only during a call.
//!
//! The interface of this crate changes with any version. Programs use the crate `tensorferry`, whose interface is stable.

mod abi;
mod convert;
pub mod driver;
mod event_pool;
mod gpu;
pub mod hints;
pub mod ipc;
mod jobs;
mod kernels;
mod memory;
mod status;
mod stream;
mod stream_memory;
mod stream_pool;
mod transfer;
mod work_order;

pub use convert::DeviceSource;
pub use driver::Driver;
pub use gpu::Gpu;
pub use memory::{DeviceBlock, device_of_address, out_of_memory};
pub use stream::{Stream, SyncPoint};
pub use stream_memory::{StreamBlock, StreamMemory};
pub use transfer::{
    DownloadBuffer, HostDestination, RingOptions, SMALL_UPLOAD_BYTES, STAGING_THRESHOLD_BYTES, TransferBatch,
    TransferControl, TransferPath, choose_download_buffer, is_pinned,
};
