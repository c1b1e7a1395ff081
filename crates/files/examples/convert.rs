//! Converts a file of tensors into another format, piece by piece: `cargo run --example convert -- x.npz x.safetensors`.
//!
//! With no second path, lists what is in the first.

use std::mem::MaybeUninit;
use std::path::Path;
use tensorferry_core::Result;
use tensorferry_files::{Dialect, FileFormat, FileWriter, OpenOptions, TensorSpec, WriteOptions, open};

fn main() {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let done = match paths.as_slice() {
        [path] => list(path),
        [from, to] => convert(from, to),
        _ => {
            eprintln!("usage: convert FROM [TO]");
            return;
        }
    };
    if let Err(error) = done {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn list(path: &str) -> Result<()> {
    let opened = open(path, &OpenOptions::default())?;
    for entry in opened.entries() {
        println!("{} {} {:?}", entry.name(), entry.dtype(), entry.shape());
    }
    for (name, why) in opened.skipped() {
        println!("{name}: {why}");
    }
    Ok(())
}

fn convert(from: &str, to: &str) -> Result<()> {
    let opened = open(from, &OpenOptions::default())?;
    let specs: Vec<TensorSpec> = opened.entries().iter().map(|entry| entry.spec().clone()).collect();
    let options = WriteOptions {
        metadata: opened.metadata().to_vec(),
        compression: std::env::var_os("COMPRESS").map(|_| 6),
        dialect: if to.contains("tensorflow") { Dialect::TensorFlow } else { Dialect::Onnx },
        ..WriteOptions::default()
    };
    let format = FileFormat::from_path(Path::new(to)).unwrap_or(FileFormat::Raw);
    let mut writer = FileWriter::create(to, format, &specs, options)?;
    let mut buffer = vec![MaybeUninit::new(0u8); 1 << 20];
    for (number, entry) in opened.entries().iter().enumerate() {
        writer.begin(number)?;
        let mut stream = opened.stream(entry)?;
        while stream.left() > 0 {
            let piece = stream.left().min(buffer.len() as u64) as usize;
            stream.read(&mut buffer[..piece])?;
            // SAFETY: the stream has filled it.
            writer.write(unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast(), piece) })?;
        }
    }
    writer.finish()
}
