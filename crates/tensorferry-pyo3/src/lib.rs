//! Tensors of every framework as arguments of [PyO3](pyo3) functions.
//!
//! An extension module that uses this crate accepts tensors of NumPy, PyTorch, JAX, TensorFlow, Paddle, MLX and CuPy, and everything
//! else that tensorferry reads. It sees them as arrays of [`ndarray`], and returns results to the caller's framework:
//!
//! ```no_run
//! use ndarray::Axis;
//! use pyo3::prelude::*;
//! use tensorferry_pyo3::{Ix2, TensorView};
//!
//! #[pyfunction]
//! fn normalise<'py>(x: TensorView<'py, f32, Ix2>, eps: f32) -> PyResult<Bound<'py, PyAny>> {  // any framework, no unsafe
//!     let a = x.as_ndarray();
//!     let norm = a.map_axis(Axis(1), |row| row.dot(&row).sqrt() + eps);
//!     x.wrap_like(&a / &norm.insert_axis(Axis(1)))                                           // torch in, torch out; JAX in, JAX out
//! }
//! ```
//!
//! | type | argument |
//! |---|---|
//! | [`TensorView`] | a host tensor of one dtype, for reading |
//! | [`TensorViewMut`] | a host tensor of one dtype, for writing in place |
//! | [`AnyTensor`] | a tensor of any dtype and device, which the function inspects |
//!
//! [`wrap()`] and the `wrap_like` methods return arrays as tensors.
//!
//! # Requirements
//!
//! The Python package `tensorferry` is a dependency of the extension at run time: `pip install tensorferry`. The crate calls its C
//! table (`tensorferry.h`), which it imports with the first tensor. An `ImportError` with a hint says that the package is
//! missing or too old. The crate has no code for any framework, so an extension need not be rebuilt for a new one.
//!
//! The crate works with the limited API: an extension chooses the features of `pyo3`, such as `abi3-py311`.
//!
//! # What other code can still do
//!
//! Rust code assumes that nothing writes memory behind a `&[f32]`, and that nothing reads or writes it behind a `&mut [f32]`. All
//! views of this crate, and all extensions that use tensorferry's table of borrows, keep that rule among themselves: a conflict
//! raises `BorrowError`. Memory is compared by its addresses, in whichever framework and object it is.
//!
//! Arguments of rust-numpy (`PyReadwriteArray`) are compared too, within the limits of rust-numpy's own table: both sides must
//! have been given arrays of NumPy with one array at the end of their chains of bases. It does not see that a PyTorch tensor, a
//! `memoryview`, or an array that was made from one of these has the same memory, nor views with elements of another size. A module
//! that uses this crate for all of its arguments does not meet these limits.
//!
//! Code without borrows does not know of the rule, as in rust-numpy:
//!
//! - **Python code.** While a view exists, Python code of the same thread (a callback that the function calls, or the extraction of
//!   a later argument) can write to the tensor. So can Python code of other threads whenever the GIL is released: by
//!   [`Python::detach`](pyo3::Python::detach), by a callback, and by [`AnyTensor::cast`] of a large tensor.
//! - **A framework's own threads**, for example a PyTorch operator that another thread has started and that runs without the
//!   GIL.
//! - **Other processes**, where the memory is shared between processes.
//! - **Functions that move or free memory in use**, such as `ndarray.resize(..., refcheck=False)`, `ndarray.__setstate__`, and of
//!   PyTorch `resize_`, `share_memory_` and `untyped_storage().resize_`.
//!
//! A write through one of these is a data race, and undefined behaviour if Rust code uses the array at that moment. For `bool` it is
//! undefined behaviour at the next use too, if the write leaves another byte than 0 or 1: the bytes are checked when the view is
//! made. A function whose callers do such things copies first, with `x.as_ndarray().to_owned()` before it calls Python or releases
//! the GIL, and reads [`BoolByte`] instead of `bool`.
//!
//! PyTorch does not count the writes of a [`TensorViewMut`]: autograd cannot tell that a tensor changed which it has saved, and
//! computes gradients from the new values.
//!
//! # Threads
//!
//! Views are bound to the GIL (`'py`), and stay on their thread. Their arrays ([`ndarray::ArrayView`]) may be used by other threads while
//! the view exists, for example by rayon within [`Python::detach`](pyo3::Python::detach).

mod acquire;
mod any_tensor;
mod element;
mod ndarray_layout;
mod table;
mod view;
mod view_mut;
mod wrap;

pub use any_tensor::AnyTensor;
pub use element::{BoolByte, TensorElement};
pub use view::TensorView;
pub use view_mut::TensorViewMut;
pub use wrap::wrap;

pub use half;
pub use ndarray;
pub use ndarray::{Ix0, Ix1, Ix2, Ix3, Ix4, Ix5, Ix6, IxDyn};
pub use num_complex;
pub use tensorferry_core::device::DeviceKind;
pub use tensorferry_core::dlpack::abi as dlpack;
pub use tensorferry_core::{DType, Device};

/// The code of the guide and of the README, which doctests compile.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../guide.md")]
    struct Guide;
}
