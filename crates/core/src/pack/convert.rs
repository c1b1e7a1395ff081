//! The host copy engine: any layout, any type, to any other, with many threads.
//!
//! # What it promises
//!
//! - [`convert`] is total: each of the 28 types goes to each other one, from any strides (negative, zero, no
//!   multiple of the element), any alignment, either byte order, any rank. The only errors are shapes that
//!   differ and layouts that are not of their type's size.
//! - A result depends on the value alone: not on layout, alignment, number of threads or the machine's vector
//!   instructions. The table of results stands in `cast`.
//! - A type that goes to itself moves as bytes, whatever they mean.
//! - It allocates nothing that grows with the tensor, and does not panic.
//!
//! # How
//!
//! `walk` reduces the two layouts to a loop nest in the target's order and cuts it into as many parts as
//! `threads` says, which the process's helpers (`workers`) and the caller share.
//! `copy` moves planes of bytes, with `transpose` for the hard ones and `strided` for small steps. `cast` gathers what is not dense
//! into small buffers, runs chains of `kernel`s over them, and scatters. `number` has the formats and the
//! rounding, `vector` the few instructions that beat it. `stream` writes past the caches what is larger than they are.
//!
//! # What it knowingly rejects
//!
//! - Overlap between source and target, or within the target: callers make fresh memory, or have checked.
//! - Threads of its own for each call: starting one takes as long as copying 1 MiB.
//! - Packed types, two elements to a byte: they are refused where memory comes in.

pub(crate) mod add;
mod cast;
mod copy;
mod elements;
mod kernel;
mod number;
#[cfg(test)]
mod reference;
mod state;
mod stream;
mod strided;
#[cfg(test)]
mod tests;
mod threads;
mod transpose;
#[cfg(target_arch = "x86_64")]
mod turn;
#[cfg(target_arch = "x86_64")]
mod vector;
mod walk;

use crate::dtype::{DType, DTypeKind};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::tensor::ByteOrder;
use crate::workers;
use cast::Chain;
use walk::{Axis, Nest};

/// Bytes up to which a dense copy is one move. (In tests a few, so that the engine sees the others.)
const SMALL: usize = if cfg!(test) { 16 } else { 64 << 10 };

/// What is read.
#[derive(Clone, Copy, Debug)]
pub struct CopySource<'a> {
    /// The element with index zero everywhere.
    pub data: *const u8,
    /// The element type.
    pub dtype: DType,
    /// Shape and strides.
    pub layout: &'a Layout,
    /// Which end of an element comes first.
    pub order: ByteOrder,
}

/// What is written, in the machine's own byte order.
#[derive(Clone, Copy, Debug)]
pub struct CopyDestination<'a> {
    /// The element with index zero everywhere.
    pub data: *mut u8,
    /// The element type.
    pub dtype: DType,
    /// Shape and strides.
    pub layout: &'a Layout,
}

/// Copies every element of the source to the same index of the destination, cast to its type.
///
/// At most `threads` threads work on it, the caller's among them; fewer where the tensor is small.
///
/// # Errors
/// When the shapes differ, or a layout is not one of its type's elements.
///
/// # Safety
/// The source is readable and the destination writable over the whole extents of their layouts around their
/// data pointers, no one else writes to either or reads the destination meanwhile, the two extents do not
/// overlap, and no two indices of the destination reach the same byte.
pub unsafe fn convert(
    source: &CopySource<'_>,
    destination: &CopyDestination<'_>,
    threads: usize,
) -> Result<()> {
    let whole = destination.layout.bytes();
    // SAFETY: the caller's contract.
    unsafe { convert_within(source, destination, threads, whole) }
}

/// The same on this thread alone, for a piece of a copy whose results have so many bytes altogether.
///
/// # Errors
/// As [`convert`].
///
/// # Safety
/// As [`convert`].
pub unsafe fn convert_chunk(
    source: &CopySource<'_>,
    destination: &CopyDestination<'_>,
    whole: usize,
) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { convert_within(source, destination, 1, whole) }
}

/// # Safety
/// As [`convert`].
unsafe fn convert_within(
    source: &CopySource<'_>,
    destination: &CopyDestination<'_>,
    threads: usize,
    whole: usize,
) -> Result<()> {
    check(source, destination)?;
    if source.layout.is_empty() {
        return Ok(());
    }
    if is_small_and_dense(source, destination) {
        // SAFETY: the caller vouches for both extents, which are as long as the elements, and that they lie apart.
        unsafe { source.data.copy_to_nonoverlapping(destination.data, source.layout.bytes()) };
        return Ok(());
    }
    let (from, to, parts_in_common) = as_reals(source.dtype, destination.dtype);
    let chain = Chain::new(from, source.order, to);
    let nest = nest(source.layout, destination.layout, parts_in_common);
    let bytes = nest.count().saturating_mul(from.size().max(to.size()));
    let ends = Ends { from: source.data, to: destination.data };
    let (threads, parts) = threads::worth(bytes, threads);
    let stream = stream::is_worth(whole);
    let cuts = nest.cuts(parts);
    workers::each(cuts.parts, threads, |part| {
        let Some(part) = nest.part(cuts, part) else { return };
        let _plain = state::Plain::set();
        let sweep = part.sweep();
        let Ends { from: source, to: destination } = *ends.get();
        match &chain {
            // SAFETY: a part of the nest over both layouts, for whose extents the caller vouches; parts have
            // no element in common, so no thread writes what another does.
            Some(chain) => unsafe { cast::sweep(chain, &sweep, source, destination, stream) },
            None => {
                for (from_start, to_start) in sweep.starts() {
                    // SAFETY: as above; each plane is a part of the sweep, and the bytes of an element are
                    // right as they are.
                    unsafe {
                        copy::plane(
                            from.size(),
                            &sweep.plane,
                            source.offset(from_start),
                            destination.offset(to_start),
                            stream,
                        );
                    }
                }
            }
        }
        if stream {
            stream::finish();
        }
    });
    Ok(())
}

/// Whether bytes move from one end to the other, so few of them that preparing more than that costs more.
fn is_small_and_dense(source: &CopySource<'_>, destination: &CopyDestination<'_>) -> bool {
    source.dtype == destination.dtype
        && source.order == ByteOrder::Native
        && source.layout.is_dense()
        && destination.layout.is_dense()
        && source.layout.bytes() <= SMALL
}

fn check(source: &CopySource<'_>, destination: &CopyDestination<'_>) -> Result<()> {
    let invalid = |fact: String| Err(Error::new(ErrorKind::InvalidArgument, fact));
    let (from, to) = (source.layout, destination.layout);
    if from.shape() != to.shape() {
        return invalid(format!("shape {:?} cannot be copied to shape {:?}", from.shape(), to.shape()));
    }
    for (dtype, layout) in [(source.dtype, from), (destination.dtype, to)] {
        if layout.item() != dtype.size() {
            return invalid(format!("elements of {} bytes cannot be {dtype}", layout.item()));
        }
    }
    Ok(())
}

/// The two ends of a copy, as threads share them.
#[derive(Clone, Copy)]
struct Ends {
    from: *const u8,
    to: *mut u8,
}

impl Ends {
    /// Itself, so that a closure borrows the whole and not its pointers.
    fn get(&self) -> &Self {
        self
    }
}

// SAFETY: two addresses; what is done with them on other threads is covered by the contract of `convert`,
// whose parts write to disjoint places.
unsafe impl Sync for Ends {}

/// The types as the chain sees them, and whether each element is two reals on both sides.
///
/// The real part of a complex number lies at its start, so complex to real only reads less of each element;
/// complex to complex is real to real with one more dimension.
fn as_reals(from: DType, to: DType) -> (DType, DType, bool) {
    let real = |dtype| match dtype {
        DType::Complex64 => DType::Float32,
        DType::Complex128 => DType::Float64,
        other => other,
    };
    match (from.kind(), to.kind()) {
        (DTypeKind::Complex, DTypeKind::Bool) => (from, to, false),
        (DTypeKind::Complex, DTypeKind::Complex) if from != to => (real(from), real(to), true),
        (DTypeKind::Complex, DTypeKind::Complex) => (from, to, false),
        (DTypeKind::Complex, _) => (real(from), to, false),
        _ => (from, to, false),
    }
}

fn nest(from: &Layout, to: &Layout, pairs: bool) -> Nest {
    // Offsets within an extent of real memory fit in a pointer's width.
    let axes = from.shape().iter().zip(from.strides()).zip(to.strides());
    let axes = axes.map(|((&n, &from), &to)| Axis { n: n as usize, from: from as isize, to: to as isize });
    let halves = Axis { n: 2, from: (from.item() / 2) as isize, to: (to.item() / 2) as isize };
    Nest::new(axes.chain(pairs.then_some(halves)))
}
