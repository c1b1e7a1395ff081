//! Tensors between Rust, DLPack, files, processes and GPUs, without a copy when that is possible.

mod access;
mod advice;
mod convert;
pub mod dlpack;
mod element;
mod error;
mod memory;
#[cfg(feature = "share")]
pub mod share;
mod tensor;

pub use element::Element;
pub use error::{Error, ErrorKind, Result};
pub use tensor::Tensor;
pub use tensorferry_core::device::DeviceKind;
pub use tensorferry_core::dtype::DTypeKind;
pub use tensorferry_core::{DType, Device};
