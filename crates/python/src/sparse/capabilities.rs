//! Capabilities of each framework for sparse tensors: formats, dtypes, index dtypes, and the order that elements must have.
//!
//! SciPy and CuPy support only the dtypes that their compiled functions have. PyTorch's kernels misread transposed coordinates, and
//! its compressed formats check the order. JAX's indices are int32 while 64-bit types are disabled. TensorFlow's operations rely on
//! sorted elements and rarely check.

use crate::conversion::object_kinds::Builtin;
use crate::errors::Result;
use crate::frameworks::Target;
use crate::frameworks::builtin_frameworks::{self, Entry};
use pyo3::prelude::*;
use tensorferry_core::plan::sparse::{CoordinateLayout, FormatCapabilities, SparseFormat, SparseTarget};
use tensorferry_core::{DType, dtype::DTypes};

const INT32_ONLY: &[DType] = &[DType::Int32];
const INT64_ONLY: &[DType] = &[DType::Int64];
const INT32_OR_INT64: &[DType] = &[DType::Int32, DType::Int64];

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
    FormatCapabilities {
        strided: true,
        dtypes: Some(SCIPY_DTYPES),
        ..FormatCapabilities::any(format, INT32_OR_INT64)
    }
}

const fn cupy(format: SparseFormat) -> FormatCapabilities {
    FormatCapabilities {
        axes: (2, 2),
        dtypes: Some(CUPY_DTYPES),
        ..FormatCapabilities::any(format, INT32_ONLY)
    }
}

const fn torch(format: SparseFormat) -> FormatCapabilities {
    FormatCapabilities {
        in_order: true,
        unique: true,
        dense_axes: true,
        batch_axes: true,
        reason: "PyTorch's compressed formats need sorted, unique indices",
        ..FormatCapabilities::any(format, INT32_OR_INT64)
    }
}

const fn jax(format: SparseFormat, keeps_64_bit: bool) -> FormatCapabilities {
    FormatCapabilities {
        layout: CoordinateLayout::Points,
        dense_axes: true,
        batch_axes: true,
        index_reason: if keeps_64_bit { "" } else { "64-bit types are disabled" },
        ..FormatCapabilities::any(format, if keeps_64_bit { INT32_OR_INT64 } else { INT32_ONLY })
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
        ..FormatCapabilities::any(SparseFormat::Coo, INT64_ONLY)
    },
    torch(SparseFormat::Csr),
    torch(SparseFormat::Csc),
    torch(SparseFormat::Bsr),
];
static JAX_INT32: [FormatCapabilities; 2] = [jax(SparseFormat::Coo, false), jax(SparseFormat::Csr, false)];
static JAX_INT64: [FormatCapabilities; 2] = [jax(SparseFormat::Coo, true), jax(SparseFormat::Csr, true)];
static TENSORFLOW: [FormatCapabilities; 1] = [FormatCapabilities {
    layout: CoordinateLayout::Points,
    in_order: true,
    unique: true,
    reason: "TensorFlow's operations need sorted, unique coordinates",
    ..FormatCapabilities::any(SparseFormat::Coo, INT64_ONLY)
}];
static PYDATA: [FormatCapabilities; 1] = [FormatCapabilities {
    layout: CoordinateLayout::Axes,
    in_order: true,
    unique: true,
    dtypes: Some(SCIPY_DTYPES),
    reason: "sparse.COO needs sorted, unique coordinates",
    ..FormatCapabilities::any(SparseFormat::Coo, INT32_OR_INT64)
}];

/// The dense target for the component arrays of a framework's sparse tensors.
pub(super) fn array_target(entry: &Entry) -> Target {
    Target::Builtin(entry.dense.unwrap_or(Builtin::Numpy).framework())
}

/// The capabilities of a framework at this moment: JAX's depend on its settings.
pub(super) fn sparse_capabilities(py: Python<'_>, entry: &'static Entry) -> Result<SparseTarget> {
    let formats: &'static [FormatCapabilities] = match entry.dense {
        Some(Builtin::Torch) => &TORCH,
        Some(Builtin::CuPy) => &CUPY,
        Some(Builtin::Jax) if array_target(entry).capabilities(py)?.keeps_64_bit => &JAX_INT64,
        Some(Builtin::Jax) => &JAX_INT32,
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

/// The names of the frameworks with sparse tensors.
pub(super) fn sparse_framework_names() -> Vec<&'static str> {
    builtin_frameworks::REGISTER.iter().filter(|entry| entry.has_sparse).map(|entry| entry.name).collect()
}
