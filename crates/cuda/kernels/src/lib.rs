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
#[path = "../../src/jobs.rs"]
mod jobs;
#[path = "../../../core/src/pack/number.rs"]
mod number;
mod transpose;

use crate::jobs::Gather;
use core::arch::nvptx::{_block_dim_x, _block_idx_x, _grid_dim_x, _thread_idx_x};

impl Gather {
    /// Where the element of this number lies in the source.
    #[inline(always)]
    unsafe fn place(&self, element: u64) -> *const u8 {
        let mut offset = 0i64;
        if self.count <= u32::MAX as u64 {
            // The machine divides 32 bits several times as fast as 64.
            let mut left = element as u32;
            let mut axis = self.rank as usize;
            while axis > 1 {
                axis -= 1;
                // SAFETY: `axis` is below the rank, which is at most `MOST`; no length is zero where there are elements.
                let (length, step) = unsafe {
                    let length = *self.lengths.get_unchecked(axis) as u32;
                    core::hint::assert_unchecked(length != 0);
                    (length, *self.steps.get_unchecked(axis))
                };
                offset += (left % length) as i64 * step;
                left /= length;
            }
            offset += left as i64 * self.steps[0];
        } else {
            let mut left = element;
            let mut axis = self.rank as usize;
            while axis > 1 {
                axis -= 1;
                // SAFETY: as above.
                let (length, step) = unsafe {
                    let length = *self.lengths.get_unchecked(axis);
                    core::hint::assert_unchecked(length != 0);
                    (length, *self.steps.get_unchecked(axis))
                };
                offset += (left % length) as i64 * step;
                left /= length;
            }
            offset += left as i64 * self.steps[0];
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

#[inline(always)]
unsafe fn gather<T: Copy>(job: &Gather) {
    let (mut element, step) = span();
    while element < job.count {
        // SAFETY: the host checked that every element is readable, aligned, and has its place in the target.
        unsafe { *job.to.cast::<T>().add(element as usize) = *job.place(element).cast::<T>() };
        element += step;
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
            // SAFETY: the caller's contract.
            unsafe { gather::<$kind>(&job) }
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
    gather_16: Sixteen;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
