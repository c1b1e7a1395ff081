//! Tensors between Rust, DLPack, files, Arrow, GPUs and processes, without a copy when that is possible.
//!
//! The crate is for Rust programs what the Python package `tensorferry` is for Python: one tensor type over memory of any
//! origin, and conversions that say what they do.
//!
//! ```
//! use tensorferry::{ConvertOptions, DType, Tensor};
//!
//! let weights = Tensor::from_vec(vec![0.1f32, 0.2, 0.3, 0.4, 0.5, 0.6], &[2, 3])?;
//! let options = ConvertOptions::new().dtype(DType::BFloat16);
//! println!("{}", weights.plan(&options)?);
//! let small = weights.convert(&options)?;
//! assert_eq!((small.shape(), small.bytes()), (&[2, 3][..], 12));
//! # Ok::<(), tensorferry::Error>(())
//! ```
//!
//! # Soundness
//!
//! Safe code never reads memory that something else may change, and never writes memory that something else may read:
//!
//! - Reading a file into memory is safe. Mapping a file is `unsafe` (`files::FileEntry::map`), as in `memmap2`: the caller
//!   promises that nobody writes or truncates the file while the tensor lives.
//! - Importing from DLPack or Arrow is `unsafe` ([`Tensor::from_dlpack`], `Tensor::from_arrow`): the caller promises that the structs are
//!   valid, and that the producer does not write the memory.
//! - A clone or a view is another handle on the same memory. Writing needs the only handle, borrowed mutably. A consumer of an
//!   export counts as a handle until it calls the deleter.
//! - Another process may write memory that it shares as writable, at any time. Attached memory is copied
//!   (`share::AttachedTensor::to_host`), or used in place by `unsafe` functions (`share::AttachedTensor::share` and `share_mut`): the
//!   caller promises that nothing writes it. To publish memory for reading is safe: it has a further handle until the last lease ends.
//!   To publish it for writing is `unsafe`.
//! - A `bool` of a tensor is any byte. It becomes a Rust `bool` after a check.
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `files` | the module `files`: safetensors, npy, npz, TensorProto and raw bytes | yes |
//! | `cuda` | `Tensor::to_gpu` and `Tensor::to_host`; the driver is loaded at run time | no |
//! | `arrow` | `Tensor::from_arrow` and `Tensor::into_arrow`, by the Arrow C data interface | no |
//! | `share` | the module `share`: tensors in other processes of the same user, Rust or Python, in the same memory | no |
//! | `ndarray` | `Tensor::as_ndarray`, `Tensor::as_ndarray_mut` and `Tensor::from_ndarray` | no |
//!
//! Only `files` is a default, because most programs begin with a file, and its dependencies are small. Matrices of faer and
//! tensors of candle have crates of their own, `tensorferry-faer` and `tensorferry-candle`.
//!
//! # Memory of dropped tensors
//!
//! Blocks of 4 MiB or more are kept for the next tensor of about the same size, up to an eighth of the memory of the machine or the
//! container. [`empty_cache`] returns the memory to the system.
//!
//! # Errors
//!
//! Every fallible function returns an [`Error`] with a kind, a fact in one line, and a hint that says what to do.

mod access;
mod advice;
#[cfg(feature = "ndarray")]
mod array_view;
#[cfg(feature = "arrow")]
pub mod arrow;
mod cache;
mod convert;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod dlpack;
mod element;
mod error;
#[cfg(feature = "files")]
pub mod files;
mod memory;
mod plan;
#[cfg(feature = "share")]
pub mod share;
mod tensor;

/// The crate of the types `f16` and `bf16`, in the version of [`Element`].
pub use half;
/// The crate of the arrays, in the version of `Tensor::as_ndarray`.
#[cfg(feature = "ndarray")]
pub use ndarray;

pub use cache::empty_cache;
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
mod readme {}

/// The code of the guide, as tests. `guide.md` is a link, behind which cargo packages the file; a path out of the package would not
/// compile there. The code uses these features.
#[cfg(all(doctest, feature = "cuda", feature = "files", feature = "ndarray", feature = "share"))]
#[doc = include_str!("../guide.md")]
mod guide {}
