//! Helpers that the fuzz targets share: open bytes as a file, and read the tensors by every method.

pub mod arrow_structs;

use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::path::Path;
use tensorferry_files::{MapMode, OpenOptions, TensorFile, open_file};

/// A file in memory.
pub fn memory_file(bytes: &[u8]) -> File {
    let descriptor = rustix::fs::memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a file in memory");
    let mut file = File::from(descriptor);
    file.write_all(bytes).expect("a file in memory");
    file
}

/// Opens bytes as a file of this name.
pub fn open(name: &str, bytes: &[u8], options: &OpenOptions) -> Option<TensorFile> {
    open_file(memory_file(bytes), Path::new(name), options).ok()
}

/// Reads every tensor of a file by every method, and compares the results.
pub fn read_tensors(file: &TensorFile) {
    for entry in file.entries() {
        let layout = entry.layout().expect("a checked shape");
        assert_eq!(layout.bytes() as u64, entry.bytes());
        if entry.bytes() > 1 << 22 {
            continue;
        }
        let mut out = vec![MaybeUninit::new(0u8); entry.bytes() as usize];
        let was_read = file.read_into(entry, &mut out, 1).is_ok();
        let mut streamed = vec![MaybeUninit::new(0u8); entry.bytes() as usize];
        let result = file
            .stream(entry)
            .and_then(|mut stream| streamed.chunks_mut(7).try_for_each(|chunk| stream.read(chunk)));
        if entry.bytes() > 0 {
            assert_eq!(was_read, result.is_ok());
        }
        for mode in [MapMode::ReadOnly, MapMode::CopyOnWrite] {
            let mapped = file.map(entry, mode);
            assert_eq!(mapped.is_ok(), entry.is_stored());
            if let Ok(mapped) = mapped {
                // SAFETY: `from_raw_parts` needs readable bytes with values, which do not change while the slice lives.
                // `mapped` keeps `length` bytes mapped at `data`, of a file that nothing else has. The bytes of `out`
                // have values since it was made.
                unsafe {
                    let seen = std::slice::from_raw_parts(mapped.data(), mapped.length());
                    assert!(!was_read || seen == std::slice::from_raw_parts(out.as_ptr().cast::<u8>(), out.len()));
                }
            }
        }
    }
}
