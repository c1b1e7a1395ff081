//! The kernels as loops on the host. A kernel's name and arguments say what it does.

use crate::jobs::{Dense, Gather, MOST as MAX_GATHER_DIMENSIONS, Planes};
use crate::work::Work;
use std::ffi::c_void;
use tensorferry_core::{ByteOrder, DType, Layout, pack};

/// A job that work on another thread uses.
struct SendJob<T>(T);

// SAFETY: addresses that the caller of the driver keeps alive; one thread runs the work.
unsafe impl<T> Send for SendJob<T> {}

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

/// The work of a kernel launch whose grid has `planes` blocks in its third dimension.
///
/// # Safety
/// The arguments are those of the kernel.
pub(crate) unsafe fn work(name: &str, planes: u32, arguments: *mut *mut c_void) -> Work {
    // SAFETY: the caller's contract.
    unsafe {
        let first = *arguments;
        let number = |index: usize| *(*arguments.add(index)).cast::<u32>();
        if let Some((from, to)) = cast_types(name) {
            let job = SendJob(*first.cast::<Dense>());
            return Box::new(move || {
                let Dense { from: data, to: target, count } = { &job }.0;
                let (mut lengths, mut steps) = ([1; MAX_GATHER_DIMENSIONS], [0; MAX_GATHER_DIMENSIONS]);
                (lengths[0], steps[0]) = (count, from.size() as i64);
                let job = Gather { from: data, to: target, count, rank: 1, lengths, steps };
                gather(job, from, ByteOrder::Native, to);
            });
        }
        match element_size(name) {
            Some(item) if name.starts_with("transpose") => {
                let job = SendJob(*first.cast::<Planes>());
                Box::new(move || (0..i64::from(planes)).for_each(|plane| transpose({ &job }.0, plane, item)))
            }
            Some(item) => {
                let job = SendJob(*first.cast::<Gather>());
                let dtype = [DType::UInt8, DType::UInt16, DType::UInt32, DType::UInt64, DType::Complex128]
                    [item.trailing_zeros() as usize];
                Box::new(move || gather({ &job }.0, dtype, ByteOrder::Native, dtype))
            }
            None => {
                let job = SendJob(*first.cast::<Gather>());
                let dtype = |code: u32| DType::all().nth(code as usize).unwrap_or(DType::UInt8);
                let (from, to) = (dtype(number(1)), dtype(number(3)));
                let order = if number(2) == 0 { ByteOrder::Native } else { ByteOrder::Swapped };
                Box::new(move || gather({ &job }.0, from, order, to))
            }
        }
    }
}

fn gather(job: Gather, from: DType, order: ByteOrder, to: DType) {
    let rank = job.rank as usize;
    let lengths: Vec<i64> = job.lengths[..rank].iter().map(|&length| length as i64).collect();
    let (Ok(source), Ok(target)) =
        (Layout::strided(from.size(), &lengths, &job.steps[..rank]), Layout::dense(to.size(), &lengths))
    else {
        return;
    };
    let source = pack::CopySource { data: job.from, dtype: from, layout: &source, order };
    let target = pack::CopyDestination { data: job.to, dtype: to, layout: &target };
    // SAFETY: the launcher vouches for both.
    let _ = unsafe { pack::convert(&source, &target, 1) };
}

fn transpose(job: Planes, plane: i64, item: usize) {
    let Planes { from, to, rows, columns, from_pitch, to_pitch, from_plane, to_plane } = job;
    let from = from.wrapping_offset((plane * from_plane) as isize);
    let to = to.wrapping_offset((plane * to_plane) as isize);
    for row in 0..rows as i64 {
        for column in 0..columns as i64 {
            // SAFETY: the launcher vouches for both.
            unsafe {
                let read = from.offset((row * from_pitch + column * item as i64) as isize);
                read.copy_to(to.offset((column * to_pitch + row * item as i64) as isize), item);
            }
        }
    }
}
