//! The description of a tensor in a stream: the name of its type, its shape and the order of its dimensions.

use crate::errors::{Failure, Result, fail};
use crate::interpreter::once::ForkSafeOnce;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use smallvec::SmallVec;
use tensorferry_core::{ByteOrder, DType, ErrorKind, Layout};

/// In front of the name of a type whose elements are stored with the most significant byte first.
const BIG_ENDIAN_PREFIX: char = '>';

/// The byte order that elements with the most significant byte first have here.
const BIG_ENDIAN: ByteOrder =
    if cfg!(target_endian = "big") { ByteOrder::Native } else { ByteOrder::Swapped };

/// The name of an element type with its byte order.
pub(super) fn type_name(py: Python<'_>, dtype: DType, order: ByteOrder) -> Bound<'_, PyString> {
    if order == BIG_ENDIAN && dtype.swap_unit() > 1 {
        return PyString::new(py, &format!("{BIG_ENDIAN_PREFIX}{}", dtype.name()));
    }
    // One object per type, which pickle memoises.
    static NAMES: [ForkSafeOnce<Py<PyString>>; DType::COUNT] = [const { ForkSafeOnce::new() }; DType::COUNT];
    NAMES[dtype as usize].intern(py, dtype.name()).clone()
}

/// The element type and byte order with this name.
pub(super) fn parse_type(name: &str) -> Result<(DType, ByteOrder)> {
    let (order, plain) = match name.strip_prefix(BIG_ENDIAN_PREFIX) {
        Some(plain) => (BIG_ENDIAN, plain),
        None if BIG_ENDIAN == ByteOrder::Swapped => (ByteOrder::Native, name),
        None => (ByteOrder::Swapped, name),
    };
    let dtype = DType::from_name(plain).ok_or_else(|| {
        fail(
            ErrorKind::InvalidTensor,
            format!("a payload of the pickle has elements of type {name:?}, which is not known"),
            "upgrade tensorferry to the version that wrote the pickle",
        )
    })?;
    Ok((dtype, order))
}

/// The error for a description that no version of tensorferry writes.
pub(super) fn damaged(fact: impl Into<String>) -> Failure {
    fail(ErrorKind::InvalidTensor, fact, "the pickle is damaged, or its buffers are in another order")
}

/// The dimensions from the outermost to the innermost in memory; `None` if that is their own order.
pub(super) fn dimension_order<'py>(
    py: Python<'py>,
    layout: &Layout,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    if layout.is_dense() {
        return Ok(None);
    }
    let mut order: SmallVec<[usize; 8]> = (0..layout.rank()).collect();
    order.sort_by_key(|&dimension| std::cmp::Reverse(layout.strides()[dimension]));
    PyTuple::new(py, order).map(Some)
}

/// The layout of a shape whose dimensions are in this order in memory, without gaps.
pub(super) fn parse_layout(dtype: DType, shape: &[i64], order: Option<&[usize]>) -> Result<Layout> {
    let Ok(dense) = Layout::dense(dtype.size(), shape) else {
        return Err(damaged(format!("the shape of a payload is {shape:?}, which is negative or too large")));
    };
    let Some(order) = order else { return Ok(dense) };
    let mut seen: SmallVec<[bool; 8]> = SmallVec::from_elem(false, shape.len());
    let is_permutation = order.len() == shape.len()
        && order
            .iter()
            .all(|&dimension| seen.get_mut(dimension).is_some_and(|seen| !std::mem::replace(seen, true)));
    if !is_permutation {
        return Err(damaged(format!(
            "the dimensions of a payload of shape {shape:?} are in the order {order:?}, which is not a permutation"
        )));
    }
    let mut strides: SmallVec<[i64; 8]> = SmallVec::from_elem(0, shape.len());
    // The product cannot overflow: the dense layout has the same number of bytes.
    let mut step = dtype.size() as i64;
    for &dimension in order.iter().rev() {
        strides[dimension] = step;
        step = step.wrapping_mul(shape[dimension].max(1));
    }
    Ok(Layout::strided(dtype.size(), shape, &strides)?)
}
