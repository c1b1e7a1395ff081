//! Planes whose rows and columns are exchanged.
//!
//! A thread takes a square of sixteen bytes by sixteen bytes' worth of elements: it reads a line of sixteen bytes from
//! each of as many source rows, turns the square around in its registers, and writes a line to each of as many target
//! rows. Eight threads that lie side by side read 128 bytes, a whole cache line; four of them on top of each other write
//! 64. So both sides move whole sectors, and no shared memory is needed in between.
//!
//! Blocks go down the source in pairs of columns, so that what runs at the same time writes long stretches of few target
//! rows; and nothing is read or written twice, so the caches are told not to keep it. Of the orders and shapes that were
//! tried on an H200 this was the quickest: 1.05 to 1.10 of a plain copy, against 1.20 along the rows and cached.

use crate::Sixteen;
use crate::jobs::Planes;
use core::arch::asm;
use core::arch::nvptx::{_block_dim_y, _block_idx_x, _block_idx_y, _block_idx_z, _thread_idx_x, _thread_idx_y};

/// Sixteen bytes that are read once.
///
/// # Safety
/// They are readable global memory, aligned to sixteen.
#[inline(always)]
unsafe fn load(from: *const Sixteen) -> Sixteen {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "ld.global.cs.v4.u32 {{{}, {}, {}, {}}}, [{}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) from,
            options(nostack, readonly, preserves_flags)
        );
    }
    Sixteen([a, b, c, d])
}

/// Sixteen bytes that nobody reads soon.
///
/// # Safety
/// They are writable global memory, aligned to sixteen.
#[inline(always)]
unsafe fn store(to: *mut Sixteen, line: Sixteen) {
    let Sixteen([a, b, c, d]) = line;
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "st.global.cs.v4.u32 [{}], {{{}, {}, {}, {}}};",
            in(reg64) to, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d,
            options(nostack, preserves_flags)
        );
    }
}

/// # Safety
/// The planes are memory of this device; `N` is sixteen by the size of an element, and `whole` holds only where every
/// pitch and start is a multiple of sixteen.
#[inline(always)]
unsafe fn turn<T: Copy, const N: usize>(job: &Planes, whole: bool) {
    // SAFETY: reads of registers.
    let (x, y, z) = unsafe {
        let (block, pair) = (_block_idx_x() as u64, _block_idx_y() as u64);
        let x = (2 * pair + block % 2) * 8 + _thread_idx_x() as u64;
        let y = block / 2 * _block_dim_y() as u64 + _thread_idx_y() as u64;
        (x * N as u64, y * N as u64, _block_idx_z() as i64)
    };
    if x >= job.columns || y >= job.rows {
        return;
    }
    let from = job.from.wrapping_offset((z * job.from_plane) as isize);
    let to = job.to.wrapping_offset((z * job.to_plane) as isize);
    // SAFETY: the square lies within the planes where it is whole, and is walked within them where it is not; the host
    // checked the planes.
    unsafe {
        if whole && x + N as u64 <= job.columns && y + N as u64 <= job.rows {
            let mut lines = [[core::mem::MaybeUninit::<T>::uninit().assume_init(); N]; N];
            let mut place = from.offset((y as i64 * job.from_pitch) as isize).cast::<T>().add(x as usize).cast::<u8>();
            let mut row = 0;
            while row < N {
                lines[row] = core::mem::transmute_copy::<Sixteen, [T; N]>(&load(place.cast()));
                place = place.wrapping_offset(job.from_pitch as isize);
                row += 1;
            }
            let mut place = to.offset((x as i64 * job.to_pitch) as isize).cast::<T>().add(y as usize).cast::<u8>();
            let mut column = 0;
            while column < N {
                let mut line = [lines[0][column]; N];
                let mut row = 1;
                while row < N {
                    line[row] = lines[row][column];
                    row += 1;
                }
                store(place.cast(), core::mem::transmute_copy::<[T; N], Sixteen>(&line));
                place = place.wrapping_offset(job.to_pitch as isize);
                column += 1;
            }
            return;
        }
        let (right, bottom) = ((x + N as u64).min(job.columns), (y + N as u64).min(job.rows));
        let mut column = x;
        while column < right {
            let mut row = y;
            while row < bottom {
                let read = from.offset((row as i64 * job.from_pitch) as isize).cast::<T>().add(column as usize);
                let write = to.offset((column as i64 * job.to_pitch) as isize).cast::<T>().add(row as usize);
                *write = *read;
                row += 1;
            }
            column += 1;
        }
    }
}

macro_rules! transposes {
    ($($name:ident: $kind:ty, $n:literal;)*) => {$(
        /// Transposes planes of elements of one size.
        ///
        /// # Safety
        /// The job describes memory of this device; `whole` is not zero only where all pitches and starts are multiples
        /// of sixteen bytes.
        #[unsafe(no_mangle)]
        unsafe extern "ptx-kernel" fn $name(job: Planes, whole: u32) {
            // SAFETY: the caller's contract.
            unsafe { turn::<$kind, $n>(&job, whole != 0) }
        }
    )*};
}

transposes! {
    transpose_1: u8, 16;
    transpose_2: u16, 8;
    transpose_4: u32, 4;
    transpose_8: u64, 2;
    transpose_16: Sixteen, 1;
}
