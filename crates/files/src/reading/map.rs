//! Memory maps of tensors in files: no byte is read before somebody looks.
//!
//! A [`MappedTensor`] keeps its memory by itself; the file may be closed, and replaced by another of its name. Read-only maps of
//! one opened file share one mapping of the whole file, so that a model of thousands of tensors is one mapping. Copy-on-write
//! maps each have their own, because what is written into one must not be seen in another.
//!
//! A map cannot be protected from a file that is overwritten in place: its bytes change below the reader, and if the file
//! becomes shorter, touching what is gone ends the process with SIGBUS. Files that tensorferry writes are replaced as a
//! whole, and a map keeps what it had. Where files are overwritten in place, read them instead.

use crate::fault::{bad, failed};
use crate::source::FileSource;
use memmap2::{MmapOptions, MmapRaw};
use std::ptr::NonNull;
use std::sync::Arc;
use tensorferry_core::{Access, Result};

/// What may be done to a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapMode {
    /// It may be read. Writing ends the process.
    ReadOnly,
    /// It may be written, which changes this map alone and never the file.
    CopyOnWrite,
}

impl MapMode {
    /// The same in the words of tensors.
    pub fn access(self) -> Access {
        match self {
            Self::ReadOnly => Access::ReadOnly,
            Self::CopyOnWrite => Access::ReadWrite,
        }
    }
}

/// What an empty tensor's data points to: aligned, not null, never read.
#[repr(align(64))]
struct Nothing;
static NOTHING: Nothing = Nothing;

#[derive(Debug)]
enum Keep {
    Shared(#[expect(dead_code, reason = "held for its drop")] Arc<MmapRaw>),
    Own(#[expect(dead_code, reason = "held for its drop")] MmapRaw),
    Nothing,
}

/// A tensor's bytes in memory, for as long as this or a clone of it lives.
#[derive(Clone, Debug)]
pub struct MappedTensor {
    data: NonNull<u8>,
    length: usize,
    kind: MapMode,
    _keep: Arc<Keep>,
}

// SAFETY: an address and what keeps it mapped. Reading and writing through it is for whoever holds the address, as with
// any tensor's memory; unmapping may happen on any thread.
unsafe impl Send for MappedTensor {}
// SAFETY: as above; nothing here changes through a shared reference.
unsafe impl Sync for MappedTensor {}

impl MappedTensor {
    pub(crate) fn empty(kind: MapMode) -> Self {
        Self { data: NonNull::from(&NOTHING).cast(), length: 0, kind, _keep: Arc::new(Keep::Nothing) }
    }

    /// A part of a mapping of the whole file.
    pub(crate) fn shared(map: &Arc<MmapRaw>, offset: usize, length: usize) -> Option<Self> {
        let end = offset.checked_add(length).filter(|&end| end <= map.len())?;
        Some(Self {
            data: NonNull::new(map.as_mut_ptr().wrapping_add(end - length))?,
            length,
            kind: MapMode::ReadOnly,
            _keep: Arc::new(Keep::Shared(map.clone())),
        })
    }

    /// A mapping of its own.
    pub(crate) fn own(source: &FileSource, offset: u64, length: usize) -> Result<Self> {
        let mut options = MmapOptions::new();
        options.offset(offset).len(length);
        // SAFETY: private to this process, so no write of ours reaches the file. Others may write to the file, so the map
        // becomes a raw one at once: no reference to the bytes is made.
        let map = unsafe { options.map_copy(source.file()) };
        let map = MmapRaw::from(map.map_err(|error| failed("it cannot be mapped", &error))?);
        let data = NonNull::new(map.as_mut_ptr()).ok_or_else(|| bad("its map has no address"))?;
        Ok(Self { data, length, kind: MapMode::CopyOnWrite, _keep: Arc::new(Keep::Own(map)) })
    }

    /// The first byte. It may be written only if the map is copy-on-write; an empty tensor's is not null.
    pub fn data(&self) -> *mut u8 {
        self.data.as_ptr()
    }

    /// How many bytes there are.
    pub fn length(&self) -> usize {
        self.length
    }

    /// What may be done to it.
    pub fn kind(&self) -> MapMode {
        self.kind
    }
}

/// A read-only mapping of a whole file.
pub(crate) fn whole(source: &FileSource) -> Result<Arc<MmapRaw>> {
    let mut options = MmapOptions::new();
    options.len(source.length() as usize);
    // A raw map: others may write to the file, so no reference to the bytes is made.
    let map = options.map_raw_read_only(source.file());
    Ok(Arc::new(map.map_err(|error| failed("it cannot be mapped", &error))?))
}
