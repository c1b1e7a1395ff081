//! Writes the chunks of a column to one tensor, in one pass: values, and their validity.
//!
//! Numbers without nulls are copied by the copy engine. Everything else is written in the order of the column, a block of rows at
//! a time: bits are unpacked, codes are looked up, nulls are filled. If the axes of the tensors are permuted, a block is then
//! copied to the result.

use crate::array::{Array, Content, Values};
use crate::errors::invalid_struct;
use crate::schema::{Column, Field};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tensorferry_core::host::HostBlock;
use tensorferry_core::pack::{CopyDestination, CopySource, convert};
use tensorferry_core::{ByteOrder, DType, Error, ErrorKind, Layout, Result, workers};

/// The elements that a thread writes at a time: enough to pay for the start, few enough for the cache.
const BLOCK_ELEMENTS: usize = 1 << 16;

/// The bytes of a matrix that a thread writes at a time: they stay in its cache.
const MATRIX_BLOCK_BYTES: usize = 256 << 10;

impl Field {
    /// The type of the elements of a tensor of this column; `None` if the column has no tensor.
    pub fn dtype(&self) -> Option<DType> {
        match &self.column {
            Column::Numbers(dtype) | Column::Temporal { dtype, .. } => Some(*dtype),
            Column::Bits => Some(DType::Bool),
            Column::Tensors { child, .. } => child.dtype(),
            Column::Dictionary { values, .. } => match values.column {
                Column::Numbers(dtype) | Column::Temporal { dtype, .. } => Some(dtype),
                Column::Bits => Some(DType::Bool),
                _ => None,
            },
            Column::Lists { .. } | Column::Structs(_) | Column::Nulls | Column::Unsupported { .. } => None,
        }
    }

    /// The shape of one row.
    pub fn row_shape(&self) -> Vec<i64> {
        match &self.column {
            Column::Tensors { child, shape, .. } => [shape.clone(), child.row_shape()].concat(),
            _ => Vec::new(),
        }
    }
}

/// The number of nulls in the chunks of a column, in tensors and dictionaries too.
///
/// # Errors
/// When a code is not in its dictionary.
pub fn count_nulls(chunks: &[Array]) -> Result<usize> {
    chunks.iter().map(count_chunk_nulls).sum()
}

fn count_chunk_nulls(chunk: &Array) -> Result<usize> {
    let own = chunk.count_nulls();
    match chunk.content() {
        Content::Tensors { child, .. } => Ok(own + count_chunk_nulls(child)?),
        Content::Dictionary { codes, values, .. } if values.count_nulls() > 0 => {
            let mut count = 0;
            for index in 0..chunk.len() {
                count += usize::from(value_index(chunk, *codes, values, index)?.is_none());
            }
            Ok(count)
        }
        _ => Ok(own),
    }
}

/// The index of the value of an element in the dictionary; `None` if the element is null.
fn value_index(chunk: &Array, codes: Values, values: &Array, index: usize) -> Result<Option<usize>> {
    if chunk.validity().is_some_and(|bits| !bits.get(index)) {
        return Ok(None);
    }
    // SAFETY: callers pass an index below the length of the chunk, for whose codes there is memory (`Array::new`).
    let code = unsafe { codes.integer(index) };
    match usize::try_from(code) {
        Ok(code) if code < values.len() => {
            Ok(values.validity().is_none_or(|bits| bits.get(code)).then_some(code))
        }
        _ => Err(invalid_struct(format!("a code is {code}, and the dictionary has {} values", values.len()))),
    }
}

impl Values {
    /// One of the integers; zero for other types.
    ///
    /// # Safety
    /// There are more than `index` numbers.
    unsafe fn integer(self, index: usize) -> i128 {
        let at = self.data.wrapping_add(index * self.dtype.size());
        // SAFETY: the number exists (the contract of `integer`). Arrow does not guarantee its alignment.
        unsafe {
            match self.dtype {
                DType::Int8 => i128::from(at.cast::<i8>().read_unaligned()),
                DType::UInt8 => i128::from(at.read_unaligned()),
                DType::Int16 => i128::from(at.cast::<i16>().read_unaligned()),
                DType::UInt16 => i128::from(at.cast::<u16>().read_unaligned()),
                DType::Int32 => i128::from(at.cast::<i32>().read_unaligned()),
                DType::UInt32 => i128::from(at.cast::<u32>().read_unaligned()),
                DType::Int64 => i128::from(at.cast::<i64>().read_unaligned()),
                DType::UInt64 => i128::from(at.cast::<u64>().read_unaligned()),
                _ => 0,
            }
        }
    }
}

/// A block of rows of one chunk.
pub(crate) struct Block {
    /// The rows.
    pub(crate) rows: Array,
    /// The number of the chunk.
    pub(crate) chunk: usize,
    /// The first row in the chunk.
    start: usize,
    /// The first row in the destination.
    pub(crate) first_row: usize,
}

/// Divides chunks into blocks of rows.
pub(crate) fn blocks(chunks: &[Array], elements_per_row: usize) -> Vec<Block> {
    let rows_per_block = (BLOCK_ELEMENTS / elements_per_row.max(1)).max(1);
    let mut blocks = Vec::new();
    let mut first_row = 0;
    for (number, chunk) in chunks.iter().enumerate() {
        for start in (0..chunk.len()).step_by(rows_per_block) {
            let rows = chunk.slice(start, rows_per_block);
            blocks.push(Block { rows, chunk: number, start, first_row: first_row + start });
        }
        first_row += chunk.len();
    }
    blocks
}

/// Runs a task for each block, on at most `threads` threads.
pub(crate) fn for_each_block(
    blocks: &[Block],
    threads: usize,
    task: impl Fn(&Block) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    workers::run_parallel(threads.min(blocks.len()), || {
        // Relaxed: only the number matters; the end of a job publishes what its helpers wrote.
        while let Some(block) = blocks.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = task(block) {
                failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(error);
                return;
            }
        }
    });
    match failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// A pointer that threads share. Each writes other rows.
#[derive(Clone, Copy)]
pub(crate) struct Output(pub(crate) *mut u8);

// SAFETY: `for_each_block` gives each block to one thread, and blocks have no row in common.
unsafe impl Send for Output {}
// SAFETY: as for `Send`.
unsafe impl Sync for Output {}

impl Output {
    /// Where a row begins.
    pub(crate) fn row(self, number: usize, stride: i64) -> *mut u8 {
        self.0.wrapping_offset((number as i64 * stride) as isize)
    }
}

/// Writes the values of all chunks to a tensor, one chunk after another. Nulls get the value of `fill`, one element of the
/// destination's type, or any value without one.
///
/// # Errors
/// When the shapes differ, the column has no tensor or is on a GPU, a code is not in its dictionary, or memory runs out.
///
/// # Safety
/// The destination is writable over the whole extent of its layout, nothing else uses it meanwhile, it does not overlap the
/// chunks, no two of its indices reach the same byte, and `fill` has as many bytes as an element of it.
pub unsafe fn write_values(
    chunks: &[Array],
    destination: &CopyDestination<'_>,
    fill: Option<&[u8]>,
    threads: usize,
) -> Result<()> {
    chunks.iter().try_for_each(Array::check_on_host)?;
    let (shape, strides) = (destination.layout.shape(), destination.layout.strides());
    let total: usize = chunks.iter().map(Array::len).sum();
    if shape.first() != Some(&(total as i64)) {
        return Err(invalid_struct(format!("{total} rows do not fit a tensor of shape {shape:?}")));
    }
    let (row_shape, row_stride) = (&shape[1..], strides[0]);
    let (dtype, item) = (destination.dtype, destination.dtype.size());
    let elements_per_row = row_shape.iter().product::<i64>() as usize;
    let output = Output(destination.data);
    let layout_of = |rows: usize| Layout::strided(item, &[&[rows as i64], row_shape].concat(), strides);
    if elements_per_row == 0 {
        return Ok(());
    }
    let has_nulls = fill.is_some() && count_nulls(chunks)? > 0;
    if !has_nulls && let Some(tensors) = as_tensors(chunks)? {
        let mut first_row = 0;
        for tensor in &tensors {
            let rows = tensor.layout().shape()[0] as usize;
            let layout = layout_of(rows)?;
            let from = CopySource {
                data: tensor.data(),
                dtype: tensor.dtype(),
                layout: tensor.layout(),
                order: ByteOrder::Native,
            };
            let data = output.row(first_row, row_stride);
            let to = CopyDestination { data, dtype, layout: &layout };
            // SAFETY: the tensor is readable while the chunk lives. The destination is some rows of one that is writable, that
            // nothing else uses and that does not overlap the chunks (the contract of `write_values`).
            unsafe { convert(&from, &to, threads)? };
            first_row += rows;
        }
        return Ok(());
    }
    let dictionaries = Dictionaries::decode(chunks, dtype)?;
    for_each_block(&blocks(chunks, elements_per_row), threads, |block| {
        let layout = layout_of(block.rows.len())?;
        let data = output.row(block.first_row, row_stride);
        let to = CopyDestination { data, dtype, layout: &layout };
        // SAFETY: the rows of a block are those of no other. They are writable, and nothing else uses them (the contract of
        // `write_values`). The dictionary is that of the chunk.
        unsafe { write_block(&block.rows, &to, fill, dictionaries.of_chunk(block.chunk)) }
    })
}

/// The values of the dictionaries of chunks, in the type of the destination.
struct Dictionaries(Vec<Option<HostBlock>>);

impl Dictionaries {
    fn decode(chunks: &[Array], dtype: DType) -> Result<Self> {
        let decoded = chunks.iter().map(|chunk| match chunk.axes().base.content() {
            Content::Dictionary { values, .. } => {
                let block = HostBlock::new(values.len() * dtype.size())?;
                // SAFETY: the block has room for each value of the dictionary.
                unsafe { write_elements(values, values, block.data(), dtype, None, None)? };
                Ok(Some(block))
            }
            _ => Ok(None),
        });
        decoded.collect::<Result<Vec<_>>>().map(Self)
    }

    fn of_chunk(&self, number: usize) -> Option<&HostBlock> {
        self.0.get(number).and_then(Option::as_ref)
    }
}

/// A column of a matrix: its chunks, and what nulls become.
#[derive(Clone, Copy, Debug)]
pub struct MatrixColumn<'a> {
    /// The chunks.
    pub chunks: &'a [Array],
    /// One element of the matrix's type; any value without one.
    pub fill: Option<&'a [u8]>,
}

/// Writes columns to a row-major matrix. Each thread writes all columns of a block of rows, so that the block stays in its cache.
///
/// # Errors
/// When the columns have chunks of different lengths or rows that are not single numbers, and as [`write_values`].
///
/// # Safety
/// A row for each row of the columns, with an element of the type for each column, is writable at `out`, and nothing else uses
/// the memory meanwhile. Each fill has as many bytes as an element.
pub unsafe fn write_matrix(
    columns: &[MatrixColumn<'_>],
    dtype: DType,
    out: *mut u8,
    threads: usize,
) -> Result<()> {
    columns.iter().flat_map(|column| column.chunks).try_for_each(Array::check_on_host)?;
    let Some(first) = columns.first() else { return Ok(()) };
    let lengths = |column: &MatrixColumn<'_>| column.chunks.iter().map(Array::len).collect::<Vec<_>>();
    if columns.iter().any(|column| lengths(column) != lengths(first)) {
        return Err(invalid_struct("the columns of a table have chunks of different lengths"));
    }
    let item = dtype.size();
    let row_bytes = columns.len() * item;
    let rows_per_block = (MATRIX_BLOCK_BYTES / row_bytes).max(1);
    let output = Output(out);
    let decode = |column: &MatrixColumn<'_>| Dictionaries::decode(column.chunks, dtype);
    let dictionaries = columns.iter().map(decode).collect::<Result<Vec<_>>>()?;
    let numbered = blocks(first.chunks, BLOCK_ELEMENTS / rows_per_block.min(BLOCK_ELEMENTS));
    for_each_block(&numbered, threads, |block| {
        let rows = block.rows.len();
        // The columns one after another, which the copy engine then transposes.
        let gathered = HostBlock::new(rows * row_bytes)?;
        let column_bytes = (rows * item) as i64;
        let layout = Layout::dense(item, &[rows as i64])?;
        for (number, column) in columns.iter().enumerate() {
            let values = column.chunks[block.chunk].slice(block.start, rows);
            let data = Output(gathered.data()).row(number, column_bytes);
            let to = CopyDestination { data, dtype, layout: &layout };
            // SAFETY: the block has room for `rows` elements of each column, and is new. The dictionary is that of the chunk.
            unsafe { write_block(&values, &to, column.fill, dictionaries[number].of_chunk(block.chunk))? };
        }
        let shape = [rows as i64, columns.len() as i64];
        let transposed = Layout::strided(item, &shape, &[item as i64, column_bytes])?;
        let dense = Layout::dense(item, &shape)?;
        let data = gathered.data();
        let from = CopySource { data, dtype, layout: &transposed, order: ByteOrder::Native };
        let data = output.row(block.first_row, row_bytes as i64);
        let to = CopyDestination { data, dtype, layout: &dense };
        // SAFETY: the loop has written all elements of the source. The destination has the rows of no other block, which are writable
        // and which nothing else uses (the contract of `write_matrix`).
        unsafe { convert(&from, &to, 1) }
    })
}

/// The chunks as tensors over their memory; `None` if one is not numbers.
fn as_tensors(chunks: &[Array]) -> Result<Option<Vec<tensorferry_core::Tensor<crate::ArrayOwner>>>> {
    chunks.iter().map(Array::as_tensor).collect()
}

/// Writes some rows.
///
/// # Safety
/// As [`write_values`], for these rows. `dictionary` has the values of their dictionary, in the type of the destination.
unsafe fn write_block(
    rows: &Array,
    destination: &CopyDestination<'_>,
    fill: Option<&[u8]>,
    dictionary: Option<&HostBlock>,
) -> Result<()> {
    if (fill.is_none() || count_chunk_nulls(rows)? == 0)
        && let Some(tensor) = rows.as_tensor()?
    {
        let (data, layout) = (tensor.data().cast_const(), tensor.layout());
        let from = CopySource { data, dtype: tensor.dtype(), layout, order: ByteOrder::Native };
        // SAFETY: the tensor is readable while the rows live. The destination is writable and does not overlap it (the contract of
        // `write_block`).
        return unsafe { convert(&from, destination, 1) };
    }
    let axes = rows.axes();
    let (dtype, item) = (destination.dtype, destination.dtype.size());
    let count = axes.base.len();
    let strides: Vec<i64> = axes.strides.iter().map(|stride| stride * item as i64).collect();
    let layout = Layout::strided(item, &axes.shape, &strides)?;
    if layout.is_dense() && destination.layout.is_dense() {
        // SAFETY: a dense destination has room for `count` elements, one after another (the contract of `write_block`).
        return unsafe { write_elements(rows, axes.base, destination.data, dtype, fill, dictionary) };
    }
    let block = HostBlock::new(count * item)?;
    // SAFETY: the block has room for `count` elements and nothing else uses it.
    unsafe { write_elements(rows, axes.base, block.data(), dtype, fill, dictionary)? };
    let from = CopySource { data: block.data(), dtype, layout: &layout, order: ByteOrder::Native };
    // SAFETY: the layout has the elements of the block, which are written. The destination is writable and does not overlap it (the
    // contract of `write_block`).
    unsafe { convert(&from, destination, 1) }
}

/// Writes the elements of some rows in the order of the column.
///
/// # Safety
/// As many elements of the type as the base has are writable at `out`, and nothing else uses them. `dictionary` has the values of
/// the base's dictionary, in this type.
unsafe fn write_elements(
    rows: &Array,
    base: &Array,
    out: *mut u8,
    dtype: DType,
    fill: Option<&[u8]>,
    dictionary: Option<&HostBlock>,
) -> Result<()> {
    let (count, item) = (base.len(), dtype.size());
    match base.content() {
        Content::Values(values) if values.dtype == DType::Bool => {
            // A byte that is not zero is true.
            let bytes = HostBlock::new(count)?;
            // SAFETY: the values exist (`Array::new`), the block has a byte for each, and there is room for as many elements (the
            // contract of `write_elements`).
            unsafe {
                cast(values.data, DType::UInt8, bytes.data(), DType::Bool, count)?;
                cast(bytes.data(), DType::Bool, out, dtype, count)?;
            }
        }
        // SAFETY: the values exist (`Array::new`), and there is room for them (the contract of `write_elements`).
        Content::Values(values) => unsafe { cast(values.data, values.dtype, out, dtype, count)? },
        Content::Bits(bits) if dtype == DType::Bool => {
            // SAFETY: there is room for a byte for each bit (the contract of `write_elements`).
            unsafe { bits.unpack(out) };
        }
        Content::Bits(bits) => {
            let bytes = HostBlock::new(count)?;
            // SAFETY: the block has a byte for each bit, and there is room for as many elements (the contract of
            // `write_elements`).
            unsafe {
                bits.unpack(bytes.data());
                cast(bytes.data(), DType::Bool, out, dtype, count)?;
            }
        }
        Content::Dictionary { codes, values, .. } => {
            let decoded = dictionary.map(HostBlock::data);
            for index in 0..count {
                let element = out.wrapping_add(index * item);
                let value = value_index(base, *codes, values, index)?;
                // SAFETY: the source is a value of the dictionary or of the fill, of `item` bytes. There is room for element
                // `index` (the contract of `write_elements`).
                unsafe {
                    match (value, decoded, fill) {
                        (Some(code), Some(decoded), _) => {
                            decoded.add(code * item).copy_to_nonoverlapping(element, item);
                        }
                        (_, _, Some(fill)) => fill.as_ptr().copy_to_nonoverlapping(element, item),
                        _ => element.write_bytes(0, item),
                    }
                }
            }
        }
        _ => {
            return Err(Error::new(ErrorKind::UnsupportedDType, "the column has no tensor"));
        }
    }
    if let Some(fill) = fill {
        for_each_null(rows, |first, elements| {
            for index in first..first + elements {
                // SAFETY: the fill has `item` bytes, and there is room for element `index` (the contract of `write_elements`).
                unsafe { fill.as_ptr().copy_to_nonoverlapping(out.add(index * item), item) };
            }
        });
    }
    Ok(())
}

/// Casts `count` numbers.
///
/// # Safety
/// As many numbers of the types are readable at `from` and writable at `out`, which do not overlap.
unsafe fn cast(from: *const u8, from_type: DType, out: *mut u8, dtype: DType, count: usize) -> Result<()> {
    let from_layout = Layout::dense(from_type.size(), &[count as i64])?;
    let to_layout = Layout::dense(dtype.size(), &[count as i64])?;
    let from = CopySource { data: from, dtype: from_type, layout: &from_layout, order: ByteOrder::Native };
    let to = CopyDestination { data: out, dtype, layout: &to_layout };
    // SAFETY: the layouts are `count` numbers of their types (the contract of `cast`).
    unsafe { convert(&from, &to, 1) }
}

/// Calls a function with the first element and the number of elements of each null, in tensors too. Nulls of dictionaries are
/// not among them.
fn for_each_null(rows: &Array, mut visit: impl FnMut(usize, usize)) {
    let mut array = rows;
    let total = rows.axes().base.len();
    loop {
        let elements = total.checked_div(array.len()).unwrap_or(0);
        if let Some(bits) = array.validity() {
            bits.for_each_zero(|index| visit(index * elements, elements));
        }
        match array.content() {
            Content::Tensors { child, .. } => array = child,
            _ => return,
        }
    }
}

/// Writes a byte for each element of the chunks, in row-major order: 1 where it is valid, 0 where it is null.
///
/// # Errors
/// When a code is not in its dictionary, or memory runs out.
///
/// # Safety
/// A byte for each element is writable at `out`, and nothing else uses them.
pub unsafe fn write_validity(chunks: &[Array], out: *mut u8, threads: usize) -> Result<()> {
    let elements = |chunk: &Array| chunk.axes().shape[1..].iter().product::<i64>() as usize;
    let elements_per_row = chunks.first().map_or(0, elements);
    if elements_per_row == 0 {
        return Ok(());
    }
    if chunks.iter().any(|chunk| elements(chunk) != elements_per_row) {
        return Err(invalid_struct("the chunks of the column have rows of different sizes"));
    }
    let output = Output(out);
    for_each_block(&blocks(chunks, elements_per_row), threads, |block| {
        let start = output.row(block.first_row, elements_per_row as i64);
        let axes = block.rows.axes();
        let layout = Layout::strided(1, &axes.shape, &axes.strides)?;
        if layout.is_dense() {
            // SAFETY: there is a byte for each element of the block (the contract of `write_validity`).
            return unsafe { write_element_validity(&block.rows, axes.base, start) };
        }
        let bytes = HostBlock::new(axes.base.len())?;
        let dense = Layout::dense(1, &axes.shape)?;
        let (data, dtype) = (bytes.data().cast_const(), DType::Bool);
        let from = CopySource { data, dtype, layout: &layout, order: ByteOrder::Native };
        let to = CopyDestination { data: start, dtype, layout: &dense };
        // SAFETY: the block has a byte for each element, which is written before it is read. The destination has as many (the
        // contract of `write_validity`).
        unsafe {
            write_element_validity(&block.rows, axes.base, bytes.data())?;
            convert(&from, &to, 1)
        }
    })
}

/// Writes a byte for each element of some rows, in the order of the column.
///
/// # Safety
/// A byte for each element of the base is writable at `out`, and nothing else uses them.
unsafe fn write_element_validity(rows: &Array, base: &Array, out: *mut u8) -> Result<()> {
    match rows.validity() {
        Some(bits) if !matches!(rows.content(), Content::Tensors { .. }) => {
            // SAFETY: there is a byte for each element (the contract of this function).
            unsafe { bits.unpack(out) };
        }
        _ => {
            // SAFETY: as above.
            unsafe { out.write_bytes(1, base.len()) };
            for_each_null(rows, |first, count| {
                // SAFETY: `for_each_null` passes elements of the rows, for which there are bytes.
                unsafe { out.add(first).write_bytes(0, count) };
            });
        }
    }
    if let Content::Dictionary { codes, values, .. } = base.content() {
        for index in 0..base.len() {
            if value_index(base, *codes, values, index)?.is_none() {
                // SAFETY: as above.
                unsafe { *out.add(index) = 0 };
            }
        }
    }
    Ok(())
}
