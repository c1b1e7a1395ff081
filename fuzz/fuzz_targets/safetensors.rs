//! Arbitrary bytes as a safetensors file. The safetensors crate accepts every accepted file and reads the same bytes.
#![no_main]

use safetensors::SafeTensors;
use tensorferry_files::{FileFormat, OpenOptions};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let options = OpenOptions { format: Some(FileFormat::Safetensors), as_stored: true, ..OpenOptions::default() };
    if let Some(file) = tensorferry_fuzz::open("x", bytes, &options) {
        tensorferry_fuzz::read_tensors(&file);
        let reference = SafeTensors::deserialize(bytes).expect("the crate accepts the file");
        for entry in file.entries() {
            let tensor = reference.tensor(entry.name()).expect("the same names");
            assert_eq!(tensor.data().len() as u64, entry.bytes());
            assert!(tensor.shape().iter().map(|&length| length as i64).eq(entry.shape().iter().copied()));
            let offset = entry.offset().expect("stored") as usize;
            assert_eq!(tensor.data(), &bytes[offset..offset + tensor.data().len()]);
        }
        assert_eq!(reference.len(), file.entries().len() + file.skipped().len());
    }
    let options = OpenOptions { as_stored: false, ..options };
    if let Some(file) = tensorferry_fuzz::open("x", bytes, &options) {
        tensorferry_fuzz::read_tensors(&file);
    }
});
