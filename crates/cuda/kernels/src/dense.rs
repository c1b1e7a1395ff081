//! Casts between types that are in everybody's hands, of dense memory: a kernel for each pair.
//!
//! They are [`cast`](crate::cast)'s own conversions with the types known beforehand, so that the switches are gone, and a
//! thread moves up to four elements at once, twice. Where [`cast`](crate::cast) takes 2.5 times as long as a plain copy of as
//! many bytes, these take about as long.

use crate::cast::{code, load, store};
use crate::jobs::Dense;
use crate::span;

/// Some elements of so many bytes each, side by side, each in the low bytes of a word.
///
/// # Safety
/// They are readable, and aligned to sixteen bytes or all of them.
#[inline(always)]
unsafe fn read<const SIZE: usize, const SOME: usize>(from: *const u8) -> [u64; SOME] {
    let bits = 8 * SIZE;
    // SAFETY: the caller's contract.
    let halves = unsafe {
        match SIZE * SOME {
            2 => [*from.cast::<u16>() as u128, 0],
            4 => [*from.cast::<u32>() as u128, 0],
            8 => [*from.cast::<u64>() as u128, 0],
            16 => [*from.cast::<u128>(), 0],
            _ => [*from.cast::<u128>(), *from.cast::<u128>().add(1)],
        }
    };
    core::array::from_fn(|place| {
        let half = halves[place * bits / 128];
        (half >> (place * bits % 128)) as u64 & (u64::MAX >> (64 - bits))
    })
}

/// # Safety
/// As for [`read`], of memory to write.
#[inline(always)]
unsafe fn write<const SIZE: usize, const SOME: usize>(to: *mut u8, elements: [u64; SOME]) {
    let bits = 8 * SIZE;
    let mut halves = [0u128; 2];
    for (place, element) in elements.iter().enumerate() {
        halves[place * bits / 128] |= (*element as u128) << (place * bits % 128);
    }
    // SAFETY: the caller's contract.
    unsafe {
        match SIZE * SOME {
            2 => *to.cast::<u16>() = halves[0] as u16,
            4 => *to.cast::<u32>() = halves[0] as u32,
            8 => *to.cast::<u64>() = halves[0] as u64,
            16 => *to.cast::<u128>() = halves[0],
            _ => {
                *to.cast::<u128>() = halves[0];
                *to.cast::<u128>().add(1) = halves[1];
            }
        }
    }
}

#[inline(always)]
fn convert<const FROM: u32, const TO: u32>(element: u64) -> u64 {
    let mut result = 0u64;
    // SAFETY: a word has room for either element, and its low bytes come first.
    unsafe { store((&raw mut result).cast(), TO, load((&raw const element).cast(), FROM, false)) };
    result
}

/// # Safety
/// The job describes memory of this device, with elements of the first type and room for as many of the second, aligned
/// to sixteen bytes or four elements where `whole` says so. `SOME` is a power of two and at most four.
#[inline(always)]
unsafe fn dense<const FROM: u32, const FROM_SIZE: usize, const TO: u32, const TO_SIZE: usize, const SOME: usize>(
    job: Dense,
    whole: bool,
) {
    let (first, step) = span();
    let Dense { from, to, count } = job;
    let groups = if whole { count / SOME as u64 } else { 0 };
    // SAFETY: the caller's contract, here and below.
    let read = |group: u64| unsafe { read::<FROM_SIZE, SOME>(from.add(group as usize * SOME * FROM_SIZE)) };
    let write = |group: u64, elements: [u64; SOME]| {
        let to = to.wrapping_add(group as usize * SOME * TO_SIZE);
        // SAFETY: as above.
        unsafe { write::<TO_SIZE, SOME>(to, elements.map(convert::<FROM, TO>)) }
    };
    let mut group = first;
    while group + step < groups {
        let (near, far) = (read(group), read(group + step));
        write(group, near);
        write(group + step, far);
        group += 2 * step;
    }
    if group < groups {
        write(group, read(group));
    }
    let mut element = SOME as u64 * groups + first;
    while element < count {
        // SAFETY: as above.
        unsafe {
            let number = load(from.add(element as usize * FROM_SIZE), FROM, false);
            store(to.add(element as usize * TO_SIZE), TO, number);
        }
        element += step;
    }
}

/// How many elements a thread moves at once: what it writes is sixteen bytes at most.
const fn some(size: usize) -> usize {
    if size < 8 { 4 } else { 2 }
}

macro_rules! pairs {
    ($($name:ident: $from:ident $from_size:literal, $to:ident $to_size:literal;)*) => {$(
        /// Casts elements of one type to another.
        ///
        /// # Safety
        /// As for [`dense`].
        #[unsafe(no_mangle)]
        unsafe extern "ptx-kernel" fn $name(job: Dense, whole: u32) {
            // SAFETY: the caller's contract.
            unsafe { dense::<{ code::$from }, $from_size, { code::$to }, $to_size, { some($to_size) }>(job, whole != 0) }
        }
    )*};
}

pairs! {
    float32_to_float16: FLOAT32 4, FLOAT16 2;
    float32_to_bfloat16: FLOAT32 4, BFLOAT16 2;
    float32_to_float64: FLOAT32 4, FLOAT64 8;
    float32_to_float8_e4m3fn: FLOAT32 4, E4M3FN 1;
    float32_to_float8_e5m2: FLOAT32 4, E5M2 1;
    float32_to_uint8: FLOAT32 4, UINT8 1;
    float32_to_int32: FLOAT32 4, INT32 4;
    float32_to_int64: FLOAT32 4, INT64 8;
    float16_to_float32: FLOAT16 2, FLOAT32 4;
    float16_to_bfloat16: FLOAT16 2, BFLOAT16 2;
    float16_to_float64: FLOAT16 2, FLOAT64 8;
    bfloat16_to_float32: BFLOAT16 2, FLOAT32 4;
    bfloat16_to_float16: BFLOAT16 2, FLOAT16 2;
    bfloat16_to_float64: BFLOAT16 2, FLOAT64 8;
    bfloat16_to_float8_e4m3fn: BFLOAT16 2, E4M3FN 1;
    bfloat16_to_float8_e5m2: BFLOAT16 2, E5M2 1;
    float64_to_float32: FLOAT64 8, FLOAT32 4;
    float64_to_float16: FLOAT64 8, FLOAT16 2;
    float64_to_bfloat16: FLOAT64 8, BFLOAT16 2;
    uint8_to_float32: UINT8 1, FLOAT32 4;
    uint8_to_float16: UINT8 1, FLOAT16 2;
    uint8_to_bfloat16: UINT8 1, BFLOAT16 2;
    uint8_to_int64: UINT8 1, INT64 8;
    bool_to_float32: BOOL 1, FLOAT32 4;
    int32_to_int64: INT32 4, INT64 8;
    int32_to_float32: INT32 4, FLOAT32 4;
    int64_to_int32: INT64 8, INT32 4;
    int64_to_float32: INT64 8, FLOAT32 4;
    int64_to_float64: INT64 8, FLOAT64 8;
}
