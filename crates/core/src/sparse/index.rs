//! Index arrays: the index types, and axes of coordinates with a stride.

use std::marker::PhantomData;

/// The private base of the traits that only this module implements.
pub(super) mod sealed {
    pub trait Sealed {}
}

/// An element of an index array: `i32` or `i64`.
///
/// ```
/// fn largest<I: tensorferry_core::sparse::Index>(numbers: &[I]) -> Option<i64> {
///     numbers.iter().map(|number| number.to_i64()).max()
/// }
/// assert_eq!((largest(&[1i32, 2]), largest(&[3i64])), (Some(2), Some(3)));
/// ```
///
/// The trait is sealed, because the kernels store such numbers in blocks that are aligned for these two types:
///
/// ```compile_fail,E0277
/// #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
/// #[repr(align(4096))]
/// struct Aligned(i64);
///
/// impl tensorferry_core::sparse::Index for Aligned {
///     fn to_i64(self) -> i64 {
///         self.0
///     }
///     fn from_usize(number: usize) -> Self {
///         Self(number as i64)
///     }
///     fn from_bool(is_true: bool) -> Self {
///         Self(is_true.into())
///     }
///     fn increase(self, bit: Self) -> Self {
///         Self(self.0 + bit.0)
///     }
/// }
/// ```
pub trait Index: sealed::Sealed + Copy + Ord + Send + Sync + std::fmt::Debug + 'static {
    /// The number as an `i64`.
    fn to_i64(self) -> i64;

    /// The index with this value, which the caller knows to fit.
    fn from_usize(number: usize) -> Self;

    /// One or zero, with the width of the compared indices, so that vector instructions compare and count in the same lanes.
    fn from_bool(is_true: bool) -> Self;

    /// Adds a counted bit. It wraps on overflow.
    fn increase(self, bit: Self) -> Self;

    /// The number as an offset, for a validated index, which is not negative.
    #[inline(always)]
    fn to_usize(self) -> usize {
        self.to_i64() as usize
    }
}

macro_rules! index {
    ($($number:ty),+) => {$(
        impl sealed::Sealed for $number {}

        impl Index for $number {
            #[inline(always)]
            fn to_i64(self) -> i64 {
                self.into()
            }

            #[inline(always)]
            fn from_usize(number: usize) -> Self {
                number as Self
            }

            #[inline(always)]
            fn from_bool(is_true: bool) -> Self {
                is_true.into()
            }

            #[inline(always)]
            fn increase(self, bit: Self) -> Self {
                self.wrapping_add(bit)
            }
        }
    )+};
}

index!(i32, i64);

/// The coordinates along one axis, with a constant stride.
#[derive(Clone, Copy, Debug)]
pub struct Axis<'a, I> {
    start: *const I,
    step: isize,
    count: usize,
    memory: PhantomData<&'a I>,
}

// SAFETY: an axis is a shared slice with a stride: its methods read numbers and write none. A shared slice may be sent if its
// items are `Sync`.
unsafe impl<I: Sync> Send for Axis<'_, I> {}
// SAFETY: the methods read numbers and write none, so threads may share an axis if its items are `Sync`.
unsafe impl<I: Sync> Sync for Axis<'_, I> {}

impl<'a, I: Index> Axis<'a, I> {
    /// `count` numbers with a stride of `step` numbers.
    ///
    /// # Safety
    /// All of them are readable and aligned for the lifetime `'a`, and nothing writes them meanwhile.
    pub unsafe fn new(start: *const I, step: isize, count: usize) -> Self {
        Self { start, step, count, memory: PhantomData }
    }

    /// The number of coordinates.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The coordinate of one element.
    ///
    /// # Panics
    /// When the axis has no such element.
    #[inline(always)]
    pub(super) fn get(&self, element: usize) -> I {
        assert!(element < self.count, "an axis of {} coordinates has no element {element}", self.count);
        // SAFETY: every element below the count is readable and aligned (the contract of `new`, or the slice of `from`), and
        // the assertion checks that this one is below it.
        unsafe { self.start.offset(element as isize * self.step).read() }
    }

    /// The coordinates of a range of elements. Its bounds are checked once, and not for each element.
    ///
    /// # Panics
    /// When the axis does not have all of these elements.
    #[inline(always)]
    pub(super) fn range(&self, from: usize, to: usize) -> impl ExactSizeIterator<Item = I> + use<'a, I> {
        assert!(from <= to && to <= self.count, "an axis of {} coordinates has no {from}..{to}", self.count);
        let Self { start, step, .. } = *self;
        // SAFETY: every element below the count is readable and aligned (the contract of `new`, or the slice of `from`), and
        // the assertion checks that the range ends there.
        (from..to).map(move |element| unsafe { start.offset(element as isize * step).read() })
    }

    /// The first `count` coordinates, or all if there are fewer.
    #[must_use]
    pub fn first(self, count: usize) -> Self {
        Self { count: self.count.min(count), ..self }
    }

    /// The coordinates as a slice, if they are contiguous.
    pub fn slice(&self) -> Option<&'a [I]> {
        if self.count == 0 {
            // An empty axis may have a null pointer, which a slice may not.
            return Some(&[]);
        }
        // SAFETY: with a stride of one, the `count` numbers are contiguous. They are readable and aligned for `'a`, and nothing
        // writes them meanwhile (the contract of `new`, or the slice of `from`); the pointer is not null, as there is a number.
        (self.step == 1).then(|| unsafe { std::slice::from_raw_parts(self.start, self.count) })
    }
}

impl<'a, I: Index> From<&'a [I]> for Axis<'a, I> {
    fn from(numbers: &'a [I]) -> Self {
        Self { start: numbers.as_ptr(), step: 1, count: numbers.len(), memory: PhantomData }
    }
}

/// The number of elements that have a coordinate on every axis: the count of the shortest axis.
pub(super) fn common_count<I: Index>(axes: &[Axis<'_, I>]) -> usize {
    axes.iter().map(Axis::count).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::group::{Elements, Pairs};
    use super::super::order::sort_by_axes;
    use super::super::validate::summarise_coordinates;
    use super::*;

    #[test]
    fn an_empty_axis_may_have_a_null_pointer() {
        // SAFETY: `new` requires memory for the coordinates, and a count of zero has none.
        let axis: Axis<'_, i32> = unsafe { Axis::new(std::ptr::null(), 1, 0) };
        assert_eq!(axis.slice(), Some(&[][..]));
    }

    /// Axes with gaps, which are not slices: only the count keeps accesses within them.
    #[test]
    fn axes_of_different_lengths_are_read_as_far_as_the_shortest() {
        let (long, short) = ([0i64, 9, 1, 9, 2], [3i64, 9, 4]);
        // SAFETY: the coordinates are every second number of two arrays of five and three numbers, which outlive the axes.
        let axes = unsafe { [Axis::new(long.as_ptr(), 2, 3), Axis::new(short.as_ptr(), 2, 2)] };
        for axes in [axes, [axes[1], axes[0]]] {
            let seen = summarise_coordinates(&axes, 1);
            assert!(seen.in_order && seen.unique);
            let mut bounds = seen.ends.to_vec();
            bounds.sort_unstable();
            assert_eq!(bounds, [(0, 1), (3, 4)]);
            for lengths in [[5, 5], [i64::MAX, i64::MAX]] {
                assert_eq!(sort_by_axes(&axes, &lengths, 1).unwrap().order(), [0, 1]);
            }
            let pairs = Pairs { groups: axes[0], others: axes[1] };
            assert_eq!(Elements::count(&pairs), 2);
            let mut visited = Vec::new();
            Elements::visit(&pairs, 0, usize::MAX, |element, _, _| visited.push(element));
            assert_eq!(visited, [0, 1]);
        }
    }

    #[test]
    fn elements_out_of_bounds_are_not_read() {
        let numbers = [5i64, 6];
        let axis = Axis::from(&numbers[..1]);
        assert_eq!((axis.get(0), axis.range(0, 1).len(), axis.range(1, 1).len()), (5, 1, 0));
        for (from, to) in [(0, 2), (1, 2), (1, 0)] {
            assert!(std::panic::catch_unwind(|| axis.range(from, to).last()).is_err(), "{from}..{to}");
        }
        assert!(std::panic::catch_unwind(|| axis.get(1)).is_err());
    }

    #[test]
    fn an_axis_that_is_longer_than_memory_is_an_error() {
        let number = 7i64;
        // SAFETY: with a stride of zero, every coordinate is the one number, which outlives the axis.
        let axis = unsafe { Axis::new(&raw const number, 0, usize::MAX / 8 + 1) };
        let error = sort_by_axes(&[axis], &[8], 1).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::OutOfMemory);
    }
}
