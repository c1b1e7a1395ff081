//! Arbitrary bytes as an index beside one safetensors file. An index that names any other file is rejected.
#![no_main]

use std::path::PathBuf;
use std::sync::OnceLock;
use tensorferry_core::DType;
use tensorferry_files::{FileFormat, FileWriter, OpenOptions, TensorSpec, WriteOptions, open_file};

/// A folder with one file, `1`, that holds the tensors `a` and `b`, and an index file for its path.
fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("tensorferry-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let specs = [TensorSpec::new("a", DType::UInt8, &[3]), TensorSpec::new("b", DType::Float32, &[2])];
        let options = WriteOptions { durable: false, ..WriteOptions::default() };
        let mut writer = FileWriter::create(folder.join("1"), FileFormat::Safetensors, &specs, options).expect("a writer");
        writer.write_tensor(0, &[1; 3]).expect("bytes");
        writer.write_tensor(1, &[2; 8]).expect("bytes");
        writer.finish().expect("a file");
        std::fs::write(folder.join("index.json"), "").expect("a file");
        folder
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let options = OpenOptions { format: Some(FileFormat::SafetensorsIndex), ..OpenOptions::default() };
    let path = folder().join("index.json");
    if let Ok(file) = open_file(tensorferry_fuzz::memory_file(bytes), &path, &options) {
        assert!(file.entries().iter().all(|entry| ["a", "b"].contains(&entry.name())));
        tensorferry_fuzz::read_tensors(&file);
    }
});
