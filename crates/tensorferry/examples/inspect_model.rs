//! Lists the tensors of a model file with type, shape and bytes, and the range of the floats:
//! `cargo run --example inspect_model -- model.safetensors`.
//!
//! One tensor at a time is in memory.

use std::process::ExitCode;
use tensorferry::files::{FileEntry, TensorFile};
use tensorferry::{DType, DTypeKind, Result};

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: inspect_model FILE");
        return ExitCode::from(2);
    };
    match inspect(&path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn inspect(path: &str) -> Result<()> {
    let file = TensorFile::open(path)?;
    let mut total = 0;
    for entry in file.entries() {
        let range = match range_of_floats(&entry)? {
            Some((least, greatest)) => format!("  min {least} max {greatest}"),
            None => String::new(),
        };
        // Names come from the file: `Debug` escapes control characters.
        println!("{:?}  {} {:?}  {} bytes{range}", entry.name(), entry.dtype(), entry.shape(), entry.bytes());
        total += entry.bytes();
    }
    for (name, reason) in file.skipped() {
        println!("{name:?}  skipped: {}", reason.fact());
    }
    println!("{} tensors, {total} bytes", file.entries().len());
    Ok(())
}

/// The least and the greatest number of a tensor of floats, without NaN; `None` if it has no numbers.
fn range_of_floats(entry: &FileEntry<'_>) -> Result<Option<(f64, f64)>> {
    if entry.dtype().kind() != DTypeKind::Float {
        return Ok(None);
    }
    // Every float of up to 64 bits is a float64.
    let values = entry.read()?.cast(DType::Float64)?;
    let numbers = values.as_slice::<f64>()?.iter().copied().filter(|value| !value.is_nan());
    Ok(numbers.fold(None, |range: Option<(f64, f64)>, value| match range {
        None => Some((value, value)),
        Some((least, greatest)) => Some((least.min(value), greatest.max(value))),
    }))
}
