//! Watches the tensors of a trainer in Python: attaches what `ferry.publish` published, validates the values and prints checksums.
//!
//! ```sh
//! cargo run --example attach_trainer --features share -- TICKET
//! ```
//!
//! It prints a line for each tensor: its name, element type, shape, the number of values that are infinite or NaN, and the
//! checksum (FNV-1a, 64 bits) of its bytes in row-major order. A line on the standard input makes it read all tensors again, with the values
//! that the trainer has written meanwhile. It holds its leases until the standard input is closed.

use std::env;
use std::io::{self, BufRead, Write};
use std::time::Duration;
use tensorferry::share::{Attached, Ticket, attach};
use tensorferry::{DType, DTypeKind, Result, Tensor};

/// How long to wait for the trainer.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(30);

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let tickets: Vec<String> = env::args().skip(1).collect();
    if tickets.is_empty() {
        return Err("usage: attach_trainer TICKET...".into());
    }
    let attached = tickets
        .iter()
        .map(|text| attach(&Ticket::from_text(text)?, ATTACH_TIMEOUT))
        .collect::<Result<Vec<Attached>>>()?;
    let mut out = io::stdout();
    print_tensors(&attached, &mut out)?;
    for line in io::stdin().lock().lines() {
        line?;
        print_tensors(&attached, &mut out)?;
    }
    Ok(())
}

fn print_tensors(
    attached: &[Attached],
    out: &mut impl Write,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    for (name, tensor) in attached.iter().flat_map(Attached::iter) {
        // A copy: the trainer may write the memory at any time.
        let values = tensor.to_host()?;
        let (dtype, shape) = (values.dtype(), values.shape());
        let (invalid, sum) = (count_not_finite(&values)?, checksum(values.as_bytes()?));
        writeln!(out, "{name:?} {dtype} {shape:?} {invalid} {sum:016x}")?;
    }
    writeln!(out, "done")?;
    Ok(out.flush()?)
}

/// The number of values that are infinite or NaN. A complex number counts if its real or its imaginary part does.
fn count_not_finite(tensor: &Tensor) -> Result<usize> {
    match tensor.dtype().kind() {
        DTypeKind::Float => {
            let values = tensor.cast(DType::Float64)?;
            Ok(values.as_slice::<f64>()?.iter().filter(|value| !value.is_finite()).count())
        }
        DTypeKind::Complex => {
            let values = tensor.cast(DType::Complex128)?;
            let is_finite = |[real, imaginary]: &[f64; 2]| real.is_finite() && imaginary.is_finite();
            Ok(values.as_slice::<[f64; 2]>()?.iter().filter(|value| !is_finite(value)).count())
        }
        _ => Ok(0),
    }
}

/// FNV-1a with 64 bits.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
