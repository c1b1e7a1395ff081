//! Sorts elements by all their coordinates, and finds where each distinct coordinate starts.
//!
//! The coordinates and the number of an element are combined into one 64-bit key if they fit, and the keys are radix sorted:
//! three passes for a million elements of a 10,000 x 10,000 matrix.

use super::index::{Axis, Index, common_count};
use super::parallel::{SharedOutput, block_start, choose_threads};
use crate::error::{Error, ErrorKind, Result};
use crate::fallible;
use crate::hints;
use crate::host::HostBlock;
use crate::workers;
use std::cmp::Ordering;

/// The maximum width of a radix digit: its counters fit in the first-level cache.
const MAX_DIGIT_BITS: u32 = 11;

/// A stable order of elements.
#[derive(Debug)]
pub struct SortedOrder {
    count: usize,
    order: HostBlock,
    starts: Vec<usize>,
}

// SAFETY: the block is not written any more.
unsafe impl Sync for SortedOrder {}

impl SortedOrder {
    /// The numbers of the elements in sorted order; each is below the count.
    pub fn order(&self) -> &[usize] {
        // SAFETY: `sort_by_axes` has written this many numbers.
        unsafe { std::slice::from_raw_parts(self.order.data().cast(), self.count) }
    }

    /// The position in the order at which each distinct coordinate starts.
    pub fn starts(&self) -> &[usize] {
        &self.starts
    }
}

/// Sorts elements by all axes, the first axis first. The coordinates along an axis are below its length. If axes have
/// different counts, the shortest determines the number of elements.
///
/// # Errors
/// When there is no memory for it.
pub fn sort_by_axes<I: Index>(axes: &[Axis<'_, I>], lengths: &[i64], threads: usize) -> Result<SortedOrder> {
    let count = common_count(axes);
    // Saturating: an axis with a stride of zero may be longer than memory.
    let bytes = count.saturating_mul(size_of::<u64>());
    let mut from = HostBlock::new(bytes)?;
    let (number_bits, key_bits) =
        (bits(count as i64), lengths.iter().map(|&length| bits(length)).sum::<u32>());
    if key_bits + number_bits > u64::BITS {
        return sort_by_comparison(axes, count, from);
    }
    let mut to = HostBlock::new(bytes)?;
    let blocks = choose_threads(count, threads);
    write_keys(axes, lengths, number_bits, &from, blocks);
    let digits = key_bits.div_ceil(MAX_DIGIT_BITS).max(1);
    let mut shift = number_bits;
    for digit in 0..digits {
        let width = (key_bits * (digit + 1) / digits) - (key_bits * digit / digits);
        sort_by_digit(&from, &to, count, shift, width, blocks);
        std::mem::swap(&mut from, &mut to);
        shift += width;
    }
    let starts = extract_order(&from, count, number_bits, blocks)?;
    Ok(SortedOrder { count, order: from, starts })
}

/// The number of bits of the numbers below a length.
fn bits(length: i64) -> u32 {
    u64::BITS - (length.max(1) as u64 - 1).leading_zeros()
}

/// Combines the coordinates and the number of each element into a key.
fn write_keys<I: Index>(
    axes: &[Axis<'_, I>],
    lengths: &[i64],
    number_bits: u32,
    into: &HostBlock,
    blocks: usize,
) {
    let count = common_count(axes);
    let out = SharedOutput(into.data().cast::<u64>());
    let widths: Vec<u32> = lengths.iter().map(|&length| bits(length)).collect();
    workers::for_each_parallel(blocks, blocks, |block| {
        for number in block_start(count, blocks, block)..block_start(count, blocks, block + 1) {
            let mut key = 0u64;
            for (axis, &width) in axes.iter().zip(&widths) {
                // SAFETY: below the count, which every axis has.
                let found = unsafe { axis.get(number) };
                // Masked, because another thread may have changed the number since validation.
                let coordinate = found.to_i64() as u64 & !(u64::MAX.checked_shl(width).unwrap_or(0));
                key = key.unbounded_shl(width) | coordinate;
            }
            // SAFETY: the block has room for all keys; each thread writes its own range.
            unsafe { out.write(number, key.unbounded_shl(number_bits) | number as u64) };
        }
    });
}

/// One pass of the radix sort: counts the values of a digit, then writes the keys in their order.
fn sort_by_digit(from: &HostBlock, to: &HostBlock, count: usize, shift: u32, width: u32, blocks: usize) {
    // SAFETY: `write_keys` or the previous pass has written all keys.
    let source = unsafe { std::slice::from_raw_parts(from.data().cast::<u64>(), count) };
    let out = SharedOutput(to.data().cast::<u64>());
    let values = 1usize << width;
    let digit = |number: u64| (number.unbounded_shr(shift) as usize) & (values - 1);
    let mut next = vec![0usize; values * blocks];
    let counters = SharedOutput(next.as_mut_ptr());
    // SAFETY: the counters of one block, which no other thread uses.
    let own = |block: usize| unsafe {
        std::slice::from_raw_parts_mut(counters.start().add(values * block), values)
    };
    let range = |block: usize| block_start(count, blocks, block)..block_start(count, blocks, block + 1);
    workers::for_each_parallel(blocks, blocks, |block| {
        let own = own(block);
        for &number in &source[range(block)] {
            own[digit(number)] += 1;
        }
    });
    let mut total = 0;
    for value in 0..values {
        for block in 0..blocks {
            // SAFETY: no other thread uses the counters now.
            let counter = unsafe { &mut *counters.start().add(values * block + value) };
            total += std::mem::replace(counter, total);
        }
    }
    workers::for_each_parallel(blocks, blocks, |block| {
        let own = own(block);
        for &number in &source[range(block)] {
            let target = &mut own[digit(number)];
            // SAFETY: the counters add up to the count, and each block has its own range.
            unsafe { out.write(*target, number) };
            *target += 1;
        }
    });
}

/// Reduces the keys to element numbers, and returns where each distinct coordinate starts.
fn extract_order(block: &HostBlock, count: usize, number_bits: u32, blocks: usize) -> Result<Vec<usize>> {
    let out = SharedOutput(block.data().cast::<u64>());
    // SAFETY: all keys were written, and none is written while they are read.
    let sorted = || unsafe { std::slice::from_raw_parts(out.start(), count) };
    let coordinate = |key: u64| key.unbounded_shr(number_bits);
    let range = |index: usize| block_start(count, blocks, index)..block_start(count, blocks, index + 1);
    let is_start = |keys: &[u64], at: usize| at == 0 || coordinate(keys[at]) != coordinate(keys[at - 1]);
    let mut start_counts = vec![0usize; blocks];
    let counts = SharedOutput(start_counts.as_mut_ptr());
    workers::for_each_parallel(blocks, blocks, |block_index| {
        let sorted = sorted();
        let in_block = range(block_index).filter(|&at| is_start(sorted, at)).count();
        // SAFETY: each block has its own counter.
        unsafe { counts.write(block_index, in_block) };
    });
    let distinct = start_counts.iter().sum();
    let mut starts: Vec<usize> = Vec::new();
    starts.try_reserve_exact(distinct).map_err(|_| {
        Error::new(ErrorKind::OutOfMemory, format!("no memory for the order of {distinct} coordinates"))
            .with_hint(hints::FREE_MEMORY)
    })?;
    let output = SharedOutput(starts.as_mut_ptr());
    let first: Vec<usize> = (0..blocks).map(|block| start_counts[..block].iter().sum()).collect();
    workers::for_each_parallel(blocks, blocks, |block_index| {
        let sorted = sorted();
        let in_block = range(block_index).filter(|&at| is_start(sorted, at));
        for (index, at) in in_block.enumerate() {
            // SAFETY: the vector has room for all starts that were counted, and each block writes after those before it.
            unsafe { output.write(first[block_index] + index, at) };
        }
    });
    // SAFETY: all of them have been written.
    unsafe { starts.set_len(distinct) };
    let mask = !u64::MAX.checked_shl(number_bits).unwrap_or(0);
    workers::for_each_parallel(blocks, blocks, |block_index| {
        for at in range(block_index) {
            // SAFETY: within the keys; each thread changes its own range.
            unsafe { *out.start().add(at) &= mask };
        }
    });
    Ok(starts)
}

/// Sorts by comparison, for coordinates that do not fit in a key. The block has room for one number per element.
fn sort_by_comparison<I: Index>(axes: &[Axis<'_, I>], count: usize, block: HostBlock) -> Result<SortedOrder> {
    // SAFETY: numbers are below the count, which every axis has.
    let along = |axis: &Axis<'_, I>, number: usize| unsafe { axis.get(number) };
    let by_coordinates = |left: usize, right: usize| {
        let by_axis = axes.iter().map(|axis| along(axis, left).cmp(&along(axis, right)));
        by_axis.fold(Ordering::Equal, Ordering::then)
    };
    // SAFETY: the block has room for the numbers, is aligned for them, and all of them are written here.
    let order = unsafe {
        (0..count).for_each(|at| block.data().cast::<usize>().add(at).write(at));
        std::slice::from_raw_parts_mut(block.data().cast::<usize>(), count)
    };
    order.sort_unstable_by(|&left, &right| by_coordinates(left, right).then(left.cmp(&right)));
    let mut starts = Vec::new();
    for at in 0..count {
        if at == 0 || by_coordinates(order[at], order[at - 1]) != Ordering::Equal {
            fallible::try_push(&mut starts, at)?;
        }
    }
    Ok(SortedOrder { count, order: block, starts })
}

const _: () = assert!(size_of::<usize>() == size_of::<u64>());

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(coordinates: &[Vec<i64>], lengths: &[i64]) {
        let memory: Vec<Vec<i64>> = (0..lengths.len())
            .map(|axis| coordinates.iter().map(|coordinate| coordinate[axis]).collect())
            .collect();
        let axes: Vec<Axis<'_, i64>> = memory.iter().map(|axis| axis[..].into()).collect();
        let found = sort_by_axes(&axes, lengths, 3).unwrap();
        let mut expected: Vec<usize> = (0..coordinates.len()).collect();
        expected.sort_by_key(|&number| &coordinates[number]);
        assert_eq!(found.order(), expected);
        let starts: Vec<usize> = (0..expected.len())
            .filter(|&at| at == 0 || coordinates[expected[at]] != coordinates[expected[at - 1]])
            .collect();
        assert_eq!(found.starts(), starts);
    }

    proptest! {
        #[test]
        fn orders_are_stable(coordinates in prop::collection::vec(prop::collection::vec(0i64..9, 3), 0..200)) {
            check(&coordinates, &[9, 9, 9]);
            check(&coordinates, &[i64::MAX, i64::MAX, 9]);
            check(&coordinates, &[1 << 20, 9, 1 << 31]);
        }
    }

    #[test]
    fn one_coordinate_and_none() {
        check(&[], &[5, 5]);
        check(&[vec![0, 0]], &[1, 1]);
        check(&vec![vec![0, 0]; 50], &[1, 1]);
        check(&(0..50).rev().map(|at| vec![at << 56]).collect::<Vec<_>>(), &[i64::MAX]);
    }
}
