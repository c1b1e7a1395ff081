//! Helpers that the tests of this crate share.
#![expect(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; each file uses some of them"
)]

use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use tensorferry_core::error::{Hint, HintKey};
use tensorferry_core::{ByteOrder, Error, ErrorKind, Result};
use tensorferry_files::{FileEntry, MapMode, MappedTensor, OpenOptions, TensorFile, open_file};

/// A temporary folder, removed when it is dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tensorferry-files-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        std::fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    /// The names of the files in the folder.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(&self.0)
            .unwrap()
            .map(|found| found.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A file in memory.
pub(crate) fn memory_file(bytes: &[u8]) -> File {
    let mut file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
    file.write_all(bytes).unwrap();
    file
}

/// Opens bytes as a file of this name.
pub(crate) fn open_bytes(name: &str, bytes: &[u8]) -> Result<TensorFile> {
    open_bytes_with(name, bytes, &OpenOptions::default())
}

pub(crate) fn open_bytes_with(name: &str, bytes: &[u8], options: &OpenOptions) -> Result<TensorFile> {
    open_file(memory_file(bytes), Path::new(name), options)
}

/// The error of opening these bytes.
pub(crate) fn open_error(name: &str, bytes: &[u8]) -> Error {
    open_bytes(name, bytes).err().unwrap_or_else(|| panic!("{name} was accepted"))
}

/// The hint key of an error.
pub(crate) fn hint_of(error: &Error) -> HintKey {
    match error.hint() {
        Some(Hint::Key(key, _)) => *key,
        other => panic!("{error}: {other:?} instead of a hint key"),
    }
}

/// Checks that an error is about an invalid file, with this hint and these numbers. `tests/golden` compares the wording.
pub(crate) fn assert_invalid(error: &Error, hint: HintKey, numbers: &[u64]) {
    assert_eq!((error.kind(), hint_of(error)), (ErrorKind::InvalidFile, hint), "{error}");
    assert_numbers(error, numbers);
}

/// Checks that the fact of an error contains these numbers.
pub(crate) fn assert_numbers(error: &Error, numbers: &[u64]) {
    let found: Vec<&str> = error.fact().split(|letter: char| !letter.is_ascii_digit()).collect();
    for number in numbers {
        assert!(found.contains(&number.to_string().as_str()), "{error}: {number} is missing");
    }
}

/// `count` bytes that a function of the crate writes.
fn read_bytes(count: usize, fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> Result<()>) -> Result<Vec<u8>> {
    let mut out = vec![MaybeUninit::new(0xAA); count];
    fill(&mut out)?;
    // SAFETY: `assume_init` needs a byte with a value. Each has one from the line above, and the functions of the crate write
    // values only.
    Ok(out.iter().map(|byte| unsafe { byte.assume_init() }).collect())
}

pub(crate) fn read(opened: &TensorFile, entry: &FileEntry, threads: usize) -> Result<Vec<u8>> {
    read_bytes(entry.bytes() as usize, |out| opened.read_into(entry, out, threads))
}

/// The bytes of a map. The tests change no file while they read a map of it.
pub(crate) fn mapped_bytes(mapped: &MappedTensor) -> &[u8] {
    // SAFETY: `from_raw_parts` needs memory that is readable and does not change while the slice lives. The map is
    // borrowed for as long, and keeps `length` bytes mapped at `data`. No test writes to a file or a map that it reads
    // here.
    unsafe { std::slice::from_raw_parts(mapped.data(), mapped.length()) }
}

/// Reads a tensor by every method, and checks that all results agree.
pub(crate) fn read_by_all_methods(opened: &TensorFile, entry: &FileEntry) -> Vec<u8> {
    let bytes = read(opened, entry, 1).unwrap();
    assert_eq!(read(opened, entry, 3).unwrap(), bytes);
    let mut stream = opened.stream(entry).unwrap();
    let mut streamed = Vec::new();
    for size in (1..).map(|step: usize| step * 7 % 61 + 1) {
        let count = size.min(stream.bytes_left() as usize);
        streamed.extend(read_bytes(count, |chunk| stream.read(chunk)).unwrap());
        if stream.bytes_left() == 0 {
            break;
        }
    }
    assert_eq!(streamed, bytes);
    for kind in [MapMode::ReadOnly, MapMode::CopyOnWrite] {
        let mapped = opened.map(entry, kind);
        assert_eq!(mapped.is_ok(), entry.is_stored());
        if let Ok(mapped) = mapped {
            assert!(!mapped.data().is_null());
            assert_eq!(mapped_bytes(&mapped), bytes);
        }
    }
    if entry.is_stored() && bytes.len() > 2 {
        assert_eq!(read_bytes(2, |pair| opened.read_at(entry, 1, pair)).unwrap(), bytes[1..3]);
    }
    bytes
}

/// The elements in row-major order and this machine's byte order.
pub(crate) fn to_row_major_native(entry: &FileEntry, bytes: &[u8]) -> Vec<u8> {
    let layout = entry.layout().unwrap();
    let mut offsets = vec![0i64];
    for (length, stride) in layout.shape().iter().zip(layout.strides()) {
        offsets = offsets.iter().flat_map(|start| (0..*length).map(move |i| start + i * stride)).collect();
    }
    let (size, unit) = (entry.dtype().size(), entry.dtype().swap_unit());
    let mut elements = Vec::new();
    for offset in offsets {
        for unit_bytes in bytes[offset as usize..][..size].chunks(unit) {
            match entry.order() {
                ByteOrder::Native => elements.extend(unit_bytes),
                ByteOrder::Swapped => elements.extend(unit_bytes.iter().rev()),
            }
        }
    }
    elements
}
