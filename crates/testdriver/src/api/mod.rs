//! The functions of the CUDA driver.

pub mod device;
pub mod ipc;
pub mod kernel;
pub mod memory;
pub mod pointer;
pub mod pool;
pub mod stream;
pub mod virtual_memory;
