//! Validates index arrays: whether indices are within bounds, sorted and unique.

use super::index::{Axis, Index, common_count};
use super::parallel::{block_start, choose_threads};
use crate::fallible;
use crate::workers;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

/// The properties of the indices of a compressed format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressedSummary {
    /// The number of elements that the pointers cover.
    pub used: usize,
    /// Whether the indices are sorted within each row.
    pub in_order: bool,
    /// Whether they are sorted and unique within each row.
    pub unique: bool,
}

/// Why pointers or indices are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexError {
    /// The first pointer, which is not zero.
    FirstPointer(i64),
    /// A pointer is less than the one before it.
    DecreasingPointer,
    /// The last pointer, which exceeds the number of indices.
    LastPointer(i64),
    /// An index that is out of bounds.
    OutOfBounds(i64),
}

/// Validates pointers and indices.
///
/// # Errors
/// The first problem that is found.
pub fn validate_compressed<I: Index>(
    indptr: &[I],
    indices: &[I],
    columns: i64,
    threads: usize,
) -> Result<CompressedSummary, IndexError> {
    let (first, last) = match indptr {
        [first, .., last] => (first.to_i64(), last.to_i64()),
        [only] => (only.to_i64(), only.to_i64()),
        [] => (0, 0),
    };
    if first != 0 {
        return Err(IndexError::FirstPointer(first));
    }
    if compare_neighbours(indptr, threads).descents > 0 {
        return Err(IndexError::DecreasingPointer);
    }
    // It is not negative, unless another thread has changed the pointers meanwhile.
    let Some(used) = usize::try_from(last).ok().filter(|&used| used <= indices.len()) else {
        return Err(IndexError::LastPointer(last));
    };
    let found = compare_neighbours(&indices[..used], threads);
    if used > 0 && found.min < 0 {
        return Err(IndexError::OutOfBounds(found.min));
    }
    if used > 0 && found.max >= columns {
        return Err(IndexError::OutOfBounds(found.max));
    }
    // Indices may descend or repeat from the last of a row to the first of the next.
    let mut allowed = (0, 0);
    if found.descents > 0 || found.repeats > 0 {
        allowed = compare_across_rows(indptr, &indices[..used], threads);
    }
    let in_order = found.descents == allowed.0;
    Ok(CompressedSummary { used, in_order, unique: in_order && found.repeats == allowed.1 })
}

/// The bounds of some numbers, and comparisons of neighbours.
#[derive(Clone, Copy, Debug)]
struct NeighbourSummary {
    min: i64,
    max: i64,
    /// How often a number is greater than the next.
    descents: usize,
    /// How often a number equals the next.
    repeats: usize,
}

/// Compares all neighbours, on several threads.
fn compare_neighbours<I: Index>(numbers: &[I], threads: usize) -> NeighbourSummary {
    let shared = SharedSummary::new();
    let threads = choose_threads(numbers.len(), threads);
    let blocks = if threads == 1 { 1 } else { threads * 4 };
    workers::for_each_parallel(blocks, threads, |block| {
        let (from, to) =
            (block_start(numbers.len(), blocks, block), block_start(numbers.len(), blocks, block + 1));
        // Including the first number of the next block, so that every pair of neighbours is compared.
        shared.add(summarise_block(&numbers[from..numbers.len().min(to + 1)]));
    });
    shared.into_summary()
}

/// A summary that several threads update.
struct SharedSummary {
    min: AtomicI64,
    max: AtomicI64,
    descents: AtomicUsize,
    repeats: AtomicUsize,
}

impl SharedSummary {
    fn new() -> Self {
        Self {
            min: AtomicI64::new(i64::MAX),
            max: AtomicI64::new(i64::MIN),
            descents: AtomicUsize::new(0),
            repeats: AtomicUsize::new(0),
        }
    }

    // Relaxed: the end of the parallel loop orders these updates before the reads.
    fn add(&self, found: NeighbourSummary) {
        self.min.fetch_min(found.min, Ordering::Relaxed);
        self.max.fetch_max(found.max, Ordering::Relaxed);
        self.descents.fetch_add(found.descents, Ordering::Relaxed);
        self.repeats.fetch_add(found.repeats, Ordering::Relaxed);
    }

    fn into_summary(self) -> NeighbourSummary {
        NeighbourSummary {
            min: self.min.into_inner(),
            max: self.max.into_inner(),
            descents: self.descents.into_inner(),
            repeats: self.repeats.into_inner(),
        }
    }
}

/// Defines a function that runs a loop compiled for AVX2 if the processor has it, and the portable loop otherwise.
macro_rules! vectorised {
    ($name:ident, $portable:ident, $avx2:ident, ($($argument:ident: $kind:ty),*) -> $result:ty) => {
        fn $name<I: Index>($($argument: $kind),*) -> $result {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: the function requires AVX2, which was detected.
                return unsafe { $avx2($($argument),*) };
            }
            $portable($($argument),*)
        }

        #[cfg(all(target_arch = "x86_64", not(miri)))]
        #[target_feature(enable = "avx2")]
        fn $avx2<I: Index>($($argument: $kind),*) -> $result {
            $portable($($argument),*)
        }
    };
}

vectorised!(summarise_block, summarise_block_portable, summarise_block_avx2, (numbers: &[I]) -> NeighbourSummary);
vectorised!(compare_pairs, compare_pairs_portable, compare_pairs_avx2, (first: &[I], second: &[I]) -> (bool, bool));

/// The numbers that are compared at once.
const SIMD_LANES: usize = 16;
/// The numbers after which lane counters are added up, before they can overflow.
const BLOCK_ELEMENTS: usize = 1 << 12;

#[inline(always)]
fn summarise_block_portable<I: Index>(numbers: &[I]) -> NeighbourSummary {
    let Some(&first) = numbers.first() else {
        return NeighbourSummary { min: i64::MAX, max: i64::MIN, descents: 0, repeats: 0 };
    };
    let zero = I::from_bool(false);
    let (mut min, mut max) = ([first; SIMD_LANES], [first; SIMD_LANES]);
    let (mut descents, mut repeats) = (0, 0);
    let (before, after) = (&numbers[..numbers.len() - 1], &numbers[1..]);
    for (before, after) in before.chunks(BLOCK_ELEMENTS).zip(after.chunks(BLOCK_ELEMENTS)) {
        let (mut descended, mut repeated) = ([zero; SIMD_LANES], [zero; SIMD_LANES]);
        let mut compare = |lane: usize, before: I, after: I| {
            descended[lane] = descended[lane].increase(I::from_bool(before > after));
            repeated[lane] = repeated[lane].increase(I::from_bool(before == after));
            min[lane] = if after < min[lane] { after } else { min[lane] };
            max[lane] = if after > max[lane] { after } else { max[lane] };
        };
        let (before, rest_before) = before.as_chunks::<SIMD_LANES>();
        let (after, rest_after) = after.as_chunks::<SIMD_LANES>();
        for (before, after) in before.iter().zip(after) {
            for lane in 0..SIMD_LANES {
                compare(lane, before[lane], after[lane]);
            }
        }
        for (&before, &after) in rest_before.iter().zip(rest_after) {
            compare(0, before, after);
        }
        descents += descended.iter().map(|count| count.to_usize()).sum::<usize>();
        repeats += repeated.iter().map(|count| count.to_usize()).sum::<usize>();
    }
    let min = min.iter().min().map_or(i64::MAX, |min| min.to_i64());
    let max = max.iter().max().map_or(i64::MIN, |max| max.to_i64());
    NeighbourSummary { min, max, descents, repeats }
}

/// Compares neighbours with two coordinates: whether any is less than its predecessor, and whether any equals it.
#[inline(always)]
fn compare_pairs_portable<I: Index>(first: &[I], second: &[I]) -> (bool, bool) {
    if first.len() < 2 || second.len() < first.len() {
        return (false, false);
    }
    let zero = I::from_bool(false);
    let (mut descended, mut repeated) = ([zero; SIMD_LANES], [zero; SIMD_LANES]);
    let mut compare = |lane: usize, (a, b): (I, I), (c, d): (I, I)| {
        let same = a == c;
        let descents = (a > c) | (same & (b > d));
        descended[lane] = if descents { I::from_bool(true) } else { descended[lane] };
        repeated[lane] = if same & (b == d) { I::from_bool(true) } else { repeated[lane] };
    };
    let pairs = first.len() - 1;
    for from in (0..pairs / SIMD_LANES).map(|block| block * SIMD_LANES) {
        let (a, c) = (&first[from..from + SIMD_LANES], &first[from + 1..from + 1 + SIMD_LANES]);
        let (b, d) = (&second[from..from + SIMD_LANES], &second[from + 1..from + 1 + SIMD_LANES]);
        for lane in 0..SIMD_LANES {
            compare(lane, (a[lane], b[lane]), (c[lane], d[lane]));
        }
    }
    for from in pairs / SIMD_LANES * SIMD_LANES..pairs {
        compare(0, (first[from], second[from]), (first[from + 1], second[from + 1]));
    }
    (descended.iter().any(|&found| found > zero), repeated.iter().any(|&found| found > zero))
}

/// Counts how often indices descend, and how often they repeat, from a row to the next row with elements.
fn compare_across_rows<I: Index>(indptr: &[I], indices: &[I], threads: usize) -> (usize, usize) {
    let (descents, repeats) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let threads = choose_threads(indptr.len(), threads);
    workers::for_each_parallel(threads, threads, |block| {
        let (mut descended, mut repeated) = (0, 0);
        let from = block_start(indptr.len(), threads, block).max(1);
        for row in from..block_start(indptr.len(), threads, block + 1) {
            let begin = indptr[row].to_usize();
            // An empty row starts where the next one does, so only the last of them counts; empty rows at the end do not.
            if begin > indptr[row - 1].to_usize() && begin < indices.len() {
                descended += usize::from(indices[begin - 1] > indices[begin]);
                repeated += usize::from(indices[begin - 1] == indices[begin]);
            }
        }
        descents.fetch_add(descended, Ordering::Relaxed);
        repeats.fetch_add(repeated, Ordering::Relaxed);
    });
    (descents.into_inner(), repeats.into_inner())
}

/// The properties of coordinates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinateSummary {
    /// The minimum and maximum along each axis; empty if there are no elements.
    pub ends: SmallVec<[(i64, i64); 4]>,
    /// Whether they are sorted, by the first axis first.
    pub in_order: bool,
    /// Whether they are sorted and unique.
    pub unique: bool,
    /// Whether they are sorted by the first axis.
    pub grouped: bool,
}

/// The numbers of the elements whose coordinates are all below these lengths.
///
/// # Errors
/// When they cannot be allocated.
pub fn validate_coordinates<I: Index>(axes: &[Axis<'_, I>], lengths: &[i64]) -> crate::Result<Vec<usize>> {
    let mut within = Vec::new();
    for element in 0..common_count(axes) {
        let is_within = |(axis, &length): (&Axis<'_, I>, &i64)| axis.get(element).to_i64() < length;
        if axes.iter().zip(lengths).all(is_within) {
            fallible::try_push(&mut within, element)?;
        }
    }
    Ok(within)
}

/// Summarises coordinates. If axes have different counts, the shortest determines the number of elements.
pub fn summarise_coordinates<I: Index>(axes: &[Axis<'_, I>], threads: usize) -> CoordinateSummary {
    let count = common_count(axes);
    let found: SmallVec<[SharedSummary; 4]> = axes.iter().map(|_| SharedSummary::new()).collect();
    let (descents, repeats) = (AtomicBool::new(false), AtomicBool::new(false));
    let threads = choose_threads(count, threads);
    let blocks = if threads == 1 { 1 } else { threads * 4 };
    workers::for_each_parallel(blocks, threads, |block| {
        let end = count.min(block_start(count, blocks, block + 1) + 1);
        let mut from = block_start(count, blocks, block);
        let mut seen: SmallVec<[NeighbourSummary; 4]> =
            SmallVec::from_elem(summarise_block::<I>(&[]), axes.len());
        let mut buffer = Vec::new();
        while from < end {
            // Blocks stay in the cache while the axes are compared together; strided axes are gathered first.
            let to = end.min(from + BLOCK_ELEMENTS + 1);
            let strided = axes.iter().filter(|axis| axis.slice().is_none());
            buffer.clear();
            strided.for_each(|axis| buffer.extend(axis.range(from, to)));
            let mut gathered = buffer.chunks_exact(to - from);
            let block: SmallVec<[&[I]; 4]> = axes
                .iter()
                .map(|axis| match axis.slice() {
                    Some(slice) => &slice[from..to],
                    None => gathered.next().unwrap_or(&[]),
                })
                .collect();
            for (block, seen) in block.iter().zip(&mut seen) {
                let found = summarise_block(block);
                seen.min = seen.min.min(found.min);
                seen.max = seen.max.max(found.max);
                seen.descents += found.descents;
                seen.repeats += found.repeats;
            }
            if !descents.load(Ordering::Relaxed) {
                let (descended, repeated) = match block[..] {
                    [_] => (seen[0].descents > 0, seen[0].repeats > 0),
                    [first, second] => compare_pairs(first, second),
                    _ => compare_elements(&block),
                };
                if descended {
                    descents.store(true, Ordering::Relaxed);
                }
                if repeated {
                    repeats.store(true, Ordering::Relaxed);
                }
            }
            from = if to == end { end } else { to - 1 };
        }
        for (shared, seen) in found.iter().zip(seen) {
            shared.add(seen);
        }
    });
    let in_order = !descents.into_inner();
    let found: SmallVec<[NeighbourSummary; 4]> = found.into_iter().map(SharedSummary::into_summary).collect();
    CoordinateSummary {
        grouped: found.first().is_none_or(|first| first.descents == 0),
        ends: if count == 0 {
            SmallVec::new()
        } else {
            found.iter().map(|axis| (axis.min, axis.max)).collect()
        },
        in_order,
        unique: in_order && !repeats.into_inner(),
    }
}

/// The same as [`compare_pairs_portable`] for any number of axes.
fn compare_elements<I: Index>(axes: &[&[I]]) -> (bool, bool) {
    let (mut descended, mut repeated) = (false, false);
    for element in 1..axes.first().map_or(0, |axis| axis.len()) {
        let compare = |axis: &&[I]| axis[element - 1].cmp(&axis[element]);
        let differs = axes.iter().map(compare).find(|found| found.is_ne());
        descended |= differs.is_some_and(|found| found.is_gt());
        repeated |= differs.is_none();
    }
    (descended, repeated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_indices_are_reported() {
        let validate = |indptr: &[i32], indices: &[i32]| validate_compressed(indptr, indices, 4, 2);
        assert_eq!(validate(&[1, 1], &[0]), Err(IndexError::FirstPointer(1)));
        assert_eq!(validate(&[0, 2, 1, 3], &[0, 1, 2]), Err(IndexError::DecreasingPointer));
        assert_eq!(validate(&[0, 9], &[0, 1, 2]), Err(IndexError::LastPointer(9)));
        assert_eq!(validate(&[0, 2], &[0, 4]), Err(IndexError::OutOfBounds(4)));
        assert_eq!(validate(&[0, 2], &[-1, 0]), Err(IndexError::OutOfBounds(-1)));
        assert_eq!(
            validate(&[0, 1], &[0, 7]),
            Ok(CompressedSummary { used: 1, in_order: true, unique: true })
        );
        assert_eq!(validate(&[0], &[]), Ok(CompressedSummary { used: 0, in_order: true, unique: true }));
        assert_eq!(validate(&[], &[]), Ok(CompressedSummary { used: 0, in_order: true, unique: true }));
    }

    proptest! {
        #[test]
        fn compressed_indices_are_summarised(rows in prop::collection::vec(prop::collection::vec(0i64..6, 0..6), 0..40)) {
            let indices: Vec<i64> = rows.concat();
            let mut indptr = vec![0i64];
            for row in &rows {
                indptr.push(indptr[indptr.len() - 1] + row.len() as i64);
            }
            let in_order = rows.iter().all(|row| row.is_sorted());
            let unique = rows.iter().all(|row| row.is_sorted_by(|a, b| a < b));
            let found = validate_compressed(&indptr, &indices, 6, 3);
            prop_assert_eq!(found, Ok(CompressedSummary { used: indices.len(), in_order, unique }));
        }

        #[test]
        fn coordinates_are_summarised(
            mut coordinates in prop::collection::vec(prop::collection::vec(0i32..4, 3), 0..80),
            sort: bool, axes in 1usize..4, step in 1usize..3,
        ) {
            for coordinate in &mut coordinates {
                coordinate.truncate(axes);
            }
            if sort {
                coordinates.sort();
            }
            let memory: Vec<Vec<i32>> = (0..axes)
                .map(|axis| coordinates.iter().flat_map(|coordinate| std::iter::repeat_n(coordinate[axis], step)).collect())
                .collect();
            // SAFETY: each vector has `step` numbers for each coordinate, and outlives the axis.
            let given: Vec<_> =
                memory.iter().map(|axis| unsafe { Axis::new(axis.as_ptr(), step as isize, coordinates.len()) }).collect();
            let found = summarise_coordinates(&given, 3);
            prop_assert_eq!(found.in_order, coordinates.is_sorted());
            prop_assert_eq!(found.unique, coordinates.is_sorted_by(|a, b| a < b));
            prop_assert_eq!(found.grouped, coordinates.is_sorted_by_key(|coordinate| coordinate[0]));
            for (axis, &(min, max)) in found.ends.iter().enumerate() {
                let numbers = || coordinates.iter().map(|coordinate| i64::from(coordinate[axis]));
                prop_assert_eq!((Some(min), Some(max)), (numbers().min(), numbers().max()));
            }
            prop_assert_eq!(found.ends.len(), if coordinates.is_empty() { 0 } else { axes });
        }
    }
}
