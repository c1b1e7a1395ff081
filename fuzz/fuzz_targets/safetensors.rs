//! Any bytes as a safetensors file. What is accepted, the safetensors crate accepts too, and sees the same bytes.
#![no_main]

use safetensors::SafeTensors;
use tensorferry_files::{FileFormat, OpenOptions};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let options = OpenOptions { format: Some(FileFormat::Safetensors), as_stored: true, ..OpenOptions::default() };
    if let Some(opened) = tensorferry_fuzz::open("x", bytes, &options) {
        tensorferry_fuzz::read(&opened);
        let theirs = SafeTensors::deserialize(bytes).expect("stricter than the crate");
        for entry in opened.entries() {
            let tensor = theirs.tensor(entry.name()).expect("the same names");
            assert_eq!(tensor.data().len() as u64, entry.bytes());
            assert!(tensor.shape().iter().map(|&length| length as i64).eq(entry.shape().iter().copied()));
            let offset = entry.offset().expect("stored") as usize;
            assert_eq!(tensor.data(), &bytes[offset..offset + tensor.data().len()]);
        }
        assert_eq!(theirs.len(), opened.entries().len() + opened.skipped().len());
    }
    let options = OpenOptions { as_stored: false, ..options };
    if let Some(opened) = tensorferry_fuzz::open("x", bytes, &options) {
        tensorferry_fuzz::read(&opened);
    }
});
