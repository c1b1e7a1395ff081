//! Arrays, checked against the type of their column.

use crate::abi::ArrowArray;
use crate::bitmap::Bits;
use crate::errors::invalid_struct;
use crate::lists::Offsets;
use crate::owned::Owned;
use crate::schema::{Column, Field, MAX_DEPTH};
use std::sync::Arc;
use tensorferry_core::{Access, ByteOrder, DType, Device, Layout, Result, Tensor};

/// Keeps the memory of an array alive.
pub type ArrayOwner = Arc<Owned<ArrowArray>>;

/// An array, or a range of its elements.
#[derive(Clone, Debug)]
pub struct Array {
    owner: ArrayOwner,
    length: usize,
    /// A zero bit for each null; `None` if there are none.
    validity: Option<Bits>,
    content: Content,
}

/// The memory of an array, from its first element on.
#[derive(Clone, Debug)]
pub enum Content {
    /// Numbers, one after another.
    Values(Values),
    /// Booleans.
    Bits(Bits),
    /// Tensors of one shape, one after another.
    Tensors {
        /// The elements of all of them.
        child: Box<Array>,
        /// The number of elements of each.
        count: usize,
        /// The shape of each.
        shape: Vec<i64>,
        /// The steps between elements, in elements.
        strides: Vec<i64>,
    },
    /// Lists of different lengths.
    Lists {
        /// Where each list begins and ends in the child.
        offsets: Offsets,
        /// The elements.
        child: Box<Array>,
    },
    /// The columns of a table.
    Structs(Vec<Array>),
    /// Indices of values.
    Dictionary {
        /// The indices.
        codes: Values,
        /// The values.
        values: Box<Array>,
    },
    /// Memory that is not read: only nulls, or a type that has no tensor.
    Unread,
}

/// Numbers of one type, one after another.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    /// The type.
    pub dtype: DType,
    /// The first number; any pointer if there are none.
    pub data: *const u8,
}

// SAFETY: the memory is read-only while the array is not released, which the owner in the same value prevents. The interface lets
// any thread read it.
unsafe impl Send for Array {}
// SAFETY: as for `Send`.
unsafe impl Sync for Array {}

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
        let owner = Arc::new(array);
        // SAFETY: the contract of `check` is that of this function.
        unsafe { check(&owner, owner.get(), field, 0) }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The memory.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// What keeps the memory alive.
    pub fn owner(&self) -> &ArrayOwner {
        &self.owner
    }

    /// A zero bit for each null; `None` if there is no bitmap.
    pub fn validity(&self) -> Option<Bits> {
        self.validity
    }

    /// The number of nulls among the elements. Nulls within tensors, lists and structs are not counted.
    pub fn count_nulls(&self) -> usize {
        match (&self.content, self.validity) {
            (_, Some(bits)) => bits.count_zeros(),
            (_, None) => 0,
        }
    }

    /// Some of the elements. Elements that do not exist are left out.
    #[must_use]
    pub fn slice(&self, start: usize, length: usize) -> Self {
        let start = start.min(self.length);
        let length = length.min(self.length - start);
        let content = match &self.content {
            Content::Values(values) => Content::Values(values.skip(start)),
            Content::Bits(bits) => Content::Bits(bits.slice(start, length)),
            Content::Tensors { child, count, shape, strides } => Content::Tensors {
                child: Box::new(child.slice(start * count, length * count)),
                count: *count,
                shape: shape.clone(),
                strides: strides.clone(),
            },
            Content::Lists { offsets, child } => {
                Content::Lists { offsets: offsets.slice(start, length), child: child.clone() }
            }
            Content::Structs(columns) => {
                Content::Structs(columns.iter().map(|column| column.slice(start, length)).collect())
            }
            Content::Dictionary { codes, values } => {
                Content::Dictionary { codes: codes.skip(start), values: values.clone() }
            }
            Content::Unread => Content::Unread,
        };
        let validity = self.validity.map(|bits| bits.slice(start, length));
        Self { owner: self.owner.clone(), length, validity, content }
    }

    /// A table with the columns at these positions. Other arrays stay as they are.
    #[must_use]
    pub fn with_columns(&self, positions: &[usize]) -> Self {
        let Content::Structs(columns) = &self.content else { return self.clone() };
        let chosen = positions.iter().filter_map(|&position| columns.get(position).cloned()).collect();
        Self { content: Content::Structs(chosen), ..self.clone() }
    }

    /// The codes of a dictionary as numbers. Other arrays stay as they are.
    #[must_use]
    pub fn codes(&self) -> Self {
        let Content::Dictionary { codes, .. } = &self.content else { return self.clone() };
        Self { content: Content::Values(*codes), ..self.clone() }
    }

    /// An array of tensors of `count` elements each. If the child has another number of elements, the array is empty.
    #[must_use]
    pub fn as_tensors(&self, child: Self, count: usize) -> Self {
        let length = if self.length.checked_mul(count) == Some(child.length) { self.length } else { 0 };
        let child = Box::new(child.slice(0, length * count));
        let content = Content::Tensors { child, count, shape: vec![count as i64], strides: vec![1] };
        Self { owner: self.owner.clone(), length, validity: None, content }
    }

    /// The elements as a tensor over the memory itself; `None` if they are not numbers, or tensors of numbers. Nulls have
    /// undefined values.
    ///
    /// # Errors
    /// When the tensor is larger than the address space.
    pub fn as_tensor(&self) -> Result<Option<Tensor<ArrayOwner>>> {
        let axes = self.axes();
        let Content::Values(values) = axes.base.content else { return Ok(None) };
        let item = values.dtype.size() as i64;
        let too_large = || invalid_struct("a stride of the column is larger than the address space");
        let mut strides = Vec::with_capacity(axes.strides.len());
        for stride in &axes.strides {
            strides.push(stride.checked_mul(item).ok_or_else(too_large)?);
        }
        let layout = Layout::strided(values.dtype.size(), &axes.shape, &strides)?;
        // SAFETY: `Tensor::new` requires memory of the layout while the owner lives, readable on the host: `check` compared the
        // lengths of parents and children, so that the layout has only elements of `values`, which are readable as long as the
        // array is not released (the contract of `Array::new`). The owner releases it when it is dropped.
        let tensor = unsafe {
            Tensor::new(
                values.data.cast_mut(),
                values.dtype,
                layout,
                Device::CPU,
                ByteOrder::Native,
                Access::ReadOnly,
                self.owner.clone(),
            )
        };
        tensor.map(Some)
    }

    /// The shape of the elements together, and the array of numbers at the bottom.
    pub fn axes(&self) -> Axes<'_> {
        let mut axes = Axes { shape: vec![self.length as i64], strides: vec![1], base: self };
        while let Content::Tensors { child, count, shape, strides } = &axes.base.content {
            for stride in &mut axes.strides {
                *stride = stride.saturating_mul(*count as i64);
            }
            axes.shape.extend(shape);
            axes.strides.extend(strides);
            axes.base = child;
        }
        axes
    }
}

/// The shape of a column, and the array of its numbers.
#[derive(Clone, Debug)]
pub struct Axes<'a> {
    /// The shape: the length of the column first.
    pub shape: Vec<i64>,
    /// The steps along each axis, in elements of the base.
    pub strides: Vec<i64>,
    /// The elements.
    pub base: &'a Array,
}

impl Values {
    /// The same numbers without the first ones.
    fn skip(self, count: usize) -> Self {
        // The pointer of an array without elements may be null, and is not read.
        Self { data: self.data.wrapping_add(count * self.dtype.size()), ..self }
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

/// # Safety
/// As [`Array::new`], for this array, which is that of `owner` or below it.
unsafe fn check(owner: &ArrayOwner, array: &ArrowArray, field: &Field, depth: usize) -> Result<Array> {
    if depth > MAX_DEPTH {
        return Err(invalid_struct(format!("the array is nested more than {MAX_DEPTH} levels deep")));
    }
    let (length, offset) = checked_range(array)?;
    let unread = |validity| Array { owner: owner.clone(), length, validity, content: Content::Unread };
    let Some((buffers, children)) = expected_counts(&field.column) else { return Ok(unread(None)) };
    if (array.n_buffers, array.n_children) != (buffers, children) {
        return Err(invalid_struct(format!(
            "the array has {} buffers and {} children, and its type {buffers} and {children}",
            array.n_buffers, array.n_children
        )));
    }
    if (buffers > 0 && array.buffers.is_null()) || (children > 0 && array.children.is_null()) {
        return Err(invalid_struct("the buffers or the children of the array are a null pointer"));
    }
    if array.null_count < -1 {
        return Err(invalid_struct(format!("the array has {} nulls", array.null_count)));
    }
    // SAFETY: there are `buffers` pointers (the contract of `check`, and the comparison above).
    let buffer = |index: usize| -> *const u8 { unsafe { (*array.buffers.add(index)).cast() } };
    let child = |index: usize, field: &Field| -> Result<Array> {
        // SAFETY: there are `children` pointers (the contract of `check`, and the comparison above), each null or an array of the
        // child's type.
        unsafe {
            match (*array.children.add(index)).as_ref() {
                Some(child) => check(owner, child, field, depth + 1),
                None => Err(invalid_struct(format!("child {index} of the array is a null pointer"))),
            }
        }
    };
    let validity = (buffers > 0 && array.null_count != 0 && !buffer(0).is_null()).then(|| {
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
    let too_short = |child: &Array, needed: Option<usize>| -> Result<()> {
        match needed {
            Some(needed) if needed <= child.length => Ok(()),
            _ => Err(invalid_struct(format!(
                "a child has {} elements, too few for {length} elements of its parent at {offset}",
                child.length
            ))),
        }
    };
    let content = match &field.column {
        Column::Numbers(dtype) | Column::Temporal { dtype, .. } => Content::Values(values(*dtype)?),
        Column::Bits => {
            if buffer(1).is_null() && length > 0 {
                return Err(invalid_struct(format!("{length} booleans have a null pointer")));
            }
            // SAFETY: the buffer has a bit for each of `offset + length` elements (the contract of `check`), or there are none.
            Content::Bits(unsafe { Bits::new(buffer(1), offset, length) })
        }
        Column::Tensors { child: field, count, shape, strides } => {
            let all = child(0, field)?;
            too_short(&all, (offset + length).checked_mul(*count))?;
            Content::Tensors {
                child: Box::new(all.slice(offset * count, length * count)),
                count: *count,
                shape: shape.clone(),
                strides: strides.clone(),
            }
        }
        Column::Lists { child: field, is_large } => {
            let all = child(0, field)?;
            let pointer = buffer(1);
            if pointer.is_null() && length > 0 {
                return Err(invalid_struct(format!("the offsets of {length} lists are a null pointer")));
            }
            // SAFETY: the buffer has an offset for each of `offset + length` elements and one more (the contract of `check`).
            let offsets = unsafe { Offsets::new(pointer, *is_large, offset, length) };
            offsets.check(all.length)?;
            Content::Lists { offsets, child: Box::new(all) }
        }
        Column::Structs(fields) => {
            let mut columns = Vec::new();
            for (index, field) in fields.iter().enumerate() {
                let column = child(index, field).map_err(|error| at_column(error, field))?;
                too_short(&column, Some(offset + length)).map_err(|error| at_column(error, field))?;
                columns.push(column.slice(offset, length));
            }
            Content::Structs(columns)
        }
        Column::Dictionary { codes, values: field } => {
            // SAFETY: the dictionary is null, or an array of its type (the contract of `check`).
            let Some(dictionary) = (unsafe { array.dictionary.as_ref() }) else {
                return Err(invalid_struct("the array has codes and no dictionary"));
            };
            // SAFETY: as for this array (the contract of `check`).
            let dictionary = unsafe { check(owner, dictionary, field, depth + 1)? };
            Content::Dictionary { codes: values(*codes)?, values: Box::new(dictionary) }
        }
        Column::Nulls | Column::Unsupported { .. } => Content::Unread,
    };
    Ok(Array { owner: owner.clone(), length, validity, content })
}

fn at_column(error: tensorferry_core::Error, field: &Field) -> tensorferry_core::Error {
    if field.name.is_empty() { error } else { error.at(format_args!("column '{}'", field.name)) }
}

/// The length and the offset of an array, whose sum does not overflow.
fn checked_range(array: &ArrowArray) -> Result<(usize, usize)> {
    let (length, offset) = (array.length, array.offset);
    let sum = if length < 0 || offset < 0 { None } else { length.checked_add(offset) };
    // A bit for each element has to fit in memory.
    match sum.filter(|&sum| sum <= i64::MAX / 16) {
        Some(_) => Ok((length as usize, offset as usize)),
        None => Err(invalid_struct(format!("the array has {length} elements at {offset}"))),
    }
}
