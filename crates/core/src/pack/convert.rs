//! Copies and casts a tensor into another, in parallel.

use super::cast::{self, CastChain};
use super::fp_environment::DefaultFpEnvironment;
use super::loop_nest::{Axis, LoopNest};
use super::{copy, non_temporal, parallelism};
use crate::dtype::{DType, DTypeKind};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::tensor::ByteOrder;
use crate::workers;

/// The size up to which a dense copy is a single `memcpy`. (It is small in tests, which exercise the engine.)
const SMALL_COPY_BYTES: usize = if cfg!(test) { 16 } else { 64 << 10 };

/// The source of a copy.
#[derive(Clone, Copy, Debug)]
pub struct CopySource<'a> {
    /// The address of the element with index zero in every dimension.
    pub data: *const u8,
    /// The element type.
    pub dtype: DType,
    /// Shape and strides.
    pub layout: &'a Layout,
    /// The byte order of the elements.
    pub order: ByteOrder,
}

/// The destination of a copy, in native byte order.
#[derive(Clone, Copy, Debug)]
pub struct CopyDestination<'a> {
    /// The address of the element with index zero in every dimension.
    pub data: *mut u8,
    /// The element type.
    pub dtype: DType,
    /// Shape and strides.
    pub layout: &'a Layout,
}

/// Copies every element of the source to the same index of the destination, cast to its type.
///
/// It uses at most `threads` threads, including the calling one, and fewer if the tensor is small.
///
/// # Errors
/// When the shapes differ, or the item size of a layout is not that of its type.
///
/// # Safety
/// The source is readable and the destination writable over the whole extents of their layouts around their
/// data pointers, nothing else writes to either or reads the destination meanwhile, the two extents do not
/// overlap, and no two indices of the destination reach the same byte.
pub unsafe fn convert(
    source: &CopySource<'_>,
    destination: &CopyDestination<'_>,
    threads: usize,
) -> Result<()> {
    let total_bytes = destination.layout.bytes();
    // SAFETY: `convert_within` requires readable sources, writable destinations, no overlap, and destination indices that reach
    // different bytes. This function's contract has the same four clauses.
    unsafe { convert_within(source, destination, threads, total_bytes) }
}

/// Copies one chunk of a larger copy on this thread. The size of the whole copy decides whether stores bypass the caches.
///
/// # Errors
/// As [`convert`].
///
/// # Safety
/// As [`convert`].
pub unsafe fn convert_chunk(
    source: &CopySource<'_>,
    destination: &CopyDestination<'_>,
    total_bytes: usize,
) -> Result<()> {
    // SAFETY: `convert_within` requires readable sources, writable destinations, no overlap, and destination indices that reach
    // different bytes. This function's contract has the same four clauses.
    unsafe { convert_within(source, destination, 1, total_bytes) }
}

/// # Safety
/// As [`convert`].
unsafe fn convert_within(
    source: &CopySource<'_>,
    destination: &CopyDestination<'_>,
    threads: usize,
    total_bytes: usize,
) -> Result<()> {
    check(source, destination)?;
    if source.layout.is_empty() {
        return Ok(());
    }
    if is_small_and_dense(source, destination) {
        // SAFETY: both layouts are dense and have the same shape and type, so both extents are the `bytes` bytes from the data
        // pointers on. They are readable and writable, and do not overlap (the contract of `convert`). The kernel has the type of
        // both, whose elements are bytes.
        unsafe {
            match cast::bool_kernel(source.dtype, destination.dtype) {
                Some(kernel) => kernel(source.data, destination.data, source.layout.bytes()),
                None => source.data.copy_to_nonoverlapping(destination.data, source.layout.bytes()),
            }
        }
        return Ok(());
    }
    let (from, to, are_both_complex) = as_reals(source.dtype, destination.dtype);
    let chain = CastChain::new(from, source.order, to);
    let nest = loop_nest(source.layout, destination.layout, are_both_complex);
    let bytes = nest.count().saturating_mul(from.size().max(to.size()));
    let pointers = CopyPointers { from: source.data, to: destination.data };
    let (threads, blocks) = parallelism::choose(bytes, threads);
    let non_temporal = non_temporal::should_use(total_bytes);
    let partition = nest.partition(blocks);
    workers::for_each_parallel(partition.blocks, threads, |index| {
        let Some(block) = nest.block(partition, index) else { return };
        let _environment = DefaultFpEnvironment::enter();
        let planes = block.planes();
        let CopyPointers { from: source, to: destination } = *pointers.get();
        match &chain {
            // SAFETY: the nest visits the elements of both layouts, whose extents are readable and writable and do not overlap.
            // No two indices reach the same byte of the destination (all by the contract of `convert`), and blocks have no
            // index in common, so no two threads write the same element. The chain has the types of the layouts. `fence`
            // follows.
            Some(chain) => unsafe { cast::cast_planes(chain, &planes, source, destination, non_temporal) },
            None => {
                for (from_start, to_start) in planes.offsets() {
                    // SAFETY: the planes of a block are elements of both layouts, readable, writable and not overlapping (the
                    // contract of `convert`), and no other block has them. Without a chain both have the size of `from`.
                    // `fence` follows.
                    unsafe {
                        copy::copy_plane(
                            from.size(),
                            &planes.plane,
                            source.offset(from_start),
                            destination.offset(to_start),
                            non_temporal,
                        );
                    }
                }
            }
        }
        if non_temporal {
            non_temporal::fence();
        }
    });
    Ok(())
}

/// Whether a single call of `memcpy`, or of a kernel, suffices and is faster than setting up the engine.
fn is_small_and_dense(source: &CopySource<'_>, destination: &CopyDestination<'_>) -> bool {
    source.dtype == destination.dtype
        && source.order == ByteOrder::Native
        && source.layout.is_dense()
        && destination.layout.is_dense()
        && source.layout.bytes() <= SMALL_COPY_BYTES
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

/// The pointers of a copy, which threads share.
#[derive(Clone, Copy)]
struct CopyPointers {
    from: *const u8,
    to: *mut u8,
}

impl CopyPointers {
    /// Returns itself, so that a closure captures the struct and not its pointer fields.
    fn get(&self) -> &Self {
        self
    }
}

// SAFETY: a shared reference gives two addresses. They are dereferenced in `convert_within`, where no two threads write the
// same element, and nothing writes the source (the contract of `convert`).
unsafe impl Sync for CopyPointers {}

/// The real types that the chain converts, and whether each element is a pair of them on both sides.
///
/// The real part of a complex number comes first, so complex to real reads only the start of each element. Complex to
/// complex is real to real with one more dimension.
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

fn loop_nest(from: &Layout, to: &Layout, is_complex: bool) -> LoopNest {
    // Offsets within an extent of real memory fit in a pointer's width.
    let axes = from.shape().iter().zip(from.strides()).zip(to.strides());
    let axes = axes.map(|((&n, &from), &to)| Axis { n: n as usize, from: from as isize, to: to as isize });
    let halves = Axis { n: 2, from: (from.item() / 2) as isize, to: (to.item() / 2) as isize };
    LoopNest::new(axes.chain(is_complex.then_some(halves)))
}
