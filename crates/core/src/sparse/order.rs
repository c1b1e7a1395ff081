//! Sorts elements by all their coordinates, and finds where each distinct coordinate starts.
//!
//! The coordinates and the number of an element are combined into one 64-bit key if they fit, and the keys are radix sorted:
//! three passes for a million elements of a 10,000 x 10,000 matrix.

use super::index::{Axis, Index, common_count};
use super::parallel::{
    Bounds, NumberBlock, SharedOutput, WrittenNumbers, block_bounds, block_start, choose_threads,
    for_each_block,
};
use crate::error::{Error, ErrorKind, Result};
use crate::fallible;
use crate::hints;
use std::cmp::Ordering;

/// The maximum width of a radix digit: its counters fit in the first-level cache.
const MAX_DIGIT_BITS: u32 = 11;

/// A stable order of elements.
#[derive(Debug)]
pub struct SortedOrder {
    order: WrittenNumbers<usize>,
    starts: Vec<usize>,
}

impl SortedOrder {
    /// The numbers of the elements in sorted order; each is below the count.
    pub fn order(&self) -> &[usize] {
        self.order.numbers()
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
/// Memory runs out.
pub fn sort_by_axes<I: Index>(axes: &[Axis<'_, I>], lengths: &[i64], threads: usize) -> Result<SortedOrder> {
    let count = common_count(axes);
    // An axis with a stride of zero may be longer than memory.
    let block = NumberBlock::new(count)?;
    let (number_bits, key_bits) =
        (bits(count as i64), lengths.iter().map(|&length| bits(length)).sum::<u32>());
    if key_bits + number_bits > usize::BITS {
        return sort_by_comparison(axes, block);
    }
    let mut free = NumberBlock::new(count)?;
    let blocks = choose_threads(count, threads);
    let mut keys = write_keys(axes, lengths, number_bits, block, blocks);
    let digits = key_bits.div_ceil(MAX_DIGIT_BITS).max(1);
    let mut shift = number_bits;
    for digit in 0..digits {
        let width = (key_bits * (digit + 1) / digits) - (key_bits * digit / digits);
        let sorted = sort_by_digit(&keys, free, shift, width, blocks);
        free = std::mem::replace(&mut keys, sorted).into_unwritten();
        shift += width;
    }
    let starts = extract_order(&mut keys, number_bits, blocks)?;
    Ok(SortedOrder { order: keys, starts })
}

/// The number of bits of the numbers below a length.
fn bits(length: i64) -> u32 {
    u64::BITS - (length.max(1) as u64 - 1).leading_zeros()
}

/// The low bits of a number.
fn mask(bits: u32) -> usize {
    !usize::MAX.checked_shl(bits).unwrap_or(0)
}

/// Combines the coordinates and the number of each element into a key.
fn write_keys<I: Index>(
    axes: &[Axis<'_, I>],
    lengths: &[i64],
    number_bits: u32,
    mut into: NumberBlock<usize>,
    blocks: usize,
) -> WrittenNumbers<usize> {
    let widths: Vec<u32> = lengths.iter().map(|&length| bits(length)).collect();
    let bounds = block_bounds(into.slots().len(), blocks);
    for_each_block(into.slots(), &bounds, blocks, |block, slots| {
        for (number, slot) in (bounds[block]..).zip(slots) {
            let mut key = 0usize;
            for (axis, &width) in axes.iter().zip(&widths) {
                // Masked, because another thread may have changed the number since validation.
                let coordinate = axis.get(number).to_usize() & mask(width);
                key = key.unbounded_shl(width) | coordinate;
            }
            slot.write(key.unbounded_shl(number_bits) | number);
        }
    });
    // SAFETY: the blocks cover all slots, and the loop writes each slot of its block.
    unsafe { into.assume_written() }
}

/// One pass of the radix sort: counts the values of a digit, then writes the keys in their order.
fn sort_by_digit(
    from: &WrittenNumbers<usize>,
    mut to: NumberBlock<usize>,
    shift: u32,
    width: u32,
    blocks: usize,
) -> WrittenNumbers<usize> {
    let source = from.numbers();
    let slots = to.slots();
    assert_eq!(source.len(), slots.len());
    let out = SharedOutput(slots.as_mut_ptr().cast::<usize>());
    let values = 1usize << width;
    let digit = |number: usize| number.unbounded_shr(shift) & (values - 1);
    // A counter for each value of the digit in each block of numbers.
    let mut next = vec![0usize; values * blocks];
    let bounds = block_bounds(next.len(), blocks);
    let numbers = |block: usize| {
        &source[block_start(source.len(), blocks, block)..block_start(source.len(), blocks, block + 1)]
    };
    for_each_block(&mut next, &bounds, blocks, |block, counters| {
        let counters = &mut counters[..values];
        for &number in numbers(block) {
            counters[digit(number)] += 1;
        }
    });
    let mut total = 0;
    for value in 0..values {
        for block in 0..blocks {
            total += std::mem::replace(&mut next[values * block + value], total);
        }
    }
    for_each_block(&mut next, &bounds, blocks, |block, counters| {
        let counters = &mut counters[..values];
        for &number in numbers(block) {
            let target = &mut counters[digit(number)];
            // SAFETY: for each block and value, the first loop counted the numbers that this loop writes: nothing changes
            // `source` meanwhile. The counters start at the sums of those before, so the targets are below the total, which
            // is the number of slots, and no two numbers have the same target. Slots are aligned for numbers.
            unsafe { out.write(*target, number) };
            *target += 1;
        }
    });
    // SAFETY: the targets are as many different slots as there are slots, so all of them were written.
    unsafe { to.assume_written() }
}

/// Reduces the keys to element numbers, and returns where each distinct coordinate starts.
fn extract_order(keys: &mut WrittenNumbers<usize>, number_bits: u32, blocks: usize) -> Result<Vec<usize>> {
    let sorted = keys.numbers();
    let bounds = block_bounds(sorted.len(), blocks);
    let coordinate = |key: usize| key.unbounded_shr(number_bits);
    let is_start = |&at: &usize| at == 0 || coordinate(sorted[at]) != coordinate(sorted[at - 1]);
    let starts_in = |block: usize| (bounds[block]..bounds[block + 1]).filter(is_start);
    let mut start_counts = vec![0usize; blocks];
    for_each_block(&mut start_counts, &block_bounds(blocks, blocks), blocks, |block, count| {
        count.fill(starts_in(block).count());
    });
    let mut start_bounds = Bounds::from_elem(0, 1);
    for (block, count) in start_counts.iter().enumerate() {
        start_bounds.push(start_bounds[block] + count);
    }
    let distinct = start_bounds[blocks];
    let mut starts: Vec<usize> = Vec::new();
    starts.try_reserve_exact(distinct).map_err(|_| {
        Error::new(ErrorKind::OutOfMemory, format!("no memory for the order of {distinct} coordinates"))
            .with_hint(hints::FREE_MEMORY)
    })?;
    for_each_block(starts.spare_capacity_mut(), &start_bounds, blocks, |block, slots| {
        for (slot, at) in slots.iter_mut().zip(starts_in(block)) {
            slot.write(at);
        }
    });
    // SAFETY: the vector reserved `distinct` items. The blocks cover as many, and each block has a slot for every start that
    // `starts_in` counted in the same keys, so all of them were written.
    unsafe { starts.set_len(distinct) };
    for_each_block(keys.numbers_mut(), &bounds, blocks, |_, keys| {
        keys.iter_mut().for_each(|key| *key &= mask(number_bits));
    });
    Ok(starts)
}

/// Sorts by comparison, for coordinates that do not fit in a key.
fn sort_by_comparison<I: Index>(axes: &[Axis<'_, I>], mut block: NumberBlock<usize>) -> Result<SortedOrder> {
    let by_coordinates = |left: usize, right: usize| {
        let by_axis = axes.iter().map(|axis| axis.get(left).cmp(&axis.get(right)));
        by_axis.fold(Ordering::Equal, Ordering::then)
    };
    for (number, slot) in block.slots().iter_mut().enumerate() {
        slot.write(number);
    }
    // SAFETY: the loop writes every slot.
    let mut order = unsafe { block.assume_written() };
    let numbers = order.numbers_mut();
    numbers.sort_unstable_by(|&left, &right| by_coordinates(left, right).then(left.cmp(&right)));
    let mut starts = Vec::new();
    for at in 0..numbers.len() {
        if at == 0 || by_coordinates(numbers[at], numbers[at - 1]) != Ordering::Equal {
            fallible::try_push(&mut starts, at)?;
        }
    }
    Ok(SortedOrder { order, starts })
}

const _: () = assert!(usize::BITS == u64::BITS);

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
