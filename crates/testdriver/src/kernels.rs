//! The kernels as loops on the host. A kernel's name and arguments say what it does.

use crate::jobs::{Dense, Gather, Planes};
use crate::work::Work;
use std::ffi::c_void;
use std::ptr;
use tensorferry_core::{ByteOrder, DType, Layout, Result, pack};

/// A copy that a kernel does: addresses, types and layouts of source and target.
struct Copy {
    from: usize,
    from_dtype: DType,
    from_layout: Layout,
    order: ByteOrder,
    to: usize,
    to_dtype: DType,
    to_layout: Layout,
}

/// Whether a kernel with this name exists.
pub(crate) fn is_known(name: &str) -> bool {
    name == "cast" || element_size(name).is_some() || cast_types(name).is_some()
}

/// The types of a kernel that casts dense elements.
fn cast_types(name: &str) -> Option<(DType, DType)> {
    let (from, to) = name.split_once("_to_")?;
    Some((DType::from_name(from)?, DType::from_name(to)?))
}

/// The element size of a gather or transpose kernel.
fn element_size(name: &str) -> Option<usize> {
    let (kind, size) = name.split_once('_')?;
    ["gather", "transpose"].contains(&kind).then(|| size.parse().ok()).flatten()
}

/// The unsigned type of elements of this size.
fn bits_of(item: usize) -> DType {
    [DType::UInt8, DType::UInt16, DType::UInt32, DType::UInt64, DType::Complex128]
        [item.trailing_zeros() as usize]
}

/// The work of a kernel launch whose grid has `planes` blocks in its third dimension.
///
/// # Safety
/// - The arguments are as many as the kernel has, and each points to a value of the parameter's type.
/// - The memory that the job describes is readable and writable until the work has run.
pub(crate) unsafe fn work(name: &str, planes: u32, arguments: *mut *mut c_void) -> Work {
    // SAFETY: the first argument of each kernel is the job that is read here, and those of `cast` after it are numbers:
    // the first clause of this function's contract.
    let copy = unsafe {
        let first = *arguments;
        let number = |index: usize| *(*arguments.add(index)).cast::<u32>();
        match (cast_types(name), element_size(name)) {
            (Some((from, to)), _) => dense(*first.cast::<Dense>(), from, to),
            (None, Some(item)) if name.starts_with("transpose") => {
                transpose(*first.cast::<Planes>(), planes, item)
            }
            (None, Some(item)) => {
                gather(*first.cast::<Gather>(), bits_of(item), ByteOrder::Native, bits_of(item))
            }
            (None, None) => {
                let dtype = |code: u32| DType::all().nth(code as usize).unwrap_or(DType::UInt8);
                let order = if number(2) == 0 { ByteOrder::Native } else { ByteOrder::Swapped };
                gather(*first.cast::<Gather>(), dtype(number(1)), order, dtype(number(3)))
            }
        }
    };
    Box::new(move || {
        let Ok(copy) = copy else { return };
        let source = pack::CopySource {
            data: ptr::with_exposed_provenance(copy.from),
            dtype: copy.from_dtype,
            layout: &copy.from_layout,
            order: copy.order,
        };
        let target = pack::CopyDestination {
            data: ptr::with_exposed_provenance_mut(copy.to),
            dtype: copy.to_dtype,
            layout: &copy.to_layout,
        };
        // SAFETY: `convert` needs a readable source, a writable target, and no overlap. The second clause of this function's
        // contract is the first two, and the kernels need the third as well.
        let _ = unsafe { pack::convert(&source, &target, 1) };
    })
}

fn dense(job: Dense, from_dtype: DType, to_dtype: DType) -> Result<Copy> {
    Ok(Copy {
        from: job.from.expose_provenance(),
        from_dtype,
        from_layout: Layout::dense(from_dtype.size(), &[job.count as i64])?,
        order: ByteOrder::Native,
        to: job.to.expose_provenance(),
        to_dtype,
        to_layout: Layout::dense(to_dtype.size(), &[job.count as i64])?,
    })
}

fn gather(job: Gather, from_dtype: DType, order: ByteOrder, to_dtype: DType) -> Result<Copy> {
    let rank = job.rank as usize;
    let lengths: Vec<i64> = job.lengths[..rank].iter().map(|&length| length as i64).collect();
    Ok(Copy {
        from: job.from.expose_provenance(),
        from_dtype,
        from_layout: Layout::strided(from_dtype.size(), &lengths, &job.steps[..rank])?,
        order,
        to: job.to.expose_provenance(),
        to_dtype,
        to_layout: Layout::dense(to_dtype.size(), &lengths)?,
    })
}

fn transpose(job: Planes, planes: u32, item: usize) -> Result<Copy> {
    let Planes { from, to, rows, columns, from_pitch, to_pitch, from_plane, to_plane } = job;
    let shape = [i64::from(planes), columns as i64, rows as i64];
    Ok(Copy {
        from: from.expose_provenance(),
        from_dtype: bits_of(item),
        from_layout: Layout::strided(item, &shape, &[from_plane, item as i64, from_pitch])?,
        order: ByteOrder::Native,
        to: to.expose_provenance(),
        to_dtype: bits_of(item),
        to_layout: Layout::strided(item, &shape, &[to_plane, to_pitch, item as i64])?,
    })
}
