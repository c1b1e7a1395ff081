//! Tensors between Rust, DLPack, files, processes and GPUs, without a copy when that is possible.

mod access;
mod advice;
#[cfg(feature = "arrow")]
pub mod arrow;
mod convert;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod dlpack;
mod element;
mod error;
#[cfg(feature = "files")]
pub mod files;
mod memory;
#[cfg(feature = "ndarray")]
mod ndarray;
mod plan;
#[cfg(feature = "share")]
pub mod share;
mod tensor;

pub use element::Element;
pub use error::{Error, ErrorKind, Result};
pub use plan::{ConvertOptions, Plan};
pub use tensor::Tensor;
pub use tensorferry_core::device::DeviceKind;
pub use tensorferry_core::dtype::DTypeKind;
pub use tensorferry_core::{ByteOrder, DType, Device};

/// Runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
