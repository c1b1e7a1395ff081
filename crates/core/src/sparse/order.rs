//! The order of elements by all their coordinates, and where each place begins in it.
//!
//! A place and the element's number go into one 64-bit number where they fit, which is sorted digit by digit: three passes for
//! a million elements of a 10,000 x 10,000 matrix.

use super::{Axis, Index, Out, bound, count_of, worth};
use crate::error::{Error, ErrorKind, Result};
use crate::fallible;
use crate::hints;
use crate::host::HostBlock;
use crate::workers;
use std::cmp::Ordering;

/// The most bits of a digit: its counters lie in the first cache.
const DIGIT: u32 = 11;

/// A stable order of elements.
#[derive(Debug)]
pub struct SortedOrder {
    count: usize,
    order: HostBlock,
    starts: Vec<usize>,
}

// SAFETY: the block is memory that nobody writes any more.
unsafe impl Sync for SortedOrder {}

impl SortedOrder {
    /// The numbers of the elements, in order; each is below the count.
    pub fn order(&self) -> &[usize] {
        // SAFETY: `sort_by_axes` has written as many.
        unsafe { std::slice::from_raw_parts(self.order.data().cast(), self.count) }
    }

    /// Where in the order each place begins.
    pub fn starts(&self) -> &[usize] {
        &self.starts
    }
}

/// Finds the order by all axes, the first one first; what is along an axis is below its length. Where axes have different
/// lengths, elements count as far as the shortest.
///
/// # Errors
/// When the system has no memory for it.
pub fn sort_by_axes<I: Index>(axes: &[Axis<'_, I>], lengths: &[i64], threads: usize) -> Result<SortedOrder> {
    let count = count_of(axes);
    // An axis of step zero may be longer than memory.
    let bytes = count.saturating_mul(size_of::<u64>());
    let mut from = HostBlock::new(bytes)?;
    let (numbers, key) = (bits(count as i64), lengths.iter().map(|&length| bits(length)).sum::<u32>());
    if key + numbers > u64::BITS {
        return compared(axes, count, from);
    }
    let mut to = HostBlock::new(bytes)?;
    let parts = worth(count, threads);
    pack(axes, lengths, numbers, &from, parts);
    let digits = key.div_ceil(DIGIT).max(1);
    let mut low = numbers;
    for digit in 0..digits {
        let width = (key * (digit + 1) / digits) - (key * digit / digits);
        pass(&from, &to, count, low, width, parts);
        std::mem::swap(&mut from, &mut to);
        low += width;
    }
    let starts = finish(&from, count, numbers, parts)?;
    Ok(SortedOrder { count, order: from, starts })
}

/// How many bits the numbers below a length have.
fn bits(length: i64) -> u32 {
    u64::BITS - (length.max(1) as u64 - 1).leading_zeros()
}

/// Lays places and numbers together.
fn pack<I: Index>(axes: &[Axis<'_, I>], lengths: &[i64], numbers: u32, into: &HostBlock, parts: usize) {
    let count = count_of(axes);
    let out = Out(into.data().cast::<u64>());
    let widths: Vec<u32> = lengths.iter().map(|&length| bits(length)).collect();
    workers::each(parts, parts, |part| {
        for number in bound(count, parts, part)..bound(count, parts, part + 1) {
            let mut key = 0u64;
            for (axis, &width) in axes.iter().zip(&widths) {
                // SAFETY: below the count, which `count_of` has found on every axis.
                let found = unsafe { axis.get(number) };
                // Only as many bits as were counted, whatever the number has become meanwhile.
                let place = found.wide() as u64 & !(u64::MAX.checked_shl(width).unwrap_or(0));
                key = key.unbounded_shl(width) | place;
            }
            // SAFETY: the block has room for as many; each part writes its own.
            unsafe { out.put(number, key.unbounded_shl(numbers) | number as u64) };
        }
    });
}

/// One digit: counted, then written.
fn pass(from: &HostBlock, to: &HostBlock, count: usize, low: u32, width: u32, parts: usize) {
    // SAFETY: `pack` or the last pass has written as many.
    let source = unsafe { std::slice::from_raw_parts(from.data().cast::<u64>(), count) };
    let out = Out(to.data().cast::<u64>());
    let values = 1usize << width;
    let digit = |number: u64| (number.unbounded_shr(low) as usize) & (values - 1);
    let mut next = vec![0usize; values * parts];
    let counters = Out(next.as_mut_ptr());
    // SAFETY: the counters of one part, which no other part uses.
    let own =
        |part: usize| unsafe { std::slice::from_raw_parts_mut(counters.start().add(values * part), values) };
    let range = |part: usize| bound(count, parts, part)..bound(count, parts, part + 1);
    workers::each(parts, parts, |part| {
        let own = own(part);
        for &number in &source[range(part)] {
            own[digit(number)] += 1;
        }
    });
    let mut total = 0;
    for value in 0..values {
        for part in 0..parts {
            // SAFETY: nobody else is at work on the counters now.
            let counter = unsafe { &mut *counters.start().add(values * part + value) };
            total += std::mem::replace(counter, total);
        }
    }
    workers::each(parts, parts, |part| {
        let own = own(part);
        for &number in &source[range(part)] {
            let target = &mut own[digit(number)];
            // SAFETY: all counts together are the count, and each part has places of its own.
            unsafe { out.put(*target, number) };
            *target += 1;
        }
    });
}

/// Leaves the numbers of the elements alone, and says where places begin.
fn finish(block: &HostBlock, count: usize, numbers: u32, parts: usize) -> Result<Vec<usize>> {
    let out = Out(block.data().cast::<u64>());
    // SAFETY: as many were written; nobody writes while they are read.
    let sorted = || unsafe { std::slice::from_raw_parts(out.start(), count) };
    let place = |number: u64| number.unbounded_shr(numbers);
    let range = |part: usize| bound(count, parts, part)..bound(count, parts, part + 1);
    let begins = |device_of_address: &[u64], at: usize| {
        at == 0 || place(device_of_address[at]) != place(device_of_address[at - 1])
    };
    let mut found = vec![0usize; parts];
    let counts = Out(found.as_mut_ptr());
    workers::each(parts, parts, |part| {
        let sorted = sorted();
        let there = range(part).filter(|&at| begins(sorted, at)).count();
        // SAFETY: one place for each part.
        unsafe { counts.put(part, there) };
    });
    let places = found.iter().sum();
    let mut starts: Vec<usize> = Vec::new();
    starts.try_reserve_exact(places).map_err(|_| {
        Error::new(ErrorKind::OutOfMemory, format!("no memory for the order of {places} places"))
            .with_hint(hints::FREE_MEMORY)
    })?;
    let room = Out(starts.as_mut_ptr());
    let before: Vec<usize> = (0..parts).map(|part| found[..part].iter().sum()).collect();
    workers::each(parts, parts, |part| {
        let sorted = sorted();
        let begins = range(part).filter(|&at| begins(sorted, at));
        for (ahead, at) in begins.enumerate() {
            // SAFETY: there is room for all that were counted, and each part writes behind those before it.
            unsafe { room.put(before[part] + ahead, at) };
        }
    });
    // SAFETY: all of them have been written.
    unsafe { starts.set_len(places) };
    let mask = !u64::MAX.checked_shl(numbers).unwrap_or(0);
    workers::each(parts, parts, |part| {
        for at in range(part) {
            // SAFETY: within the block; each part changes its own.
            unsafe { *out.start().add(at) &= mask };
        }
    });
    Ok(starts)
}

/// The same by comparison, for places that are too wide. Sorts within the block, which has room for as many numbers.
fn compared<I: Index>(axes: &[Axis<'_, I>], count: usize, block: HostBlock) -> Result<SortedOrder> {
    // SAFETY: numbers are below the count, which `count_of` has found on every axis.
    let along = |axis: &Axis<'_, I>, number: usize| unsafe { axis.get(number) };
    let by_place = |left: usize, right: usize| {
        let by_axis = axes.iter().map(|axis| along(axis, left).cmp(&along(axis, right)));
        by_axis.fold(Ordering::Equal, Ordering::then)
    };
    // SAFETY: the block has room for as many numbers, is aligned for them, and all of them are written here.
    let order = unsafe {
        (0..count).for_each(|at| block.data().cast::<usize>().add(at).write(at));
        std::slice::from_raw_parts_mut(block.data().cast::<usize>(), count)
    };
    order.sort_unstable_by(|&left, &right| by_place(left, right).then(left.cmp(&right)));
    let mut starts = Vec::new();
    for at in 0..count {
        if at == 0 || by_place(order[at], order[at - 1]) != Ordering::Equal {
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

    fn check(places: &[Vec<i64>], lengths: &[i64]) {
        let memory: Vec<Vec<i64>> =
            (0..lengths.len()).map(|axis| places.iter().map(|place| place[axis]).collect()).collect();
        let axes: Vec<Axis<'_, i64>> = memory.iter().map(|axis| axis[..].into()).collect();
        let found = sort_by_axes(&axes, lengths, 3).unwrap();
        let mut wanted: Vec<usize> = (0..places.len()).collect();
        wanted.sort_by_key(|&number| &places[number]);
        assert_eq!(found.order(), wanted);
        let starts: Vec<usize> =
            (0..wanted.len()).filter(|&at| at == 0 || places[wanted[at]] != places[wanted[at - 1]]).collect();
        assert_eq!(found.starts(), starts);
    }

    proptest! {
        #[test]
        fn orders_are_stable(places in prop::collection::vec(prop::collection::vec(0i64..9, 3), 0..200)) {
            check(&places, &[9, 9, 9]);
            check(&places, &[i64::MAX, i64::MAX, 9]);
            check(&places, &[1 << 20, 9, 1 << 31]);
        }
    }

    #[test]
    fn one_place_and_none() {
        check(&[], &[5, 5]);
        check(&[vec![0, 0]], &[1, 1]);
        check(&vec![vec![0, 0]; 50], &[1, 1]);
        check(&(0..50).rev().map(|at| vec![at << 56]).collect::<Vec<_>>(), &[i64::MAX]);
    }
}
