//! Lists of different lengths: as elements and offsets, or padded to a tensor.

use crate::array::{Array, Content};
use crate::errors::invalid_struct;
use crate::gather::{Output, blocks, for_each_block};
use crate::hints;
use crate::schema::{Column, Field};
use tensorferry_core::host::HostBlock;
use tensorferry_core::plan::count_noun;
use tensorferry_core::{Error, ErrorKind, Result};

/// The elements of the lists of each chunk, without those that no list uses.
///
/// # Errors
/// When a list is null.
pub fn list_elements(chunks: &[Array]) -> Result<Vec<Array>> {
    let nulls: usize = chunks.iter().map(Array::count_nulls).sum();
    if nulls > 0 {
        let verb = if nulls == 1 { "is" } else { "are" };
        let fact = format!("{} {verb} null", count_noun(nulls, "list"));
        return Err(Error::new(ErrorKind::NotATensor, fact).with_hint(hints::DROP_NULLS));
    }
    let elements = chunks.iter().filter_map(|chunk| match chunk.content() {
        Content::Lists { offsets, child } => {
            let (first, end) = offsets.range();
            Some(child.slice(first, end - first))
        }
        _ => None,
    });
    Ok(elements.collect())
}

/// Writes where each list begins among the elements of all chunks, and after them where the last one ends.
///
/// # Errors
/// When `out` is not as long, or its type cannot count the elements.
pub fn write_offsets<T: TryFrom<usize>>(chunks: &[Array], out: &mut [T]) -> Result<()> {
    let lists: usize = chunks.iter().map(Array::len).sum();
    if out.len() != lists + 1 {
        return Err(invalid_struct(format!("{lists} lists do not fit {} offsets", out.len())));
    }
    let convert = |offset: usize| {
        T::try_from(offset).map_err(|_| {
            let fact = format!(
                "the lists have more than {offset} elements, which {}-bit offsets cannot count",
                8 * size_of::<T>()
            );
            Error::new(ErrorKind::InvalidArgument, fact).with_hint(hints::SPLIT_LISTS)
        })
    };
    let mut written = out.iter_mut();
    let mut before = 0;
    for chunk in chunks {
        let Content::Lists { offsets, .. } = chunk.content() else { continue };
        let (first, end) = offsets.range();
        for (index, offset) in written.by_ref().take(chunk.len()).enumerate() {
            *offset = convert(before + offsets.get(index) as usize - first)?;
        }
        before += end - first;
    }
    for offset in written {
        *offset = convert(before)?;
    }
    Ok(())
}

/// Lists that a tensor holds with padding, at one or more levels.
#[derive(Clone, Debug)]
pub struct PaddedLists {
    /// The outermost level first.
    levels: Vec<Level>,
}

/// The lists of one level.
#[derive(Clone, Debug)]
struct Level {
    chunks: Vec<Array>,
    /// The length of the longest list.
    width: usize,
}

impl PaddedLists {
    /// The lists of a column, and what their elements are; `None` for a column without lists.
    ///
    /// # Errors
    /// When a list is null.
    pub fn new(field: &Field, chunks: &[Array]) -> Result<Option<(Self, Field, Vec<Array>)>> {
        let mut levels = Vec::new();
        let (mut field, mut chunks) = (field, chunks.to_vec());
        while let Column::Lists { child, .. } = &field.column {
            let elements = list_elements(&chunks)?;
            let width = chunks.iter().map(longest_list).max().unwrap_or(0);
            levels.push(Level { chunks, width });
            (field, chunks) = (child, elements);
        }
        Ok((!levels.is_empty()).then(|| (Self { levels }, field.clone(), chunks)))
    }

    /// The shape of the tensor, but for the axes of one element.
    pub fn shape(&self) -> Vec<i64> {
        let rows = self.levels.first().map_or(0, |level| level.chunks.iter().map(Array::len).sum());
        let widths = self.levels.iter().map(|level| level.width as i64);
        std::iter::once(rows as i64).chain(widths).collect()
    }

    /// Writes all lists to a tensor, and the padding after each of them.
    ///
    /// # Errors
    /// When memory runs out.
    ///
    /// # Safety
    /// At `elements` are the elements of all lists, one after another, of `element_bytes` bytes each. A multiple of the length of
    /// `pad` is `element_bytes`. At `out` the bytes of a tensor of this [`shape`](Self::shape) and such elements are writable, and
    /// nothing else uses them.
    pub unsafe fn write(
        &self,
        elements: *const u8,
        element_bytes: usize,
        pad: &[u8],
        out: *mut u8,
        threads: usize,
    ) -> Result<()> {
        let (mut from, mut bytes) = (elements, element_bytes);
        // Keeps the tensor of the level below alive while it is read.
        let mut below: Option<HostBlock> = None;
        for (number, level) in self.levels.iter().enumerate().rev() {
            let rows: usize = level.chunks.iter().map(Array::len).sum();
            let block = match number {
                0 => None,
                _ => Some(HostBlock::new(rows * level.width * bytes)?),
            };
            let to = block.as_ref().map_or(out, HostBlock::data);
            // SAFETY: `write_level` requires the elements of the level's lists, of `bytes` bytes each: those of the caller, or the
            // tensor of the level below, whose rows are the elements of this level. The destination is that of the caller or a new
            // block, and has `width` elements for each list.
            unsafe { write_level(level, from, bytes, pad, to, threads)? };
            (from, bytes) = (to.cast_const(), level.width * bytes);
            below = block;
        }
        drop(below);
        Ok(())
    }
}

/// The length of the longest list.
fn longest_list(chunk: &Array) -> usize {
    let Content::Lists { offsets, .. } = chunk.content() else { return 0 };
    (0..chunk.len()).map(|index| (offsets.get(index + 1) - offsets.get(index)) as usize).max().unwrap_or(0)
}

/// Writes the lists of one level.
///
/// # Safety
/// As [`PaddedLists::write`], for a tensor of one row of `width` elements for each list.
unsafe fn write_level(
    level: &Level,
    elements: *const u8,
    bytes: usize,
    pad: &[u8],
    out: *mut u8,
    threads: usize,
) -> Result<()> {
    let row_bytes = level.width * bytes;
    if row_bytes == 0 {
        return Ok(());
    }
    // The first element of each chunk in its child, and the number of elements of the chunks before it.
    let mut starts = Vec::with_capacity(level.chunks.len());
    let mut before = 0;
    for chunk in &level.chunks {
        let Content::Lists { offsets, .. } = chunk.content() else { return Err(not_lists()) };
        let (first, end) = offsets.range();
        starts.push((first, before));
        before += end - first;
    }
    let (from, to) = (Output(elements.cast_mut()), Output(out));
    for_each_block(&blocks(&level.chunks, row_bytes), threads, |block| {
        let Content::Lists { offsets, .. } = block.rows.content() else { return Err(not_lists()) };
        let (first, before) = starts[block.chunk];
        for index in 0..block.rows.len() {
            let (start, end) = (offsets.get(index) as usize, offsets.get(index + 1) as usize);
            let used = (end - start) * bytes;
            let row = to.row(block.first_row + index, row_bytes as i64);
            // SAFETY: `Array::new` checked that offsets ascend within the child, so that these elements are some of all lists'. The
            // row is that of no other list (`blocks`), has `width` elements, and no list is longer (`PaddedLists::new`).
            unsafe {
                row.copy_from_nonoverlapping(from.row(before + start - first, bytes as i64), used);
                fill(row.add(used), row_bytes - used, pad);
            }
        }
        Ok(())
    })
}

fn not_lists() -> Error {
    invalid_struct("a chunk of the column has no lists")
}

/// Repeats a pattern.
///
/// # Safety
/// `bytes` bytes are writable at `out`, nothing else uses them, and they are a multiple of the pattern's length.
unsafe fn fill(out: *mut u8, bytes: usize, pattern: &[u8]) {
    for at in (0..bytes).step_by(pattern.len().max(1)) {
        // SAFETY: `at + pattern.len()` is at most `bytes`, which is a multiple of the pattern's length (the contract of `fill`).
        unsafe { out.add(at).copy_from_nonoverlapping(pattern.as_ptr(), pattern.len()) };
    }
}
