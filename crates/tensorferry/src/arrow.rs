//! Columns of the Arrow C data interface.
//!
//! The structs are those of the specification, <https://arrow.apache.org/docs/format/CDataInterface.html>. Each has a release
//! callback, which its last holder calls.

use crate::convert::threads;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::tensor::Tensor;
pub use tensorferry_arrow::abi::{ArrowArray, ArrowSchema};
use tensorferry_arrow::{Array, ColumnExport, Field, Owned, count_nulls, dense_lists, hints, write_values};
use tensorferry_core::host::HostBlock;
use tensorferry_core::pack::CopyDestination;
use tensorferry_core::{ByteOrder, Error as CoreError, ErrorKind, Layout};

impl Tensor {
    /// Imports a column of numbers, booleans, dates or times, of a dictionary of these, or of lists of these that have one
    /// length. The first axis has the rows.
    ///
    /// Numbers share the memory of the column, read-only; bits and dictionaries are unpacked to new memory. Both structs are
    /// moved: the caller's are released afterwards, also after an error.
    ///
    /// # Errors
    /// When a struct violates the interface, the column has nulls or no tensor, or memory runs out.
    ///
    /// # Safety
    /// - Both pointers are null or point to structs as the specification requires, that nothing else reads or releases
    ///   meanwhile.
    /// - The buffers are in host memory and as large as the type and the lengths require, and every value that is not null is
    ///   initialised. Nothing writes them until the array is released.
    pub unsafe fn from_arrow(schema: *mut ArrowSchema, array: *mut ArrowArray) -> Result<Self> {
        // SAFETY: the first clause of the contract of this function.
        let (schema, array) = unsafe { (Owned::take(schema), Owned::take(array)) };
        // SAFETY: the same clause: strings and children are as the specification requires.
        let field =
            unsafe { Field::from_schema(&schema.map_err(Error::from_core)?).map_err(Error::from_core)? };
        // SAFETY: the second clause of the contract of this function.
        let chunk =
            unsafe { Array::new(array.map_err(Error::from_core)?, &field).map_err(Error::from_core)? };
        let (field, chunks) = dense_lists(&field, vec![chunk]).map_err(Error::from_core)?;
        let nulls = count_nulls(&chunks).map_err(Error::from_core)?;
        if nulls > 0 {
            let fact = format!("column {:?} has {nulls} nulls", field.name);
            return Err(Error::from_core(
                CoreError::new(ErrorKind::InvalidTensor, fact).with_hint(hints::DROP_NULLS),
            ));
        }
        let Some(dtype) = field.dtype() else {
            return Err(Error::new(
                ErrorKind::UnsupportedDType,
                format!("column {:?} has no tensor: its type is {:?}", field.name, field.column),
                "convert it to numbers with the library that made it",
            ));
        };
        if let [chunk] = &chunks[..]
            && let Some(tensor) = chunk.as_tensor().map_err(Error::from_core)?
        {
            // SAFETY: the box of `Memory::other` holds the owner.
            let tensor = unsafe { tensor.map_owner(Memory::other) };
            // SAFETY: `as_tensor` returns read-only memory of the array. Its values are initialised, because there are no
            // nulls, and nothing writes them (the second clause of the contract of this function).
            return Ok(unsafe { Self::from_parts(tensor) });
        }
        let rows: usize = chunks.iter().map(Array::len).sum();
        let layout = Layout::dense(dtype.size(), &[&[rows as i64], &field.row_shape()[..]].concat())
            .map_err(Error::from_core)?;
        let block = HostBlock::zeroed(layout.bytes()).map_err(Error::from_core)?;
        let destination = CopyDestination { data: block.data(), dtype, layout: &layout };
        // SAFETY: the block is new and has the size of the dense layout, in which no two indices overlap.
        unsafe { write_values(&chunks, &destination, None, threads()).map_err(Error::from_core)? };
        // SAFETY: `zeroed` gave every byte of the block a value.
        unsafe { Self::from_block(block, dtype, layout, ByteOrder::Native) }
    }

    /// Exports the tensor as a column with one row for each index of its first axis. Rows with more than one element are
    /// lists of one length. The memory is shared; the structs keep it alive until the consumer releases them.
    ///
    /// ```
    /// use tensorferry::Tensor;
    ///
    /// let tensor = Tensor::from_vec(vec![1i64, 2, 3], &[3])?;
    /// let (mut schema, mut array) = tensor.into_arrow("x")?;
    /// // SAFETY: the export made both structs, and nothing else uses them.
    /// let column = unsafe { Tensor::from_arrow(&mut schema, &mut array)? };
    /// assert_eq!(column.as_slice::<i64>()?, [1, 2, 3]);
    /// # Ok::<(), tensorferry::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the tensor is not dense, has no axis, is not in host memory, or has a type that Arrow lacks.
    pub fn into_arrow(self, name: &str) -> Result<(ArrowSchema, ArrowArray)> {
        if !self.device().is_host() {
            let fact =
                format!("the tensor is on {}, and the C data interface has host memory", self.device());
            return Err(Error::from_core(
                CoreError::new(ErrorKind::UnsupportedDevice, fact).with_hint(hints::EXPORT_HOST_COPY),
            ));
        }
        let column = ColumnExport::new(name, self.into_parts()).map_err(Error::from_core)?;
        Ok((column.schema(), column.array()))
    }
}
