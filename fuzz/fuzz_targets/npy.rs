//! Any bytes as a file of the format.
#![no_main]

use tensorferry_files::{FileFormat, OpenOptions};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let options = OpenOptions { format: Some(FileFormat::Npy), ..OpenOptions::default() };
    if let Some(opened) = tensorferry_fuzz::open("x", bytes, &options) {
        tensorferry_fuzz::read(&opened);
    }
});
