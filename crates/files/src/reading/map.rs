//! Memory maps of stored tensors.
//!
//! A [`MappedTensor`] owns its mapping: the file may be closed, or replaced by another of its name. The read-only maps of an
//! open file share one mapping of the whole file, so that a model of thousands of tensors needs one mapping. Copy-on-write
//! maps have one mapping each, because a write to one must not be visible in another.
//!
//! A map is not protected from a file that is overwritten in place: its bytes change under the reader. If the file is
//! truncated, an access past its end kills the process with SIGBUS. tensorferry replaces files as a whole, and a map keeps
//! the old contents. Files that others overwrite in place should be read instead.

use super::file_source::FileSource;
use crate::errors::io_error;
use crate::hints;
use memmap2::{MmapOptions, MmapRaw};
use std::io;
use std::sync::Arc;
use tensorferry_core::{Access, Error, Result};

/// The access that a map allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MapMode {
    /// Reads only. A write kills the process.
    ReadOnly,
    /// Reads and writes. Writes change this map only, never the file.
    CopyOnWrite,
}

impl MapMode {
    /// The corresponding access of a tensor.
    #[doc(hidden)]
    pub fn access(self) -> Access {
        match self {
            Self::ReadOnly => Access::ReadOnly,
            Self::CopyOnWrite => Access::ReadWrite,
        }
    }
}

/// The target of an empty tensor's data pointer: aligned, not null, never read.
#[repr(align(64))]
struct EmptyData;
static EMPTY_DATA: EmptyData = EmptyData;

/// What a tensor's bytes are a range of.
#[derive(Clone, Debug)]
enum Mapping {
    /// A mapping of the whole file, and the offset of the tensor in it.
    OfFile(Arc<MmapRaw>, usize),
    /// A mapping of the tensor alone.
    OfTensor(Arc<MmapRaw>),
    Empty,
}

/// The mapped bytes of a tensor. They stay mapped while this or a clone lives.
///
/// It gives out an address and no reference, because other processes may write to the file at any time:
///
/// ```compile_fail,E0308
/// fn bytes(tensor: &tensorferry_files::MappedTensor) -> &[u8] {
///     tensor.data()
/// }
/// ```
#[derive(Clone, Debug)]
pub struct MappedTensor {
    mapping: Mapping,
    length: usize,
    kind: MapMode,
}

impl MappedTensor {
    pub(super) fn empty(kind: MapMode) -> Self {
        Self { mapping: Mapping::Empty, length: 0, kind }
    }

    /// A range of a mapping of the whole file.
    pub(super) fn within(map: &Arc<MmapRaw>, offset: usize, length: usize) -> Option<Self> {
        offset.checked_add(length).filter(|&end| end <= map.len())?;
        Some(Self { mapping: Mapping::OfFile(map.clone(), offset), length, kind: MapMode::ReadOnly })
    }

    /// A private copy-on-write mapping of a range of the file.
    pub(super) fn copy_on_write(source: &FileSource, offset: u64, length: usize) -> Result<Self> {
        let mut options = MmapOptions::new();
        options.offset(offset).len(length);
        // SAFETY: `map_copy` needs a file that nobody changes or truncates while a reference to the bytes exists. The
        // next line makes a `MmapRaw` of the mapping, which gives out addresses only, so no reference ever exists.
        let map = unsafe { options.map_copy(source.file()) };
        let map = MmapRaw::from(map.map_err(not_mapped)?);
        Ok(Self { mapping: Mapping::OfTensor(Arc::new(map)), length, kind: MapMode::CopyOnWrite })
    }

    /// The address of the first byte. It may be written only if the map is copy-on-write. It is never null.
    pub fn data(&self) -> *mut u8 {
        match &self.mapping {
            Mapping::OfFile(map, offset) => map.as_mut_ptr().wrapping_add(*offset),
            Mapping::OfTensor(map) => map.as_mut_ptr(),
            Mapping::Empty => (&raw const EMPTY_DATA).cast_mut().cast(),
        }
    }

    /// The number of bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The access that the map allows.
    pub fn mode(&self) -> MapMode {
        self.kind
    }
}

/// The error of a map that failed, such as the 65,530th of a process, which is the limit of Linux.
fn not_mapped(error: io::Error) -> Error {
    io_error("cannot map the file", &error).with_hint(hints::READ_INSTEAD_OF_MAPPING)
}

/// A read-only mapping of a whole file.
pub(super) fn map_whole_file(source: &FileSource) -> Result<Arc<MmapRaw>> {
    let mut options = MmapOptions::new();
    options.len(source.size() as usize);
    // A raw mapping: others may write to the file, so no reference to the bytes may exist.
    let map = options.map_raw_read_only(source.file());
    Ok(Arc::new(map.map_err(not_mapped)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The owner of a mapped tensor may be dropped on any thread, and several threads may read its address.
    #[test]
    fn maps_cross_threads() {
        fn is_shareable<T: Send + Sync>() {}
        is_shareable::<MappedTensor>();
        let empty = MappedTensor::empty(MapMode::ReadOnly);
        assert!(empty.data().addr().is_multiple_of(64) && !empty.data().is_null());
    }
}
