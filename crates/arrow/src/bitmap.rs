//! Bits: the validity of elements, and booleans. The first bit of a byte is its lowest.

/// A range of bits in memory that somebody else keeps alive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits {
    data: *const u8,
    /// The number of bits before the first one.
    offset: usize,
    length: usize,
}

// SAFETY: the memory does not change while it is shared (the contract of `new`), so that any thread may read it.
unsafe impl Send for Bits {}
// SAFETY: as for `Send`.
unsafe impl Sync for Bits {}

impl Bits {
    /// The bits `offset` to `offset + length` after a pointer.
    ///
    /// # Safety
    /// `offset + length` does not overflow. The bytes of these bits are readable, and do not change, as long as the value or a
    /// slice of it is used.
    pub(crate) unsafe fn new(data: *const u8, offset: usize, length: usize) -> Self {
        Self { data, offset, length }
    }

    /// The number of bits.
    #[cfg(test)]
    pub(crate) fn len(self) -> usize {
        self.length
    }

    /// Some of the bits. Bits that do not exist are left out.
    #[must_use]
    pub(crate) fn slice(self, start: usize, length: usize) -> Self {
        let start = start.min(self.length);
        Self { offset: self.offset + start, length: length.min(self.length - start), ..self }
    }

    /// One bit; false if it does not exist.
    pub(crate) fn get(self, index: usize) -> bool {
        if index >= self.length {
            return false;
        }
        let at = self.offset + index;
        // SAFETY: the index is less than the length, so that the byte is readable (the contract of `new`).
        unsafe { *self.data.add(at / 8) >> (at % 8) & 1 == 1 }
    }

    /// The 64 bits from a multiple of 64 on; bits beyond the end are zero.
    fn word(self, index: usize) -> u64 {
        let rest = self.length.saturating_sub(index * 64).min(64);
        if rest == 0 {
            return 0;
        }
        let at = self.offset + index * 64;
        let (byte, shift) = (at / 8, at % 8);
        let count = (shift + rest).div_ceil(8);
        let mut bytes = [0u8; 16];
        // SAFETY: these are the `count` bytes of `rest` bits, which are among the bits of the value and readable (the contract of
        // `new`). At most 7 + 64 bits are nine bytes, and there is room for 16.
        unsafe { self.data.add(byte).copy_to_nonoverlapping(bytes.as_mut_ptr(), count) };
        let word = (u128::from_le_bytes(bytes) >> shift) as u64;
        if rest == 64 { word } else { word & ((1 << rest) - 1) }
    }

    /// The words of all bits; bits beyond the end are zero.
    fn words(self) -> impl Iterator<Item = u64> {
        (0..self.length.div_ceil(64)).map(move |index| self.word(index))
    }

    /// The number of bits that are zero.
    pub(crate) fn count_zeros(self) -> usize {
        self.length - self.words().map(|word| word.count_ones() as usize).sum::<usize>()
    }

    /// Calls a function with the index of each bit that is zero.
    pub(crate) fn for_each_zero(self, mut visit: impl FnMut(usize)) {
        for (number, word) in self.words().enumerate() {
            let rest = (self.length - number * 64).min(64);
            let mut zeros = !word & (u64::MAX >> (64 - rest));
            while zeros != 0 {
                visit(number * 64 + zeros.trailing_zeros() as usize);
                zeros &= zeros - 1;
            }
        }
    }

    /// Writes a byte for each bit, 0 or 1.
    ///
    /// # Safety
    /// As many bytes as there are bits are writable at `out`, and nothing else uses them.
    pub(crate) unsafe fn unpack(self, out: *mut u8) {
        // A multiplication copies a byte of bits to eight bytes, a mask keeps another bit in each of them, and the addition moves
        // it to the highest byte.
        let spread = |bits: u8| -> u64 {
            let one_bit_each = u64::from(bits).wrapping_mul(0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
            ((one_bit_each + 0x7f7f_7f7f_7f7f_7f7f) >> 7) & 0x0101_0101_0101_0101
        };
        for (number, word) in self.words().enumerate() {
            let start = number * 64;
            let rest = (self.length - start).min(64);
            let mut bytes = [0u64; 8];
            for (eight, bits) in bytes.iter_mut().zip(word.to_le_bytes()) {
                *eight = spread(bits).to_le();
            }
            // SAFETY: `start + rest` is at most the number of bits, for which there is room (the contract of `unpack`). The eight
            // numbers are 64 bytes.
            unsafe { bytes.as_ptr().cast::<u8>().copy_to_nonoverlapping(out.add(start), rest) };
        }
    }
}

/// Writes a bit for each byte: one for any byte but zero. Bits beyond the last one are zero.
///
/// # Safety
/// `count` bytes are readable at `bytes`, and `count.div_ceil(8)` bytes are writable at `out`. Nothing else writes either meanwhile.
pub unsafe fn pack_bits(bytes: *const u8, count: usize, out: *mut u8) {
    for start in (0..count).step_by(16) {
        let rest = (count - start).min(16);
        let mut sixteen = [0; 16];
        // SAFETY: `start + rest` is at most `count`, so that the bytes are readable (the contract of `pack_bits`).
        unsafe {
            match rest {
                16 => sixteen = bytes.add(start).cast::<[u8; 16]>().read(),
                _ => bytes.add(start).copy_to_nonoverlapping(sixteen.as_mut_ptr(), rest),
            }
        }
        let bits = nonzero_bits(sixteen).to_le_bytes();
        // SAFETY: `start` is a multiple of 8, and the bits from it on are in `rest.div_ceil(8)` bytes, which are writable (the
        // contract of `pack_bits`).
        unsafe {
            match rest {
                16 => out.add(start / 8).cast::<[u8; 2]>().write(bits),
                _ => out.add(start / 8).copy_from_nonoverlapping(bits.as_ptr(), rest.div_ceil(8)),
            }
        }
    }
}

/// A bit for each byte that is not zero.
#[cfg(target_arch = "x86_64")]
fn nonzero_bits(bytes: [u8; 16]) -> u16 {
    use std::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_setzero_si128};
    // SAFETY: the instructions are SSE2, which every x86-64 processor has. The load is of the 16 bytes of the array.
    let zeros = unsafe {
        let bytes = _mm_loadu_si128(bytes.as_ptr().cast::<__m128i>());
        _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128()))
    };
    !(zeros as u16)
}

/// A bit for each byte that is not zero.
#[cfg(not(target_arch = "x86_64"))]
fn nonzero_bits(bytes: [u8; 16]) -> u16 {
    let set_bits = bytes.iter().enumerate().map(|(index, &byte)| u16::from(byte != 0) << index);
    set_bits.fold(0, |bits, bit| bits | bit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits(bytes: &[u8], offset: usize, length: usize) -> Bits {
        assert!(offset + length <= bytes.len() * 8);
        // SAFETY: the assertion keeps the bits within the bytes, which live longer than the value in these tests.
        unsafe { Bits::new(bytes.as_ptr(), offset, length) }
    }

    fn unpacked(bits: Bits) -> Vec<u8> {
        let mut out = vec![9; bits.len()];
        // SAFETY: the vector has a byte for each bit.
        unsafe { bits.unpack(out.as_mut_ptr()) };
        out
    }

    proptest! {
        #[test]
        fn packed_bytes_return(bytes: Vec<u8>, zero_mask: Vec<bool>) {
            let keep = zero_mask.into_iter().chain(std::iter::repeat(true));
            let bytes: Vec<u8> = bytes.into_iter().zip(keep).map(|(byte, keep)| if keep { byte } else { 0 }).collect();
            let mut packed = vec![9; bytes.len().div_ceil(8)];
            // SAFETY: the vectors have these bytes.
            unsafe { pack_bits(bytes.as_ptr(), bytes.len(), packed.as_mut_ptr()) };
            let expected: Vec<u8> = bytes.iter().map(|&byte| u8::from(byte != 0)).collect();
            prop_assert_eq!(unpacked(bits(&packed, 0, bytes.len())), expected);
            let beyond = bits(&packed, bytes.len(), packed.len() * 8 - bytes.len());
            prop_assert_eq!(beyond.count_zeros(), beyond.len());
        }

        #[test]
        fn all_methods_agree_with_a_loop(bytes: Vec<u8>, start in 0usize..200, length in 0usize..900) {
            let start = start.min(bytes.len() * 8);
            let length = length.min(bytes.len() * 8 - start);
            let expected: Vec<u8> = (start..start + length).map(|at| bytes[at / 8] >> (at % 8) & 1).collect();
            let found = bits(&bytes, start, length);
            prop_assert_eq!(&unpacked(found), &expected);
            prop_assert_eq!(found.count_zeros(), expected.iter().filter(|&&bit| bit == 0).count());
            let mut zeros = Vec::new();
            found.for_each_zero(|index| zeros.push(index));
            prop_assert!(zeros.iter().copied().eq((0..length).filter(|&at| expected[at] == 0)));
            prop_assert!((0..length).all(|at| found.get(at) == (expected[at] == 1)));
            prop_assert!(!found.get(length));
            let half = found.slice(length / 2, length);
            prop_assert_eq!(&unpacked(half), &expected[length / 2..]);
        }
    }
}
