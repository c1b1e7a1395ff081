//! Arrays, checked against the type of their column.

mod check;

use crate::abi::ArrowArray;
use crate::bitmap::Bits;
use crate::errors::invalid_struct;
use crate::hints;
use crate::lists::Offsets;
use crate::owned::Owned;
use std::sync::Arc;
use tensorferry_core::{Access, ByteOrder, DType, Device, Error, ErrorKind, Layout, Result, Tensor};

/// Keeps the memory of an array alive.
pub type ArrayOwner = Arc<Owned<ArrowArray>>;

/// An array, or a range of its elements.
#[derive(Clone, Debug)]
pub struct Array {
    owner: ArrayOwner,
    /// Where the buffers are.
    device: Device,
    length: usize,
    /// A zero bit for each null; `None` without nulls.
    validity: Option<Bits>,
    content: Content,
}

/// The memory of an array, from its first element on.
#[derive(Clone, Debug)]
pub(crate) enum Content {
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
        /// The range of the values, and the addresses of their buffers.
        identity: Vec<usize>,
    },
    /// Memory that is not read: only nulls, or a type that has no tensor.
    Unread,
    /// Memory on a GPU that would have to be read on the host; the value says what is in it.
    Unreadable(&'static str),
}

/// Numbers of one type, one after another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    /// The type.
    pub(crate) dtype: DType,
    /// The first number; any pointer if the array is empty.
    pub(crate) data: *const u8,
}

// SAFETY: the memory is read-only while the array is not released, which the owner in the same value prevents. The interface lets
// any thread read it.
unsafe impl Send for Array {}
// SAFETY: as for `Send`.
unsafe impl Sync for Array {}

impl Array {
    /// Where the memory is.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Checks that the array, without the columns of a table, can be used where its memory is.
    ///
    /// # Errors
    /// When the memory is on a GPU, and would have to be read on the host.
    pub fn check_readable(&self) -> Result<()> {
        match &self.content {
            Content::Unreadable(content) => Err(not_on_host(&format!("{content} are"), self.device)),
            Content::Tensors { child, .. } => child.check_readable(),
            _ => Ok(()),
        }
    }

    /// Checks that the memory can be read here.
    ///
    /// # Errors
    /// When it is on a GPU.
    pub(crate) fn check_on_host(&self) -> Result<()> {
        if self.device.is_host() { Ok(()) } else { Err(not_on_host("the column is", self.device)) }
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
    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    /// A zero bit for each null; `None` without a bitmap.
    pub(crate) fn validity(&self) -> Option<Bits> {
        self.validity
    }

    /// The number of nulls among the elements. Nulls within tensors, lists and structs are not counted.
    pub fn count_nulls(&self) -> usize {
        self.validity.map_or(0, Bits::count_zeros)
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
            Content::Dictionary { codes, values, identity } => Content::Dictionary {
                codes: codes.skip(start),
                values: values.clone(),
                identity: identity.clone(),
            },
            Content::Unread => Content::Unread,
            Content::Unreadable(content) => Content::Unreadable(content),
        };
        let validity = self.validity.map(|bits| bits.slice(start, length));
        Self { owner: self.owner.clone(), device: self.device, length, validity, content }
    }

    /// A table with the columns at these positions. Other arrays stay as they are.
    #[must_use]
    pub fn with_columns(&self, positions: &[usize]) -> Self {
        let Content::Structs(columns) = &self.content else { return self.clone() };
        let chosen = positions.iter().filter_map(|&position| columns.get(position).cloned()).collect();
        Self { content: Content::Structs(chosen), ..self.clone() }
    }

    /// The columns of a table; none for other arrays.
    pub fn columns(&self) -> &[Self] {
        if let Content::Structs(columns) = &self.content { columns } else { &[] }
    }

    /// The codes of a dictionary as numbers, in tensors too. Other arrays stay as they are.
    #[must_use]
    pub fn codes(&self) -> Self {
        let content = match &self.content {
            Content::Dictionary { codes, .. } => Content::Values(*codes),
            Content::Tensors { child, count, shape, strides } => Content::Tensors {
                child: Box::new(child.codes()),
                count: *count,
                shape: shape.clone(),
                strides: strides.clone(),
            },
            _ => return self.clone(),
        };
        Self { content, ..self.clone() }
    }

    /// The same elements with other content, which has as many.
    pub(crate) fn with_content(&self, content: Content) -> Self {
        Self { content, ..self.clone() }
    }

    /// What tells the dictionary of an array from others: its range and the addresses of its buffers. Empty without one.
    pub fn dictionary_identity(&self) -> &[usize] {
        match &self.axes().base.content {
            Content::Dictionary { identity, .. } => identity,
            _ => &[],
        }
    }

    /// What has to be done to read the elements as numbers.
    pub fn encoding(&self) -> Encoding {
        match self.axes().base.content {
            Content::Bits(_) => Encoding::Bits,
            Content::Dictionary { .. } => Encoding::Dictionary,
            _ => Encoding::Numbers,
        }
    }

    /// The elements as a tensor over the memory itself; `None` if they are not numbers, or tensors of numbers, or if they are
    /// booleans of a byte each that are not 0 or 1. Nulls have undefined values.
    ///
    /// # Errors
    /// When the tensor is larger than the address space.
    pub fn as_tensor(&self) -> Result<Option<Tensor<ArrayOwner>>> {
        let axes = self.axes();
        let Content::Values(values) = axes.base.content else { return Ok(None) };
        if !axes.base.has_canonical_booleans() {
            return Ok(None);
        }
        let item = values.dtype.size() as i64;
        let too_large = || invalid_struct("a stride of the column is larger than the address space");
        let mut strides = Vec::with_capacity(axes.strides.len());
        for stride in &axes.strides {
            strides.push(stride.checked_mul(item).ok_or_else(too_large)?);
        }
        let layout = Layout::strided(values.dtype.size(), &axes.shape, &strides)?;
        // SAFETY: `Tensor::new` requires memory of the layout on the device while the owner lives: `check` compared the lengths of
        // parents and children, so that the layout has only elements of `values`, which are readable as long as the array is not
        // released (the contract of `Array::on_device`). The owner releases it when it is dropped.
        let tensor = unsafe {
            Tensor::new(
                values.data.cast_mut(),
                values.dtype,
                layout,
                self.device,
                ByteOrder::Native,
                Access::ReadOnly,
                axes.base.owner.clone(),
            )
        };
        tensor.map(Some)
    }

    /// Whether all bytes are 0 or 1, as booleans of a byte each have to be.
    fn has_canonical_booleans(&self) -> bool {
        let Content::Values(values) = self.content else { return true };
        if values.dtype != DType::Bool || self.length == 0 {
            return true;
        }
        // SAFETY: the values exist in host memory (`Array::new`), because `check` returns no booleans on a GPU. Each has one byte.
        let bytes = unsafe { std::slice::from_raw_parts(values.data, self.length) };
        bytes.iter().all(|&byte| byte <= 1)
    }

    /// The shape of the elements together, and the array of numbers at the bottom.
    pub(crate) fn axes(&self) -> Axes<'_> {
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
pub(crate) struct Axes<'a> {
    /// The shape: the length of the column first.
    pub(crate) shape: Vec<i64>,
    /// The steps along each axis, in elements of the base.
    pub(crate) strides: Vec<i64>,
    /// The elements.
    pub(crate) base: &'a Array,
}

/// How the elements of a column are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// As numbers.
    Numbers,
    /// As bits.
    Bits,
    /// As codes of a dictionary.
    Dictionary,
}

impl Values {
    /// The same numbers without the first ones.
    fn skip(self, count: usize) -> Self {
        // The pointer of an array without elements may be null, and is not read.
        Self { data: self.data.wrapping_add(count * self.dtype.size()), ..self }
    }
}

fn not_on_host(subject: &str, device: Device) -> Error {
    let fact = format!("{subject} on {device}, and would have to be read on the host");
    Error::new(ErrorKind::UnsupportedDevice, fact).with_hint(hints::COPY_TO_HOST)
}
