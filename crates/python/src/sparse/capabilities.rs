//! What each framework accepts as a sparse tensor.
//!
//! SciPy and CuPy hold only the types that their compiled functions were made for. PyTorch's kernels misread transposed coordinates,
//! and its compressed formats are checked for order. JAX's indices are int32 while 64-bit types are off. TensorFlow's operations
//! count on order and check it seldom.

use crate::conversion::kinds::Builtin;
use crate::errors::Result;
use crate::frameworks::Target;
use crate::frameworks::register::{self, Entry};
use pyo3::prelude::*;
use tensorferry_core::plan::sparse::{CoordinateLayout, FormatCapabilities, SparseFormat, SparseTarget};
use tensorferry_core::{DType, dtype::DTypes};

const NARROW: &[DType] = &[DType::Int32];
const WIDE: &[DType] = &[DType::Int64];
const BOTH: &[DType] = &[DType::Int32, DType::Int64];

const SCIPY_DTYPES: DTypes = DTypes::of(&[
    DType::Bool,
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
    DType::Float32,
    DType::Float64,
    DType::Complex64,
    DType::Complex128,
]);
const CUPY_DTYPES: DTypes =
    DTypes::of(&[DType::Bool, DType::Float32, DType::Float64, DType::Complex64, DType::Complex128]);

const fn scipy(format: SparseFormat) -> FormatCapabilities {
    FormatCapabilities { strided: true, dtypes: Some(SCIPY_DTYPES), ..FormatCapabilities::any(format, BOTH) }
}

const fn cupy(format: SparseFormat) -> FormatCapabilities {
    FormatCapabilities { axes: (2, 2), dtypes: Some(CUPY_DTYPES), ..FormatCapabilities::any(format, NARROW) }
}

const fn torch(format: SparseFormat) -> FormatCapabilities {
    FormatCapabilities {
        in_order: true,
        unique: true,
        dense_axes: true,
        batch_axes: true,
        reason: "PyTorch's compressed formats have each place once, in order",
        ..FormatCapabilities::any(format, BOTH)
    }
}

const fn jax(format: SparseFormat, is_wide: bool) -> FormatCapabilities {
    FormatCapabilities {
        layout: CoordinateLayout::Points,
        dense_axes: true,
        batch_axes: true,
        index_reason: if is_wide { "" } else { "64-bit types are off" },
        ..FormatCapabilities::any(format, if is_wide { BOTH } else { NARROW })
    }
}

static SCIPY: [FormatCapabilities; 4] =
    [scipy(SparseFormat::Coo), scipy(SparseFormat::Csr), scipy(SparseFormat::Csc), scipy(SparseFormat::Bsr)];
static CUPY: [FormatCapabilities; 3] =
    [cupy(SparseFormat::Coo), cupy(SparseFormat::Csr), cupy(SparseFormat::Csc)];
static TORCH: [FormatCapabilities; 4] = [
    FormatCapabilities {
        layout: CoordinateLayout::Axes,
        dense_axes: true,
        ..FormatCapabilities::any(SparseFormat::Coo, WIDE)
    },
    torch(SparseFormat::Csr),
    torch(SparseFormat::Csc),
    torch(SparseFormat::Bsr),
];
static JAX_NARROW: [FormatCapabilities; 2] = [jax(SparseFormat::Coo, false), jax(SparseFormat::Csr, false)];
static JAX_WIDE: [FormatCapabilities; 2] = [jax(SparseFormat::Coo, true), jax(SparseFormat::Csr, true)];
static TENSORFLOW: [FormatCapabilities; 1] = [FormatCapabilities {
    layout: CoordinateLayout::Points,
    in_order: true,
    unique: true,
    reason: "TensorFlow's operations count on each place once, in order",
    ..FormatCapabilities::any(SparseFormat::Coo, WIDE)
}];
static PYDATA: [FormatCapabilities; 1] = [FormatCapabilities {
    layout: CoordinateLayout::Axes,
    in_order: true,
    unique: true,
    dtypes: Some(SCIPY_DTYPES),
    reason: "sparse.COO keeps each place once, in order",
    ..FormatCapabilities::any(SparseFormat::Coo, BOTH)
}];

/// The framework whose dense arrays the sparse tensors of a framework are made of.
pub(super) fn arrays_of(entry: &Entry) -> Target {
    Target::Builtin(entry.dense.unwrap_or(Builtin::Numpy).framework())
}

/// What a framework accepts right now.
pub(super) fn target_of(py: Python<'_>, entry: &'static Entry) -> Result<SparseTarget> {
    let formats: &'static [FormatCapabilities] = match entry.dense {
        Some(Builtin::Torch) => &TORCH,
        Some(Builtin::CuPy) => &CUPY,
        Some(Builtin::Jax) if arrays_of(entry).facts(py)?.keeps_64_bit => &JAX_WIDE,
        Some(Builtin::Jax) => &JAX_NARROW,
        Some(Builtin::TensorFlow) => &TENSORFLOW,
        None if entry.name == "scipy" => &SCIPY,
        None => &PYDATA,
        Some(_) => &[],
    };
    Ok(SparseTarget {
        framework: entry.name,
        title: entry.title,
        formats,
        has_matrices: entry.name == "scipy",
    })
}

/// The frameworks that hold sparse tensors.
pub(super) fn names() -> Vec<&'static str> {
    register::REGISTER.iter().filter(|entry| entry.has_sparse).map(|entry| entry.name).collect()
}
