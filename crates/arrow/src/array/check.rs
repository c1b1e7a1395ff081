//! Checks the structs of a producer before their memory is read.

use super::{Array, ArrayOwner, Content, Values};
use crate::abi::ArrowArray;
use crate::bitmap::Bits;
use crate::errors::invalid_struct;
use crate::lists::Offsets;
use crate::owned::Owned;
use crate::schema::{Column, Field, MAX_DEPTH};
use std::ops::Range;
use std::sync::Arc;
use tensorferry_core::{DType, Device, Error, Result};

/// The limit of elements of an array.
const MAX_ELEMENTS: i64 = 1 << 43;

impl Array {
    /// Checks an array of a column.
    ///
    /// # Errors
    /// When the array violates the interface, or is not of the column's type.
    ///
    /// # Safety
    /// The pointers of the array are null, or as the specification requires. Its buffers are in host memory, are as large as the
    /// column's type and the lengths of the array require, and do not change before it is released.
    pub unsafe fn new(array: Owned<ArrowArray>, field: &Field) -> Result<Self> {
        // SAFETY: the contract of `on_device` is that of this function, for host memory.
        unsafe { Self::on_device(array, field, Device::CPU) }
    }

    /// Checks an array whose buffers are on a device. Buffers on a GPU are not read: an array that needs that is not an error
    /// before [`Array::check_readable`].
    ///
    /// # Errors
    /// As [`Array::new`].
    ///
    /// # Safety
    /// As [`Array::new`], with buffers in the memory of `device`.
    pub unsafe fn on_device(array: Owned<ArrowArray>, field: &Field, device: Device) -> Result<Self> {
        let owner = Arc::new(array);
        // SAFETY: the contract of `check` is that of this function.
        unsafe { check(&owner, device, owner.get(), field, None, 0) }
    }
}

/// The counts of buffers and children that the interface requires.
fn expected_counts(column: &Column) -> Option<(i64, i64)> {
    match column {
        Column::Numbers(_) | Column::Bits | Column::Temporal { .. } | Column::Dictionary { .. } => {
            Some((2, 0))
        }
        Column::Tensors { .. } => Some((1, 1)),
        Column::Lists { .. } => Some((2, 1)),
        Column::Structs(fields) => Some((1, fields.len() as i64)),
        Column::Nulls => Some((0, 0)),
        Column::Unsupported { .. } => None,
    }
}

/// Checks the elements of an array that its parent uses, which exist; all without a parent.
///
/// A batch of a large table has children as long as the table: to check those would take as long for each batch.
///
/// # Safety
/// As [`Array::on_device`], for this array, which is that of `owner` or below it.
unsafe fn check(
    owner: &ArrayOwner,
    device: Device,
    array: &ArrowArray,
    field: &Field,
    used: Option<Range<usize>>,
    depth: usize,
) -> Result<Array> {
    if depth > MAX_DEPTH {
        return Err(invalid_struct(format!("the array is nested more than {MAX_DEPTH} levels deep")));
    }
    let (length, offset) = checked_range(array)?;
    let (length, offset) = used.map_or((length, offset), |used| (used.len(), offset + used.start));
    let new = |validity, content: Content| Array { owner: owner.clone(), device, length, validity, content };
    let Some((buffers, children)) = expected_counts(&field.column) else {
        return Ok(new(None, Content::Unread));
    };
    // Some producers give a column of nulls a bitmap.
    let has_bitmap_of_nulls = field.column == Column::Nulls && array.n_buffers == 1;
    if has_bitmap_of_nulls && array.n_children == 0 {
        return Ok(new(None, Content::Unread));
    }
    if (array.n_buffers, array.n_children) != (buffers, children) {
        return Err(invalid_struct(format!(
            "the array has {} buffers and {} children, and its type {buffers} and {children}",
            array.n_buffers, array.n_children
        )));
    }
    if (buffers > 0 && array.buffers.is_null()) || (children > 0 && array.children.is_null()) {
        return Err(invalid_struct("the buffers or the children of the array are a null pointer"));
    }
    if array.null_count < -1 || array.null_count > array.length {
        let fact = format!("the array has {} nulls and {} elements", array.null_count, array.length);
        return Err(invalid_struct(fact));
    }
    // SAFETY: there are `buffers` pointers (the contract of `check`, and the comparison above).
    let buffer = |index: usize| -> *const u8 { unsafe { (*array.buffers.add(index)).cast() } };
    let child = |index: usize| -> Result<&ArrowArray> {
        // SAFETY: there are `children` pointers (the contract of `check`, and the comparison above), each null or an array of the
        // child's type.
        unsafe { (*array.children.add(index)).as_ref() }
            .ok_or_else(|| invalid_struct(format!("child {index} of the array is a null pointer")))
    };
    let used_child = |index: usize, field: &Field, per_element: usize| -> Result<Array> {
        let child = child(index)?;
        let elements = checked_range(child)?.0;
        match (offset + length).checked_mul(per_element) {
            Some(end) if end <= elements => {
                // SAFETY: a child is of the child's type (the contract of `check`).
                unsafe { check(owner, device, child, field, Some(offset * per_element..end), depth + 1) }
            }
            _ => Err(invalid_struct(format!(
                "a child has {elements} elements, too few for {length} elements of its parent at {offset}"
            ))),
        }
    };
    if buffers > 0 && array.null_count > 0 && buffer(0).is_null() {
        return Err(invalid_struct(format!("the array has {} nulls and no bitmap", array.null_count)));
    }
    let has_bitmap = buffers > 0 && array.null_count != 0 && !buffer(0).is_null();
    if let Some(content) = unreadable(device, &field.column, has_bitmap) {
        return Ok(new(None, Content::Unreadable(content)));
    }
    let validity = has_bitmap.then(|| {
        // SAFETY: a validity bitmap that is not null has a bit for each of `offset + length` elements (the contract of `check`),
        // and `checked_range` found that the sum does not overflow.
        unsafe { Bits::new(buffer(0), offset, length) }
    });
    let values = |dtype: DType| -> Result<Values> {
        let bytes =
            (offset + length).checked_mul(dtype.size()).filter(|&bytes| isize::try_from(bytes).is_ok());
        match bytes {
            None => Err(invalid_struct(format!("{length} elements of {dtype} at {offset} overflow"))),
            Some(_) if buffer(1).is_null() && length > 0 => {
                Err(invalid_struct(format!("{length} elements have a null pointer")))
            }
            Some(_) => Ok(Values { dtype, data: buffer(1) }.skip(offset)),
        }
    };
    let content = match &field.column {
        Column::Numbers(dtype) | Column::Temporal { dtype, .. } => Content::Values(values(*dtype)?),
        Column::Bits => {
            if buffer(1).is_null() && length > 0 {
                return Err(invalid_struct(format!("{length} booleans have a null pointer")));
            }
            // SAFETY: the buffer has a bit for each of `offset + length` elements (the contract of `check`), or the array is empty.
            Content::Bits(unsafe { Bits::new(buffer(1), offset, length) })
        }
        Column::Tensors { child: field, count, shape, strides } => Content::Tensors {
            child: Box::new(used_child(0, field, *count)?),
            count: *count,
            shape: shape.clone(),
            strides: strides.clone(),
        },
        Column::Lists { child: field, is_large } => {
            let pointer = buffer(1);
            if pointer.is_null() && length > 0 {
                return Err(invalid_struct(format!("the offsets of {length} lists are a null pointer")));
            }
            // SAFETY: the buffer has an offset for each of `offset + length` elements and one more (the contract of `check`).
            let offsets = unsafe { Offsets::new(pointer, *is_large, offset, length) };
            let child = child(0)?;
            offsets.check(checked_range(child)?.0)?;
            let (first, end) = offsets.range();
            // SAFETY: a child is of the child's type (the contract of `check`).
            let elements = unsafe { check(owner, device, child, field, Some(first..end), depth + 1)? };
            Content::Lists { offsets: offsets.rebase(), child: Box::new(elements) }
        }
        Column::Structs(fields) => {
            let mut columns = Vec::new();
            for (index, field) in fields.iter().enumerate() {
                columns.push(used_child(index, field, 1).map_err(|error| at_column(error, field))?);
            }
            Content::Structs(columns)
        }
        Column::Dictionary { codes, values: field } => {
            // SAFETY: the dictionary is null, or an array of its type (the contract of `check`).
            let Some(dictionary) = (unsafe { array.dictionary.as_ref() }) else {
                return Err(invalid_struct("the array has codes and no dictionary"));
            };
            // SAFETY: as for this array (the contract of `check`).
            let (dictionary, identity) =
                unsafe { (check(owner, device, dictionary, field, None, depth + 1)?, identity(dictionary)) };
            Content::Dictionary { codes: values(*codes)?, values: Box::new(dictionary), identity }
        }
        Column::Nulls | Column::Unsupported { .. } => Content::Unread,
    };
    Ok(new(validity, content))
}

/// What an array on a GPU has that only the host could check; `None` if it is numbers, tensors or structs without nulls.
fn unreadable(device: Device, column: &Column, has_bitmap: bool) -> Option<&'static str> {
    match column {
        _ if device.is_host() => None,
        // Any byte but zero is true.
        Column::Bits | Column::Numbers(DType::Bool) => Some("booleans"),
        Column::Lists { .. } => Some("lists"),
        Column::Dictionary { .. } => Some("codes of a dictionary"),
        _ => has_bitmap.then_some("values with nulls"),
    }
}

/// The range of an array, and the addresses of its buffers.
///
/// # Safety
/// As [`Array::new`].
unsafe fn identity(array: &ArrowArray) -> Vec<usize> {
    let mut identity = vec![array.length as usize, array.offset as usize];
    if !array.buffers.is_null() {
        for index in 0..usize::try_from(array.n_buffers).unwrap_or(0) {
            // SAFETY: an array whose buffers are not null has `n_buffers` pointers (the contract of this function).
            identity.push(unsafe { *array.buffers.add(index) } as usize);
        }
    }
    identity
}

fn at_column(error: Error, field: &Field) -> Error {
    if field.name.is_empty() { error } else { error.at(format_args!("column '{}'", field.name)) }
}

/// The length and the offset of an array, whose sum does not overflow.
fn checked_range(array: &ArrowArray) -> Result<(usize, usize)> {
    let (length, offset) = (array.length, array.offset);
    let sum = if length < 0 || offset < 0 { None } else { length.checked_add(offset) };
    // Sums over a million chunks, and products with the size of an element, do not overflow.
    match sum.filter(|&sum| sum <= MAX_ELEMENTS) {
        Some(_) => Ok((length as usize, offset as usize)),
        None => Err(invalid_struct(format!("the array has {length} elements at {offset}"))),
    }
}
