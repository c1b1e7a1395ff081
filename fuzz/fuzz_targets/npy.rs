//! Arbitrary bytes as a .npy file.
#![no_main]

use tensorferry_files::{FileFormat, OpenOptions};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let options = OpenOptions { format: Some(FileFormat::Npy), ..OpenOptions::default() };
    if let Some(file) = tensorferry_fuzz::open("x", bytes, &options) {
        tensorferry_fuzz::read_tensors(&file);
    }
});
