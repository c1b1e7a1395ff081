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
use crate::errors::{invalid_file, io_error};
use memmap2::{MmapOptions, MmapRaw};
use std::ptr::NonNull;
use std::sync::Arc;
use tensorferry_core::{Access, Result};

/// The access that a map allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapMode {
    /// Reads only. A write kills the process.
    ReadOnly,
    /// Reads and writes. Writes change this map only, never the file.
    CopyOnWrite,
}

impl MapMode {
    /// The corresponding access of a tensor.
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

#[derive(Debug)]
enum Mapping {
    OfFile(#[expect(dead_code, reason = "held for its drop")] Arc<MmapRaw>),
    OfTensor(#[expect(dead_code, reason = "held for its drop")] MmapRaw),
    Empty,
}

/// The mapped bytes of a tensor. They stay mapped while this or a clone lives.
#[derive(Clone, Debug)]
pub struct MappedTensor {
    data: NonNull<u8>,
    length: usize,
    kind: MapMode,
    _mapping: Arc<Mapping>,
}

// SAFETY: an address and the owner of its mapping. Code that uses the address synchronises its accesses, as with any
// tensor's memory. Unmapping may happen on any thread.
unsafe impl Send for MappedTensor {}
// SAFETY: as above; nothing here changes through a shared reference.
unsafe impl Sync for MappedTensor {}

impl MappedTensor {
    pub(super) fn empty(kind: MapMode) -> Self {
        Self { data: NonNull::from(&EMPTY_DATA).cast(), length: 0, kind, _mapping: Arc::new(Mapping::Empty) }
    }

    /// A range of a mapping of the whole file.
    pub(super) fn within(map: &Arc<MmapRaw>, offset: usize, length: usize) -> Option<Self> {
        let end = offset.checked_add(length).filter(|&end| end <= map.len())?;
        Some(Self {
            data: NonNull::new(map.as_mut_ptr().wrapping_add(end - length))?,
            length,
            kind: MapMode::ReadOnly,
            _mapping: Arc::new(Mapping::OfFile(map.clone())),
        })
    }

    /// A private copy-on-write mapping of a range of the file.
    pub(super) fn copy_on_write(source: &FileSource, offset: u64, length: usize) -> Result<Self> {
        let mut options = MmapOptions::new();
        options.offset(offset).len(length);
        // SAFETY: the mapping is private, so no write of ours reaches the file. Others may write to the file, so the mapping
        // becomes a raw one at once: no reference to the bytes exists.
        let map = unsafe { options.map_copy(source.file()) };
        let map = MmapRaw::from(map.map_err(|error| io_error("cannot map the file", &error))?);
        let data =
            NonNull::new(map.as_mut_ptr()).ok_or_else(|| invalid_file("the mapping has no address"))?;
        Ok(Self { data, length, kind: MapMode::CopyOnWrite, _mapping: Arc::new(Mapping::OfTensor(map)) })
    }

    /// The address of the first byte. It may be written only if the map is copy-on-write. It is never null.
    pub fn data(&self) -> *mut u8 {
        self.data.as_ptr()
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

/// A read-only mapping of a whole file.
pub(super) fn map_whole_file(source: &FileSource) -> Result<Arc<MmapRaw>> {
    let mut options = MmapOptions::new();
    options.len(source.size() as usize);
    // A raw mapping: others may write to the file, so no reference to the bytes may exist.
    let map = options.map_raw_read_only(source.file());
    Ok(Arc::new(map.map_err(|error| io_error("cannot map the file", &error))?))
}
