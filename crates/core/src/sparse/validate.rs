//! Whether indices are within bounds, in order, and each place there once.

use super::{Axis, Index, bound, count_of, worth};
use crate::fallible;
use crate::workers;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

/// What a compressed format's indices are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressedSummary {
    /// How many elements the pointers lead to.
    pub used: usize,
    /// Whether the indices rise within each row, or stay.
    pub in_order: bool,
    /// Whether they rise within each row.
    pub unique: bool,
}

/// What is wrong with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexFault {
    /// The first pointer is this, and not zero.
    Begins(i64),
    /// A pointer is below the one before it.
    GoesBack,
    /// The last pointer is this, and beyond the indices.
    Ends(i64),
    /// This index is out of bounds.
    Beyond(i64),
}

/// Looks pointers and indices through.
///
/// # Errors
/// What is wrong first.
pub fn validate_compressed<I: Index>(
    indptr: &[I],
    indices: &[I],
    columns: i64,
    threads: usize,
) -> Result<CompressedSummary, IndexFault> {
    let (first, last) = match indptr {
        [first, .., last] => (first.wide(), last.wide()),
        [only] => (only.wide(), only.wide()),
        [] => (0, 0),
    };
    if first != 0 {
        return Err(IndexFault::Begins(first));
    }
    if within(indptr, threads).falls > 0 {
        return Err(IndexFault::GoesBack);
    }
    // It is not negative, unless somebody has changed the pointers meanwhile.
    let Some(used) = usize::try_from(last).ok().filter(|&used| used <= indices.len()) else {
        return Err(IndexFault::Ends(last));
    };
    let found = within(&indices[..used], threads);
    if used > 0 && found.least < 0 {
        return Err(IndexFault::Beyond(found.least));
    }
    if used > 0 && found.most >= columns {
        return Err(IndexFault::Beyond(found.most));
    }
    // Between the last of a row and the first of the next one they may do as they like.
    let mut allowed = (0, 0);
    if found.falls > 0 || found.flats > 0 {
        allowed = between(indptr, &indices[..used], threads);
    }
    let in_order = found.falls == allowed.0;
    Ok(CompressedSummary { used, in_order, unique: in_order && found.flats == allowed.1 })
}

/// What neighbours are to each other, and the ends.
#[derive(Clone, Copy, Debug)]
struct Neighbours {
    least: i64,
    most: i64,
    /// How often a number is above the next one.
    falls: usize,
    /// How often it is the next one.
    flats: usize,
}

fn within<I: Index>(numbers: &[I], threads: usize) -> Neighbours {
    let whole = Shared::new();
    let threads = worth(numbers.len(), threads);
    let parts = if threads == 1 { 1 } else { threads * 4 };
    workers::each(parts, threads, |part| {
        let (from, to) = (bound(numbers.len(), parts, part), bound(numbers.len(), parts, part + 1));
        // With the first of the next part, so that no pair of neighbours is left out.
        whole.add(stretch(&numbers[from..numbers.len().min(to + 1)]));
    });
    whole.found()
}

/// What several threads find.
struct Shared {
    least: AtomicI64,
    most: AtomicI64,
    falls: AtomicUsize,
    flats: AtomicUsize,
}

impl Shared {
    fn new() -> Self {
        Self {
            least: AtomicI64::new(i64::MAX),
            most: AtomicI64::new(i64::MIN),
            falls: AtomicUsize::new(0),
            flats: AtomicUsize::new(0),
        }
    }

    // Relaxed: the end of `each` passes on what was found.
    fn add(&self, found: Neighbours) {
        self.least.fetch_min(found.least, Ordering::Relaxed);
        self.most.fetch_max(found.most, Ordering::Relaxed);
        self.falls.fetch_add(found.falls, Ordering::Relaxed);
        self.flats.fetch_add(found.flats, Ordering::Relaxed);
    }

    fn found(self) -> Neighbours {
        Neighbours {
            least: self.least.into_inner(),
            most: self.most.into_inner(),
            falls: self.falls.into_inner(),
            flats: self.flats.into_inner(),
        }
    }
}

/// Runs a loop with the machine's widest vectors, and as it is where there are none.
macro_rules! widened {
    ($name:ident, $plain:ident, $wide:ident, ($($argument:ident: $kind:ty),*) -> $result:ty) => {
        fn $name<I: Index>($($argument: $kind),*) -> $result {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: the machine has AVX2.
                return unsafe { $wide($($argument),*) };
            }
            $plain($($argument),*)
        }

        /// # Safety
        /// The machine has AVX2.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        #[target_feature(enable = "avx2")]
        unsafe fn $wide<I: Index>($($argument: $kind),*) -> $result {
            $plain($($argument),*)
        }
    };
}

widened!(stretch, stretch_plain, stretch_wide, (numbers: &[I]) -> Neighbours);
widened!(pairs, pairs_plain, pairs_wide, (first: &[I], second: &[I]) -> (bool, bool));

/// Numbers that are compared side by side.
const LANES: usize = 16;
/// Numbers between two looks at the counters, which must not overflow.
const BLOCK: usize = 1 << 12;

#[inline(always)]
fn stretch_plain<I: Index>(numbers: &[I]) -> Neighbours {
    let Some(&first) = numbers.first() else {
        return Neighbours { least: i64::MAX, most: i64::MIN, falls: 0, flats: 0 };
    };
    let zero = I::bit(false);
    let (mut least, mut most) = ([first; LANES], [first; LANES]);
    let (mut falls, mut flats) = (0, 0);
    let (before, after) = (&numbers[..numbers.len() - 1], &numbers[1..]);
    for (before, after) in before.chunks(BLOCK).zip(after.chunks(BLOCK)) {
        let (mut fell, mut stayed) = ([zero; LANES], [zero; LANES]);
        let mut compare = |lane: usize, before: I, after: I| {
            fell[lane] = fell[lane].plus(I::bit(before > after));
            stayed[lane] = stayed[lane].plus(I::bit(before == after));
            least[lane] = if after < least[lane] { after } else { least[lane] };
            most[lane] = if after > most[lane] { after } else { most[lane] };
        };
        let (before, rest_before) = before.as_chunks::<LANES>();
        let (after, rest_after) = after.as_chunks::<LANES>();
        for (before, after) in before.iter().zip(after) {
            for lane in 0..LANES {
                compare(lane, before[lane], after[lane]);
            }
        }
        for (&before, &after) in rest_before.iter().zip(rest_after) {
            compare(0, before, after);
        }
        falls += fell.iter().map(|count| count.at()).sum::<usize>();
        flats += stayed.iter().map(|count| count.at()).sum::<usize>();
    }
    let least = least.iter().min().map_or(i64::MAX, |least| least.wide());
    let most = most.iter().max().map_or(i64::MIN, |most| most.wide());
    Neighbours { least, most, falls, flats }
}

/// Of places with two coordinates: whether one comes before the one in front of it, and whether it is the same one.
#[inline(always)]
fn pairs_plain<I: Index>(first: &[I], second: &[I]) -> (bool, bool) {
    if first.len() < 2 || second.len() < first.len() {
        return (false, false);
    }
    let zero = I::bit(false);
    let (mut fell, mut stayed) = ([zero; LANES], [zero; LANES]);
    let mut compare = |lane: usize, (a, b): (I, I), (c, d): (I, I)| {
        let same = a == c;
        let falls = (a > c) | (same & (b > d));
        fell[lane] = if falls { I::bit(true) } else { fell[lane] };
        stayed[lane] = if same & (b == d) { I::bit(true) } else { stayed[lane] };
    };
    let pairs = first.len() - 1;
    for from in (0..pairs / LANES).map(|block| block * LANES) {
        let (a, c) = (&first[from..from + LANES], &first[from + 1..from + 1 + LANES]);
        let (b, d) = (&second[from..from + LANES], &second[from + 1..from + 1 + LANES]);
        for lane in 0..LANES {
            compare(lane, (a[lane], b[lane]), (c[lane], d[lane]));
        }
    }
    for from in pairs / LANES * LANES..pairs {
        compare(0, (first[from], second[from]), (first[from + 1], second[from + 1]));
    }
    (fell.iter().any(|&found| found > zero), stayed.iter().any(|&found| found > zero))
}

/// How often indices fall, and how often they stay, from a row to the next one that has any.
fn between<I: Index>(indptr: &[I], indices: &[I], threads: usize) -> (usize, usize) {
    let (falls, flats) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let threads = worth(indptr.len(), threads);
    workers::each(threads, threads, |part| {
        let (mut fell, mut stayed) = (0, 0);
        let from = bound(indptr.len(), threads, part).max(1);
        for row in from..bound(indptr.len(), threads, part + 1) {
            let begin = indptr[row].at();
            // A row without elements begins where the next one does: the last of them counts, and no row begins at the end.
            if begin > indptr[row - 1].at() && begin < indices.len() {
                fell += usize::from(indices[begin - 1] > indices[begin]);
                stayed += usize::from(indices[begin - 1] == indices[begin]);
            }
        }
        falls.fetch_add(fell, Ordering::Relaxed);
        flats.fetch_add(stayed, Ordering::Relaxed);
    });
    (falls.into_inner(), flats.into_inner())
}

/// What coordinates are like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinateSummary {
    /// The least and the greatest along each axis; none where there are no elements.
    pub ends: SmallVec<[(i64, i64); 4]>,
    /// Whether the places are in order, the first axis first.
    pub in_order: bool,
    /// Whether they are in order and each is there once.
    pub unique: bool,
    /// Whether they are in order along the first axis.
    pub grouped: bool,
}

/// The numbers of the elements whose coordinates are all within these lengths.
///
/// # Errors
/// When the system has no memory for them.
pub fn validate_coordinates<I: Index>(axes: &[Axis<'_, I>], lengths: &[i64]) -> crate::Result<Vec<usize>> {
    let mut within = Vec::new();
    for element in 0..count_of(axes) {
        // SAFETY: `count_of` is the count of the shortest axis.
        let is_within = |(axis, &length): (&Axis<'_, I>, &i64)| unsafe { axis.get(element) }.wide() < length;
        if axes.iter().zip(lengths).all(is_within) {
            fallible::try_push(&mut within, element)?;
        }
    }
    Ok(within)
}

/// Looks coordinates through; where axes have different lengths, as far as the shortest.
pub fn summarise_coordinates<I: Index>(axes: &[Axis<'_, I>], threads: usize) -> CoordinateSummary {
    let count = count_of(axes);
    let found: SmallVec<[Shared; 4]> = axes.iter().map(|_| Shared::new()).collect();
    let (falls, flats) = (AtomicBool::new(false), AtomicBool::new(false));
    let threads = worth(count, threads);
    let parts = if threads == 1 { 1 } else { threads * 4 };
    workers::each(parts, threads, |part| {
        let end = count.min(bound(count, parts, part + 1) + 1);
        let mut from = bound(count, parts, part);
        let mut seen: SmallVec<[Neighbours; 4]> = SmallVec::from_elem(stretch::<I>(&[]), axes.len());
        let mut room = Vec::new();
        while from < end {
            // Blocks that are still in the cache when the axes are looked at together; what lies apart is gathered first.
            let to = end.min(from + BLOCK + 1);
            let apart = axes.iter().filter(|axis| axis.slice().is_none());
            room.clear();
            // SAFETY: `to` is at most the count, which `count_of` has found on every axis.
            apart.for_each(|axis| room.extend((from..to).map(|place| unsafe { axis.get(place) })));
            let mut gathered = room.chunks_exact(to - from);
            let block: SmallVec<[&[I]; 4]> = axes
                .iter()
                .map(|axis| match axis.slice() {
                    Some(slice) => &slice[from..to],
                    None => gathered.next().unwrap_or(&[]),
                })
                .collect();
            for (block, seen) in block.iter().zip(&mut seen) {
                let found = stretch(block);
                seen.least = seen.least.min(found.least);
                seen.most = seen.most.max(found.most);
                seen.falls += found.falls;
                seen.flats += found.flats;
            }
            if !falls.load(Ordering::Relaxed) {
                let (fell, stayed) = match block[..] {
                    [_] => (seen[0].falls > 0, seen[0].flats > 0),
                    [first, second] => pairs(first, second),
                    _ => together(&block),
                };
                if fell {
                    falls.store(true, Ordering::Relaxed);
                }
                if stayed {
                    flats.store(true, Ordering::Relaxed);
                }
            }
            from = if to == end { end } else { to - 1 };
        }
        for (whole, seen) in found.iter().zip(seen) {
            whole.add(seen);
        }
    });
    let in_order = !falls.into_inner();
    let found: SmallVec<[Neighbours; 4]> = found.into_iter().map(Shared::found).collect();
    CoordinateSummary {
        grouped: found.first().is_none_or(|first| first.falls == 0),
        ends: if count == 0 {
            SmallVec::new()
        } else {
            found.iter().map(|axis| (axis.least, axis.most)).collect()
        },
        in_order,
        unique: in_order && !flats.into_inner(),
    }
}

/// The same as [`pairs`] for any number of axes.
fn together<I: Index>(axes: &[&[I]]) -> (bool, bool) {
    let (mut fell, mut stayed) = (false, false);
    for place in 1..axes.first().map_or(0, |axis| axis.len()) {
        let compare = |axis: &&[I]| axis[place - 1].cmp(&axis[place]);
        let differs = axes.iter().map(compare).find(|found| found.is_ne());
        fell |= differs.is_some_and(|found| found.is_gt());
        stayed |= differs.is_none();
    }
    (fell, stayed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn faults_are_told() {
        let look = |indptr: &[i32], indices: &[i32]| validate_compressed(indptr, indices, 4, 2);
        assert_eq!(look(&[1, 1], &[0]), Err(IndexFault::Begins(1)));
        assert_eq!(look(&[0, 2, 1, 3], &[0, 1, 2]), Err(IndexFault::GoesBack));
        assert_eq!(look(&[0, 9], &[0, 1, 2]), Err(IndexFault::Ends(9)));
        assert_eq!(look(&[0, 2], &[0, 4]), Err(IndexFault::Beyond(4)));
        assert_eq!(look(&[0, 2], &[-1, 0]), Err(IndexFault::Beyond(-1)));
        assert_eq!(look(&[0, 1], &[0, 7]), Ok(CompressedSummary { used: 1, in_order: true, unique: true }));
        assert_eq!(look(&[0], &[]), Ok(CompressedSummary { used: 0, in_order: true, unique: true }));
        assert_eq!(look(&[], &[]), Ok(CompressedSummary { used: 0, in_order: true, unique: true }));
    }

    proptest! {
        #[test]
        fn compressed_is_what_its_rows_are(rows in prop::collection::vec(prop::collection::vec(0i64..6, 0..6), 0..40)) {
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
        fn coordinates_are_what_their_places_are(
            mut places in prop::collection::vec(prop::collection::vec(0i32..4, 3), 0..80),
            sort: bool, axes in 1usize..4, step in 1usize..3,
        ) {
            for place in &mut places {
                place.truncate(axes);
            }
            if sort {
                places.sort();
            }
            let memory: Vec<Vec<i32>> = (0..axes)
                .map(|axis| places.iter().flat_map(|place| std::iter::repeat_n(place[axis], step)).collect())
                .collect();
            // SAFETY: every number is there `step` times.
            let given: Vec<_> =
                memory.iter().map(|axis| unsafe { Axis::new(axis.as_ptr(), step as isize, places.len()) }).collect();
            let found = summarise_coordinates(&given, 3);
            prop_assert_eq!(found.in_order, places.is_sorted());
            prop_assert_eq!(found.unique, places.is_sorted_by(|a, b| a < b));
            prop_assert_eq!(found.grouped, places.is_sorted_by_key(|place| place[0]));
            for (axis, &(least, most)) in found.ends.iter().enumerate() {
                let numbers = || places.iter().map(|place| i64::from(place[axis]));
                prop_assert_eq!((Some(least), Some(most)), (numbers().min(), numbers().max()));
            }
            prop_assert_eq!(found.ends.len(), if places.is_empty() { 0 } else { axes });
        }
    }
}
