//! What runs on the GPU: gathering strided tensors, transposing planes, and casting elements.
//!
//! The arithmetic of casts is that of the host, [`number`], compiled for another machine: the same value gives the same
//! bits on either side. `make kernels` turns this crate into PTX, which the driver compiles for the GPU it finds; the
//! text is kept beside the sources (`src/kernels.ptx`), so that building tensorferry needs no toolchain but Rust's own.
//!
//! Targets are dense and row-major. Gathers and casts go over their elements in steps of the whole grid, so any grid is
//! right for them; a transpose has a thread for each of its squares.

#![no_std]
#![feature(abi_ptx, asm_experimental_arch, stdarch_nvptx)]

mod cast;
mod dense;
#[path = "../../src/jobs.rs"]
mod jobs;
#[path = "../../../core/src/pack/number.rs"]
mod number;
mod transpose;

use crate::jobs::Gather;
use core::arch::nvptx::{_block_dim_x, _block_idx_x, _grid_dim_x, _thread_idx_x};

/// A gather, as a kernel finds it among its parameters.
///
/// The loops are read from there by their number; taken from the struct, every thread would first copy all of it.
#[derive(Clone, Copy)]
struct Gathered {
    from: *const u8,
    to: *mut u8,
    count: u64,
    rank: u32,
    /// The address of the job among the parameters.
    job: u64,
}

/// A [`Gathered`] of the first parameter of the kernel of this name.
macro_rules! gathered {
    ($kernel:ident, $job:expr) => {{
        let job: u64;
        // SAFETY: the address of a parameter.
        unsafe {
            core::arch::asm!(
                concat!("mov.b64 {}, ", stringify!($kernel), "_param_0;"),
                out(reg64) job, options(nostack, nomem, pure, preserves_flags)
            );
        }
        $crate::Gathered { from: $job.from, to: $job.to, count: $job.count, rank: $job.rank as u32, job }
    }};
}
pub(crate) use gathered;

impl Gathered {
    /// Length and step of a loop.
    ///
    /// # Safety
    /// There is a loop of this number.
    #[inline(always)]
    unsafe fn axis(&self, axis: u32) -> (u64, i64) {
        let (length, step): (u64, i64);
        let place = self.job + 8 * axis as u64;
        // SAFETY: the caller's contract.
        unsafe {
            core::arch::asm!(
                "ld.param.b64 {0}, [{2} + {3}]; ld.param.b64 {1}, [{2} + {4}];",
                out(reg64) length, out(reg64) step, in(reg64) place,
                const core::mem::offset_of!(Gather, lengths), const core::mem::offset_of!(Gather, steps),
                options(nostack, nomem, pure, preserves_flags)
            );
            core::hint::assert_unchecked(length != 0);
        }
        (length, step)
    }

    /// Where the element of this number lies in the source.
    ///
    /// # Safety
    /// There is an element of this number.
    #[inline(always)]
    unsafe fn place(&self, element: u64) -> *const u8 {
        let mut offset = 0i64;
        let mut axis = self.rank;
        let mut left = element;
        // SAFETY: the number of a loop, here and below.
        let axis_of = |axis: u32| unsafe { self.axis(axis) };
        if self.count <= u32::MAX as u64 {
            // The machine divides 32 bits several times as fast as 64.
            let mut short = element as u32;
            while axis > 1 {
                axis -= 1;
                let (length, step) = axis_of(axis);
                // SAFETY: a loop over elements is not longer than there are elements, and not empty.
                unsafe { core::hint::assert_unchecked(length as u32 != 0) };
                offset += (short % length as u32) as i64 * step;
                short /= length as u32;
            }
            left = short as u64;
        }
        while axis > 1 {
            axis -= 1;
            let (length, step) = axis_of(axis);
            offset += (left % length) as i64 * step;
            left /= length;
        }
        if self.rank > 0 {
            offset += left as i64 * axis_of(0).1;
        }
        self.from.wrapping_offset(offset as isize)
    }
}

/// The first element of this thread, and how far it is to its next.
#[inline(always)]
fn span() -> (u64, u64) {
    // SAFETY: reads of registers.
    unsafe {
        let (block, width) = (_block_idx_x() as u64, _block_dim_x() as u64);
        (block * width + _thread_idx_x() as u64, _grid_dim_x() as u64 * width)
    }
}

/// Loads that a thread has under way at a time.
const UNDER_WAY: usize = 4;

/// # Safety
/// The host checked that every element is readable, aligned, and has its place in the target.
#[inline(always)]
unsafe fn gather<T: Copy>(job: Gathered) {
    let (mut element, step) = span();
    // SAFETY: the caller's contract; the elements are below their number.
    unsafe {
        let to = job.to.cast::<T>();
        while element + (UNDER_WAY as u64 - 1) * step < job.count {
            let loaded: [T; UNDER_WAY] =
                core::array::from_fn(|turn| *job.place(element + turn as u64 * step).cast::<T>());
            for (turn, value) in loaded.iter().enumerate() {
                *to.add((element + turn as u64 * step) as usize) = *value;
            }
            element += UNDER_WAY as u64 * step;
        }
        while element < job.count {
            *to.add(element as usize) = *job.place(element).cast::<T>();
            element += step;
        }
    }
}

macro_rules! gathers {
    ($($name:ident: $kind:ty;)*) => {$(
        /// Gathers elements of one size.
        ///
        /// # Safety
        /// The job describes memory of this device.
        #[unsafe(no_mangle)]
        unsafe extern "ptx-kernel" fn $name(job: Gather) {
            let job = gathered!($name, job);
            // SAFETY: the caller's contract.
            unsafe { gather::<$kind>(job) }
        }
    )*};
}

/// Sixteen bytes, moved as one.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Sixteen([u32; 4]);

gathers! {
    gather_1: u8;
    gather_2: u16;
    gather_4: u32;
    gather_8: u64;
    gather_16: u128;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
