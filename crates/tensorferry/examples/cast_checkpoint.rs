//! Casts the floats of a checkpoint to bfloat16: `cargo run --example cast_checkpoint -- model.safetensors small.safetensors`.
//!
//! Tensors are read, cast and written one by one, so that the memory needed is that of the largest. Integers and bools, names
//! and metadata stay as they are. The new file appears complete or not at all: a file with entries that cannot be read is an
//! error, as is an output that does not keep names.

use std::process::ExitCode;
use tensorferry::files::{FileFormat, FileWriter, TensorFile, TensorSpec, WriteOptions};
use tensorferry::{ConvertOptions, DType, Error, ErrorKind, Result};

fn main() -> ExitCode {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = &paths[..] else {
        eprintln!("usage: cast_checkpoint FROM TO");
        return ExitCode::from(2);
    };
    match cast_checkpoint(from, to) {
        Ok((before, after)) => {
            println!("{before} bytes became {after}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the new checkpoint, and returns the bytes of the tensors before and after.
fn cast_checkpoint(from: &str, to: &str) -> Result<(u64, u64)> {
    let file = TensorFile::open(from)?;
    let skipped: Vec<String> =
        file.skipped().map(|(name, reason)| format!("{name:?} ({})", reason.fact())).collect();
    if !skipped.is_empty() {
        return Err(Error::new(
            ErrorKind::UnsupportedDType,
            format!("{from:?} has entries that cannot be cast: {}", skipped.join(", ")),
            "save them elsewhere, and write the checkpoint again without them",
        ));
    }
    let has_names = file.entries().any(|entry| !entry.name().is_empty());
    if has_names && FileFormat::from_path(to.as_ref()).is_some_and(FileFormat::is_single) {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("the format of {to:?} does not keep the names of tensors"),
            "write .safetensors or .npz",
        ));
    }
    let specs: Vec<TensorSpec> = file
        .entries()
        .map(|entry| TensorSpec::new(entry.name(), target_dtype(entry.dtype()), entry.shape()))
        .collect();
    let options = WriteOptions::new().metadata(file.metadata().iter().cloned());
    let mut writer = FileWriter::create(to, &specs, options)?;
    let (mut before, mut after) = (0, 0);
    for (entry, spec) in file.entries().zip(&specs) {
        let tensor = entry.read()?.convert(&ConvertOptions::new().dtype(spec.dtype))?;
        writer.write(&spec.name, &tensor)?;
        before += entry.bytes();
        after += tensor.bytes() as u64;
    }
    writer.finish()?;
    Ok((before, after))
}

/// Wide floats become bfloat16. Narrow ones would grow.
fn target_dtype(dtype: DType) -> DType {
    match dtype {
        DType::Float64 | DType::Float32 | DType::Float16 => DType::BFloat16,
        other => other,
    }
}
