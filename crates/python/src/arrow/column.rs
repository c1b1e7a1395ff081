//! A column as a source of conversions.

use super::device_memory::gpu_source;
use crate::conversion::host_copy::{DETACH_THRESHOLD_BYTES, NewArray};
use crate::conversion::source::{Source, SourceMemory};
use crate::errors::{Result, fail};
use crate::interpreter::owner::Owner;
use crate::settings;
use pyo3::prelude::*;
use std::slice;
use tensorferry_arrow::{
    Array, ArrayOwner, Encoding, MatrixColumn, PaddedLists, write_matrix, write_offsets, write_validity,
    write_values,
};
use tensorferry_core::dtype::DTypeKind;
use tensorferry_core::host::HostBlock;
use tensorferry_core::pack::{CopyDestination, CopySource, convert};
use tensorferry_core::plan::{Pending, SourceMutability, TimeUnit};
use tensorferry_core::{ByteOrder, DType, Device, ErrorKind, Layout, Tensor};

/// A column of a table, or what is derived from one.
#[pyclass(frozen, module = "tensorferry._native", name = "_ArrowColumn")]
pub(crate) struct ArrowColumn {
    pub(super) dtype: DType,
    pub(super) shape: Vec<i64>,
    pub(super) content: ColumnContent,
    /// The unit of time that its integers count, if they are dates or times.
    pub(super) counts: Option<TimeUnit>,
    /// Whether the column is that of a stream that is planned and not read.
    pub(super) is_unread: bool,
}

/// What a column is gathered from.
pub(super) enum ColumnContent {
    /// The values of its chunks.
    Values(ColumnValues),
    /// Whether the values of its chunks are valid.
    Validity(Vec<Array>),
    /// Several columns, as the columns of a matrix.
    Stack(Vec<ColumnValues>),
    /// Where the lists of its chunks begin and end.
    Offsets(Vec<Array>),
    /// Lists whose elements are other content, padded to one length.
    Padded { lists: PaddedLists, elements: Box<ColumnContent>, pad: Fill },
}

/// The chunks of a column.
pub(super) struct ColumnValues {
    pub(super) chunks: Vec<Array>,
    /// What nulls become; `None` for a column without nulls, or if their values do not matter.
    pub(super) fill: Option<Fill>,
}

/// A number that replaces nulls, or pads lists.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fill {
    Integer(i128),
    Float(f64),
}

impl Fill {
    pub(super) const ZERO: Self = Self::Integer(0);

    /// The number as one element of a type.
    pub(super) fn bytes(self, dtype: DType) -> tensorferry_core::Result<[u8; 16]> {
        let mut bytes = [0; 16];
        let (number, from) = match self {
            Self::Integer(number) => match (i64::try_from(number), u64::try_from(number)) {
                (Ok(number), _) => (number.to_ne_bytes(), DType::Int64),
                (_, Ok(number)) => (number.to_ne_bytes(), DType::UInt64),
                _ => ((number as f64).to_ne_bytes(), DType::Float64),
            },
            Self::Float(number) => (number.to_ne_bytes(), DType::Float64),
        };
        let data = number.as_ptr();
        let (from_layout, to_layout) = (Layout::dense(8, &[1])?, Layout::dense(dtype.size(), &[1])?);
        let from = CopySource { data, dtype: from, layout: &from_layout, order: ByteOrder::Native };
        let to = CopyDestination { data: bytes.as_mut_ptr(), dtype, layout: &to_layout };
        // SAFETY: `convert` requires memory of the layouts that does not overlap: the number has eight bytes, and the largest
        // element sixteen.
        unsafe { convert(&from, &to, 1)? };
        Ok(bytes)
    }
}

impl Fill {
    /// Checks that a type has the number, which `option` is. A float may be rounded, but not to infinity.
    pub(super) fn check(self, option: &str, dtype: DType) -> Result<()> {
        let fits = match (self, dtype.integer_range()) {
            _ if matches!(dtype.kind(), DTypeKind::Float | DTypeKind::Complex) => {
                !self.is_finite() || self.rounded(dtype)?.is_finite()
            }
            (Self::Integer(number), Some((least, most))) => (least..=most).contains(&number),
            _ => false,
        };
        if fits {
            return Ok(());
        }
        let number = match self {
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => format!("{number:?}"),
        };
        Err(fail(
            ErrorKind::InvalidArgument,
            format!("{option} is {number}, which {dtype} does not have"),
            "pass a number that the type has, or dtype= for another type",
        ))
    }

    fn is_finite(self) -> bool {
        !matches!(self, Self::Float(number) if !number.is_finite())
    }

    /// The number as an element of a type, as a float.
    fn rounded(self, dtype: DType) -> Result<f64> {
        let bytes = self.bytes(dtype)?;
        let mut rounded = [0; 16];
        let (from_layout, to_layout) = (Layout::dense(dtype.size(), &[1])?, Layout::dense(16, &[1])?);
        let from = CopySource { data: bytes.as_ptr(), dtype, layout: &from_layout, order: ByteOrder::Native };
        let to = CopyDestination { data: rounded.as_mut_ptr(), dtype: DType::Complex128, layout: &to_layout };
        // SAFETY: `convert` requires memory of the layouts that does not overlap: both arrays have sixteen bytes, the size of the
        // largest element.
        unsafe { convert(&from, &to, 1)? };
        Ok(f64::from_ne_bytes(std::array::from_fn(|index| rounded[index])))
    }
}

impl ColumnValues {
    /// The memory itself, if it can be read in place.
    fn in_place(&self) -> Result<Option<Tensor<Owner>>> {
        let ([chunk], None) = (&self.chunks[..], self.fill) else { return Ok(None) };
        let Some(tensor) = chunk.as_tensor()? else { return Ok(None) };
        // SAFETY: `map_owner` requires an owner that keeps the memory alive: the new one holds the first.
        Ok(Some(unsafe { tensor.map_owner(Owner::arrow) }))
    }

    /// The first work that a copy has to do.
    fn pending(&self) -> Pending {
        match self.chunks.first().map(Array::encoding) {
            _ if self.fill.is_some() => Pending::Nulls,
            Some(Encoding::Bits) => Pending::Bits,
            Some(Encoding::Dictionary) => Pending::Dictionary,
            _ => Pending::Chunks,
        }
    }
}

/// Reads a column: shared memory, or work to be done.
pub(crate) fn read<'py>(object: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    let column = object.cast::<ArrowColumn>().map_err(PyErr::from)?.get();
    let pending = match &column.content {
        _ if column.is_unread => Pending::Stream,
        ColumnContent::Values(values) => {
            if let Some(tensor) = values.in_place()? {
                if tensor.device().is_cuda() {
                    return Ok(Source { counts: column.counts, ..gpu_source(object, tensor)? });
                }
                // Arrow memory may be that of a NumPy array, which its owner writes.
                return Ok(Source {
                    counts: column.counts,
                    ..Source::in_place(object.clone(), "arrow", tensor)
                });
            }
            values.pending()
        }
        ColumnContent::Stack(_) => Pending::Stack,
        ColumnContent::Offsets(_) => Pending::Offsets,
        other if other.is_validity() => Pending::Validity,
        _ => Pending::Pad,
    };
    let (device, dtype) = (Device::CPU, column.dtype);
    let layout = Layout::dense(dtype.size(), &column.shape)?;
    Ok(Source {
        object: object.clone(),
        framework: "arrow",
        memory: SourceMemory::Pending { pending, device, dtype, layout, reads: None },
        mutability: SourceMutability::Temporary,
        through_array: false,
        counts: column.counts,
        streams: None,
    })
}

impl ArrowColumn {
    /// The column in new host memory, as `dtype`.
    pub(crate) fn gather(&self, py: Python<'_>, dtype: DType) -> Result<Tensor<Owner>> {
        let dtype = if self.content.is_validity() { DType::Bool } else { dtype };
        self.content.check_numbers(dtype)?;
        let array = NewArray::new(dtype, &self.shape)?;
        let layout = Layout::dense(dtype.size(), &self.shape)?;
        let data = array.data::<u8>();
        // SAFETY: `write` requires memory for the column: the array has its shape, and is new.
        let work = || unsafe { self.content.write(dtype, &self.shape, data.get(), settings::threads()) };
        if layout.bytes() < DETACH_THRESHOLD_BYTES {
            work()?
        } else {
            py.detach(work)?
        }
        // SAFETY: `tensor` requires that every element is written: the work has done so.
        Ok(unsafe { array.tensor() }?)
    }
}

impl ColumnContent {
    /// Whether the content is a mask, whose type is bool.
    fn is_validity(&self) -> bool {
        match self {
            Self::Validity(_) => true,
            Self::Padded { elements, .. } => elements.is_validity(),
            _ => false,
        }
    }

    /// Checks that the type of the result has the numbers that replace nulls and pad lists.
    fn check_numbers(&self, dtype: DType) -> Result<()> {
        let check = |values: &ColumnValues| values.fill.map_or(Ok(()), |fill| fill.check("nulls", dtype));
        match self {
            Self::Values(values) => check(values),
            Self::Stack(columns) => columns.iter().try_for_each(check),
            Self::Padded { elements, pad, .. } if !self.is_validity() => {
                pad.check("pad", dtype).and_then(|()| elements.check_numbers(dtype))
            }
            _ => Ok(()),
        }
    }

    /// Writes the column as a dense tensor.
    ///
    /// # Safety
    /// At `data` a dense tensor of the type and the shape is writable and aligned for the type, nothing else uses it, and the
    /// shape is that of the column. The type of validity is bool.
    unsafe fn write(
        &self,
        dtype: DType,
        shape: &[i64],
        data: *mut u8,
        threads: usize,
    ) -> tensorferry_core::Result<()> {
        match self {
            Self::Values(values) => {
                let fill = values.fill.map(|fill| fill.bytes(dtype)).transpose()?;
                let fill = fill.as_ref().map(|bytes| &bytes[..dtype.size()]);
                let layout = Layout::dense(dtype.size(), shape)?;
                let to = CopyDestination { data, dtype, layout: &layout };
                // SAFETY: `write_values` requires a destination of the layout that nothing else uses (the contract of `write`). The
                // fill is an element of the type.
                unsafe { write_values(&values.chunks, &to, fill, threads) }
            }
            // SAFETY: `write_validity` requires a byte for each element: the tensor is one of bool, and has the column's shape (the
            // contract of `write`).
            Self::Validity(chunks) => unsafe { write_validity(chunks, data, threads) },
            Self::Stack(columns) => {
                let fills =
                    columns.iter().map(|column| column.fill.map(|fill| fill.bytes(dtype)).transpose());
                let fills = fills.collect::<tensorferry_core::Result<Vec<_>>>()?;
                let columns: Vec<MatrixColumn<'_>> = columns
                    .iter()
                    .zip(&fills)
                    .map(|(column, fill)| MatrixColumn {
                        chunks: &column.chunks,
                        fill: fill.as_ref().map(|bytes| &bytes[..dtype.size()]),
                    })
                    .collect();
                // SAFETY: `write_matrix` requires an element for each row and column: the tensor has the shape of the matrix (the
                // contract of `write`).
                unsafe { write_matrix(&columns, dtype, data, threads) }
            }
            Self::Offsets(chunks) => {
                let count = shape.iter().product::<i64>() as usize;
                // SAFETY: the tensor has `count` numbers of the type and is aligned for it (the contract of `write`).
                unsafe {
                    match dtype {
                        DType::Int32 => {
                            write_offsets(chunks, slice::from_raw_parts_mut(data.cast::<i32>(), count))
                        }
                        _ => write_offsets(chunks, slice::from_raw_parts_mut(data.cast::<i64>(), count)),
                    }
                }
            }
            Self::Padded { lists, elements, pad } => {
                let axes = lists.shape().len();
                let element_bytes = shape[axes..].iter().product::<i64>() as usize * dtype.size();
                let pad = pad.bytes(dtype)?;
                let elements = elements.dense(dtype, &shape[axes..], threads)?;
                // SAFETY: `PaddedLists::write` requires the elements of all lists one after another, which `dense` returns, a pad of
                // one number, and a tensor of the lists' shape (the contract of `write`).
                unsafe { lists.write(elements.data(), element_bytes, &pad[..dtype.size()], data, threads) }
            }
        }
    }

    /// The elements of lists one after another: in their own memory, if it is so already, or in new memory.
    fn dense(&self, dtype: DType, row_shape: &[i64], threads: usize) -> tensorferry_core::Result<Elements> {
        if let Self::Values(ColumnValues { chunks, fill: None }) = self
            && let [chunk] = &chunks[..]
            && let Some(tensor) = chunk.as_tensor()?
            && tensor.dtype() == dtype
            && tensor.layout().is_dense()
        {
            return Ok(Elements::InPlace(tensor));
        }
        let rows = match self {
            Self::Values(ColumnValues { chunks, .. }) | Self::Validity(chunks) => {
                chunks.iter().map(Array::len).sum::<usize>()
            }
            _ => 0,
        };
        let shape = [&[rows as i64], row_shape].concat();
        let block = HostBlock::new(Layout::dense(dtype.size(), &shape)?.bytes())?;
        // SAFETY: the block is new, has the bytes of such a tensor, and is aligned for every type.
        unsafe { self.write(dtype, &shape, block.data(), threads)? };
        Ok(Elements::Copied(block))
    }
}

/// The elements of lists, one after another.
enum Elements {
    InPlace(Tensor<ArrayOwner>),
    Copied(HostBlock),
}

impl Elements {
    fn data(&self) -> *const u8 {
        match self {
            Self::InPlace(tensor) => tensor.data().cast_const(),
            Self::Copied(block) => block.data().cast_const(),
        }
    }
}

/// The error of an option that needs columns of one type.
pub(super) fn different_types(first: DType, other: DType) -> crate::errors::Failure {
    fail(
        ErrorKind::InvalidArgument,
        format!("the columns have the types {first} and {other}, and a matrix has one"),
        "pass a type as dtype=, such as \"float32\", or columns= of one type",
    )
}
