//! What the fuzz targets share: bytes as a file, opened and read in every way.

use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::FromRawFd;
use std::path::Path;
use tensorferry_files::{MapMode, TensorFile, OpenOptions, open_file};

/// A file in memory.
pub fn memory(bytes: &[u8]) -> File {
    // SAFETY: a literal that ends with zero; the descriptor is new and nobody else's.
    let mut file = unsafe { File::from_raw_fd(libc::memfd_create(c"fuzz".as_ptr(), libc::MFD_CLOEXEC)) };
    file.write_all(bytes).expect("a file in memory");
    file
}

/// Opens bytes as a file of this name.
pub fn open(name: &str, bytes: &[u8], options: &OpenOptions) -> Option<TensorFile> {
    open_file(memory(bytes), Path::new(name), options).ok()
}

/// Reads everything in a file, and compares the ways to do so.
pub fn read(opened: &TensorFile) {
    for entry in opened.entries() {
        let layout = entry.layout().expect("a checked shape");
        assert_eq!(layout.bytes() as u64, entry.bytes());
        if entry.bytes() > 1 << 22 {
            continue;
        }
        let mut out = vec![MaybeUninit::new(0u8); entry.bytes() as usize];
        let whole = opened.read_into(entry, &mut out, 1).is_ok();
        let mut pieces = vec![MaybeUninit::new(0u8); entry.bytes() as usize];
        let streamed = opened.stream(entry).and_then(|mut stream| {
            pieces.chunks_mut(7).try_for_each(|piece| stream.read(piece))
        });
        if entry.bytes() > 0 {
            assert_eq!(whole, streamed.is_ok());
        }
        for kind in [MapMode::ReadOnly, MapMode::CopyOnWrite] {
            let mapped = opened.map(entry, kind);
            assert_eq!(mapped.is_ok(), entry.is_stored());
            if let Ok(mapped) = mapped {
                // SAFETY: mapped as long as `mapped` lives; `out` was initialised.
                unsafe {
                    let seen = std::slice::from_raw_parts(mapped.data(), mapped.length());
                    assert!(!whole || seen == std::slice::from_raw_parts(out.as_ptr().cast::<u8>(), out.len()));
                }
            }
        }
    }
}
