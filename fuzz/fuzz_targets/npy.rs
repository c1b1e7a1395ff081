//! Any bytes as a file of the format.
#![no_main]

use tensorferry_files::{Format, Options};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let options = Options { format: Some(Format::Npy), ..Options::default() };
    if let Some(opened) = tensorferry_fuzz::open("x", bytes, &options) {
        tensorferry_fuzz::read(&opened);
    }
});
