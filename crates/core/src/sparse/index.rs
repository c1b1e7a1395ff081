//! Index arrays of sparse tensors: looked through, brought into order, and turned into each other.
//!
//! # What it promises
//!
//! - [`look`] says whether indices are within bounds, in order and each there once, in one pass that writes nothing. Everything
//!   else here takes indices that it has found in bounds.
//! - [`turn`](mod@turn) groups elements by one axis in the time that it takes to read and write them, and keeps the order within
//!   a group. [`order`](mod@order) finds a stable order by several axes, and where each place begins.
//! - [`make`] has what else a format is made of: places from pointers, pointers from places, coordinates laid together,
//!   elements picked and summed. [`scatter`](mod@scatter) fills a dense tensor, and [`blocks`] takes
//!   elements into and out of dense blocks.
//!
//! # How
//!
//! Indices are int32 or int64; the few tensors with others are cast first. Values are bytes of a size, but where they are
//! summed. Large arrays are cut into parts for the threads of [`workers`](crate::workers); where parts write to the same array,
//! each has counted beforehand what will be its own.
//!
//! # What it knowingly rejects
//!
//! Sorting by comparison, but for shapes whose places do not fit in 64 bits with a number for each element: counting is
//! several times as quick, and stable by nature.

pub mod blocks;
pub mod group;
pub mod make;
pub mod order;
pub mod scatter;
pub mod validate;

use std::marker::PhantomData;

/// Elements that make a thread worth being woken; a few in tests, so that small arrays are cut too.
const EACH: usize = if cfg!(test) { 16 } else { 64 << 10 };

mod sealed {
    pub trait Sealed {}
}

/// A number of an index array: an `i32` or an `i64`.
///
/// ```
/// fn largest<I: tensorferry_core::sparse::Index>(numbers: &[I]) -> Option<i64> {
///     numbers.iter().map(|number| number.wide()).max()
/// }
/// assert_eq!((largest(&[1i32, 2]), largest(&[3i64])), (Some(2), Some(3)));
/// ```
///
/// The trait is sealed, because the kernels keep such numbers in blocks that are aligned for these two types:
///
/// ```compile_fail,E0277
/// #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
/// #[repr(align(4096))]
/// struct Wide(i64);
///
/// impl tensorferry_core::sparse::Index for Wide {
///     fn wide(self) -> i64 {
///         self.0
///     }
///     fn of(number: usize) -> Self {
///         Self(number as i64)
///     }
///     fn bit(is_true: bool) -> Self {
///         Self(is_true.into())
///     }
///     fn plus(self, bit: Self) -> Self {
///         Self(self.0 + bit.0)
///     }
/// }
/// ```
pub trait Index: sealed::Sealed + Copy + Ord + Send + Sync + std::fmt::Debug + 'static {
    /// As the widest of them.
    fn wide(self) -> i64;

    /// Of a number that fits, as the caller has seen.
    fn of(number: usize) -> Self;

    /// One, or zero: as wide as what was compared, so that the machine counts in the lanes in which it compares.
    fn bit(is_true: bool) -> Self;

    /// One more, of a number that was counted to.
    fn plus(self, bit: Self) -> Self;

    /// As an offset: of a number that was found to be in bounds, and so is not negative.
    #[inline(always)]
    fn at(self) -> usize {
        self.wide() as usize
    }
}

macro_rules! index {
    ($($number:ty),+) => {$(
        impl sealed::Sealed for $number {}

        impl Index for $number {
            #[inline(always)]
            fn wide(self) -> i64 {
                self.into()
            }

            #[inline(always)]
            fn of(number: usize) -> Self {
                number as Self
            }

            #[inline(always)]
            fn bit(is_true: bool) -> Self {
                is_true.into()
            }

            #[inline(always)]
            fn plus(self, bit: Self) -> Self {
                self.wrapping_add(bit)
            }
        }
    )+};
}

index!(i32, i64);

/// The coordinates along one axis: numbers at equal distances.
#[derive(Clone, Copy, Debug)]
pub struct Axis<'a, I> {
    start: *const I,
    step: isize,
    count: usize,
    memory: PhantomData<&'a I>,
}

// SAFETY: it is only read from, like the slice that it stands for.
unsafe impl<I: Sync> Send for Axis<'_, I> {}
// SAFETY: as above.
unsafe impl<I: Sync> Sync for Axis<'_, I> {}

impl<'a, I: Index> Axis<'a, I> {
    /// So many numbers, each so many numbers behind the last one.
    ///
    /// # Safety
    /// All of them are readable and aligned for as long as the axis is used, and nobody writes them meanwhile.
    pub unsafe fn new(start: *const I, step: isize, count: usize) -> Self {
        Self { start, step, count, memory: PhantomData }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// One of them.
    ///
    /// # Safety
    /// The place is below the count.
    #[inline(always)]
    unsafe fn get(&self, place: usize) -> I {
        debug_assert!(place < self.count);
        // SAFETY: `new`'s caller vouched for the places below the count, of which the caller asks for one.
        unsafe { self.start.offset(place as isize * self.step).read() }
    }

    /// The first of them, `count` at most.
    #[must_use]
    pub fn first(self, count: usize) -> Self {
        Self { count: self.count.min(count), ..self }
    }

    /// All of them, where they lie side by side.
    pub fn slice(&self) -> Option<&'a [I]> {
        if self.count == 0 {
            // It may begin nowhere, and a slice may not.
            return Some(&[]);
        }
        // SAFETY: `new`'s caller vouched for them.
        (self.step == 1).then(|| unsafe { std::slice::from_raw_parts(self.start, self.count) })
    }
}

impl<'a, I: Index> From<&'a [I]> for Axis<'a, I> {
    fn from(numbers: &'a [I]) -> Self {
        Self { start: numbers.as_ptr(), step: 1, count: numbers.len(), memory: PhantomData }
    }
}

/// How many elements have a number on every axis: axes of different lengths count as far as the shortest.
fn count_of<I: Index>(axes: &[Axis<'_, I>]) -> usize {
    axes.iter().map(Axis::count).min().unwrap_or(0)
}

/// Memory that several threads write, each its own places.
#[derive(Debug)]
struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

// SAFETY: a pointer alone; every use is unsafe and vouches that no other thread writes the same place.
unsafe impl<T: Send> Send for Out<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Out<T> {}

impl<T> Out<T> {
    /// Writes one place.
    ///
    /// # Safety
    /// It is writable, aligned, and written by this thread alone.
    #[inline(always)]
    unsafe fn put(self, place: usize, value: T) {
        // SAFETY: the caller's contract.
        unsafe { self.0.add(place).write(value) }
    }

    /// Writes the same to several places.
    ///
    /// # Safety
    /// As [`put`](Self::put), of all of them.
    #[inline(always)]
    unsafe fn fill(self, from: usize, to: usize, value: T)
    where
        T: Copy,
    {
        for place in from..to {
            // SAFETY: the caller's contract.
            unsafe { self.put(place, value) }
        }
    }

    /// The pointer; asked for by a method, so that closures take the whole, which may cross threads.
    fn start(self) -> *mut T {
        self.0
    }
}

/// How many threads of at most `most` so many elements are worth.
fn worth(count: usize, most: usize) -> usize {
    most.min(count / EACH).max(1)
}

/// Where a part begins; the next one's beginning is its end.
fn bound(count: usize, parts: usize, part: usize) -> usize {
    // Not `count * part / parts`, which may overflow.
    count / parts * part + count % parts * part / parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_there_is() {
        for (count, parts) in [(0, 1), (5, 3), (100, 7), (usize::MAX, 4)] {
            assert_eq!(bound(count, parts, 0), 0);
            assert_eq!(bound(count, parts, parts), count);
            assert!((0..parts).all(|part| bound(count, parts, part) <= bound(count, parts, part + 1)));
        }
    }

    #[test]
    fn an_axis_without_numbers_may_begin_nowhere() {
        // SAFETY: nothing is read.
        let axis: Axis<'_, i32> = unsafe { Axis::new(std::ptr::null(), 1, 0) };
        assert_eq!(axis.slice(), Some(&[][..]));
    }

    /// Axes with gaps, which are not slices: nothing but the count keeps a reader within them.
    #[test]
    fn axes_of_different_lengths_are_read_as_far_as_the_shortest() {
        let (long, short) = ([0i64, 9, 1, 9, 2], [3i64, 9, 4]);
        // SAFETY: every second number of an array.
        let axes = unsafe { [Axis::new(long.as_ptr(), 2, 3), Axis::new(short.as_ptr(), 2, 2)] };
        for axes in [axes, [axes[1], axes[0]]] {
            let seen = validate::summarise_coordinates(&axes, 1);
            assert!(seen.in_order && seen.unique);
            let mut ends = seen.ends.to_vec();
            ends.sort_unstable();
            assert_eq!(ends, [(0, 1), (3, 4)]);
            for lengths in [[5, 5], [i64::MAX, i64::MAX]] {
                assert_eq!(order::sort_by_axes(&axes, &lengths, 1).unwrap().order(), [0, 1]);
            }
            let pairs = group::Pairs { groups: axes[0], others: axes[1] };
            assert_eq!(group::Elements::count(&pairs), 2);
            let mut visited = Vec::new();
            group::Elements::visit(&pairs, 0, usize::MAX, |place, _, _| visited.push(place));
            assert_eq!(visited, [0, 1]);
        }
    }

    #[test]
    fn an_axis_that_is_longer_than_memory_has_no_order() {
        let number = 7i64;
        // SAFETY: one number, however often it counts.
        let axis = unsafe { Axis::new(&raw const number, 0, usize::MAX / 8 + 1) };
        let error = order::sort_by_axes(&[axis], &[8], 1).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::OutOfMemory);
    }

    #[test]
    fn little_work_stays_here() {
        assert_eq!(worth(EACH, 8), 1);
        assert_eq!(worth(3 * EACH, 2), 2);
        assert_eq!(worth(usize::MAX, 0), 1);
    }
}
