//! Converts a file of tensors to another format, chunk by chunk: `cargo run --example convert -- x.npz x.safetensors`.
//!
//! Without a second path, it lists the tensors of the first.

use std::mem::MaybeUninit;
use std::path::Path;
use tensorferry_core::Result;
use tensorferry_files::{Dialect, FileFormat, FileWriter, OpenOptions, TensorSpec, WriteOptions, open};

fn main() {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let result = match paths.as_slice() {
        [path] => list(path),
        [from, to] => convert(from, to),
        _ => {
            eprintln!("usage: convert FROM [TO]");
            return;
        }
    };
    if let Err(error) = result {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn list(path: &str) -> Result<()> {
    let file = open(path, &OpenOptions::default())?;
    for entry in file.entries() {
        println!("{} {} {:?}", entry.name(), entry.dtype(), entry.shape());
    }
    for (name, reason) in file.skipped() {
        println!("{name}: {reason}");
    }
    Ok(())
}

fn convert(from: &str, to: &str) -> Result<()> {
    let file = open(from, &OpenOptions::default())?;
    let specs: Vec<TensorSpec> = file.entries().iter().map(|entry| entry.spec().clone()).collect();
    let options = WriteOptions {
        metadata: file.metadata().to_vec(),
        compression: std::env::var_os("COMPRESS").map(|_| 6),
        dialect: if to.contains("tensorflow") { Dialect::TensorFlow } else { Dialect::Onnx },
        ..WriteOptions::default()
    };
    let format = FileFormat::from_path(Path::new(to)).unwrap_or(FileFormat::Raw);
    let mut writer = FileWriter::create(to, format, &specs, options)?;
    let mut buffer = vec![MaybeUninit::new(0u8); 1 << 20];
    for (index, entry) in file.entries().iter().enumerate() {
        writer.begin(index)?;
        let mut stream = file.stream(entry)?;
        while stream.bytes_left() > 0 {
            let count = stream.bytes_left().min(buffer.len() as u64) as usize;
            stream.read(&mut buffer[..count])?;
            let filled = &buffer[..count];
            // SAFETY: `from_raw_parts` needs bytes with values. Each has one since the buffer was made, and `read` has
            // filled all of `filled`. A `MaybeUninit<u8>` has the layout of a `u8`.
            writer.write(unsafe { std::slice::from_raw_parts(filled.as_ptr().cast(), filled.len()) })?;
        }
    }
    writer.finish()
}
