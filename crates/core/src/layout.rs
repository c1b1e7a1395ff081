//! Shapes and strides, with arithmetic that cannot overflow.
//!
//! Strides are in **bytes**, so that fields of records (a float32 every 5 bytes) have a layout too. Every constructor of
//! [`Layout`] checks that no dimension is negative, and that the element size, the number of bytes and every offset fit in an
//! `i64`. Code with a `Layout` may therefore add and multiply without checks.

use crate::error::{Error, Result};
use smallvec::SmallVec;

/// Two numbers for each dimension. Up to four dimensions need no heap allocation.
pub type Numbers = SmallVec<[i64; 8]>;

/// The shape of a tensor and its strides in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The lengths of all dimensions, then the strides.
    numbers: Numbers,
    item: usize,
}

/// Two zeros for each dimension. Up to four dimensions need no heap allocation.
///
/// Callers fill them where they stay: moving numbers that were just written stalls on most processors.
#[inline]
pub(crate) fn zeros(rank: usize) -> Numbers {
    match rank {
        0..=4 => Numbers::from_buf_and_len([0; 8], 2 * rank),
        _ => Numbers::from_elem(0, 2 * rank),
    }
}

impl Layout {
    /// A layout from strides in bytes.
    ///
    /// # Errors
    /// When a dimension is negative, the two differ in length, or a size or offset overflows.
    #[inline(always)]
    pub fn strided(item: usize, shape: &[i64], strides: &[i64]) -> Result<Self> {
        if shape.len() != strides.len() {
            return Err(Error::invalid_tensor(format!(
                "the shape has {} dimensions and the strides have {}",
                shape.len(),
                strides.len()
            )));
        }
        let mut layout = Self { numbers: zeros(shape.len()), item };
        let (lengths, steps) = layout.numbers.split_at_mut(shape.len());
        for (axis, (length, step)) in lengths.iter_mut().zip(steps).enumerate() {
            (*length, *step) = (shape[axis], strides[axis]);
        }
        layout.check()?;
        Ok(layout)
    }

    /// A layout from strides in elements, as DLPack and torch count them.
    ///
    /// # Errors
    /// As [`Layout::strided`].
    #[inline(always)]
    pub fn strided_by_element(item: usize, shape: &[i64], strides: &[i64]) -> Result<Self> {
        if shape.len() != strides.len() {
            return Self::strided(item, shape, strides);
        }
        let mut layout = Self { numbers: zeros(shape.len()), item };
        let (lengths, steps) = layout.numbers.split_at_mut(shape.len());
        for (axis, (length, step)) in lengths.iter_mut().zip(steps).enumerate() {
            let stride = strides[axis].checked_mul(item as i64).ok_or_else(|| {
                Error::invalid_tensor(format!("the stride of dimension {axis} overflows: {}", strides[axis]))
            })?;
            (*length, *step) = (shape[axis], stride);
        }
        layout.check()?;
        Ok(layout)
    }

    /// The dense row-major layout of `shape`.
    ///
    /// # Errors
    /// When a dimension is negative or the size overflows.
    pub fn dense(item: usize, shape: &[i64]) -> Result<Self> {
        let rank = shape.len();
        let mut numbers = zeros(rank);
        numbers[..rank].copy_from_slice(shape);
        let mut step = item as i64;
        for axis in (0..rank).rev() {
            numbers[rank + axis] = step;
            step = step
                .checked_mul(shape[axis].max(1))
                .ok_or_else(|| Error::invalid_tensor(format!("the size of shape {shape:?} overflows")))?;
        }
        let layout = Self { numbers, item };
        layout.check()?;
        Ok(layout)
    }

    #[inline(always)]
    fn check(&self) -> Result<()> {
        let Ok(item) = i64::try_from(self.item) else {
            return Err(Error::invalid_tensor(format!("the element size overflows: {} bytes", self.item)));
        };
        let (mut bytes, mut low, mut high) = (item, 0i64, item);
        let empty = self.is_empty();
        for (axis, (dim, stride)) in self.axes().enumerate() {
            if dim < 0 {
                return Err(Error::invalid_tensor(format!("shape dimension {axis} is negative: {dim}")));
            }
            if empty {
                continue;
            }
            let overflow = || {
                Error::invalid_tensor(format!(
                    "shape {:?} with strides {:?} overflows",
                    self.shape(),
                    self.strides()
                ))
            };
            bytes = bytes.checked_mul(dim).ok_or_else(overflow)?;
            let reach = (dim - 1).checked_mul(stride).ok_or_else(overflow)?;
            if reach < 0 {
                low = low.checked_add(reach).ok_or_else(overflow)?;
            } else {
                high = high.checked_add(reach).ok_or_else(overflow)?;
            }
        }
        high.checked_sub(low)
            .map(|_| ())
            .ok_or_else(|| Error::invalid_tensor("the extent of the strides overflows"))
    }

    /// The lengths of the dimensions.
    #[inline]
    pub fn shape(&self) -> &[i64] {
        &self.numbers[..self.rank()]
    }

    /// The strides in bytes.
    #[inline]
    pub fn strides(&self) -> &[i64] {
        &self.numbers[self.rank()..]
    }

    /// The length and the stride of each dimension.
    #[inline]
    fn axes(&self) -> impl DoubleEndedIterator<Item = (i64, i64)> + ExactSizeIterator + '_ {
        self.shape().iter().copied().zip(self.strides().iter().copied())
    }

    /// The size of an element in bytes.
    pub fn item(&self) -> usize {
        self.item
    }

    /// The number of dimensions.
    #[inline]
    pub fn rank(&self) -> usize {
        self.numbers.len() / 2
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        if self.is_empty() { 0 } else { self.shape().iter().product::<i64>() as usize }
    }

    /// The size of the elements in bytes, where elements of broadcast dimensions count repeatedly.
    pub fn bytes(&self) -> usize {
        self.count() * self.item
    }

    /// Whether there are no elements.
    #[inline]
    #[expect(clippy::manual_contains, reason = "`contains` is a call, and shapes are short")]
    pub fn is_empty(&self) -> bool {
        self.shape().iter().any(|&length| length == 0)
    }

    /// The lowest byte and one past the highest byte of all elements, relative to the data pointer.
    pub fn extent(&self) -> (i64, i64) {
        if self.is_empty() {
            return (0, 0);
        }
        let (mut low, mut high) = (0, self.item as i64);
        for (dim, stride) in self.axes() {
            let reach = (dim - 1) * stride;
            if reach < 0 { low += reach } else { high += reach }
        }
        (low, high)
    }

    /// Whether the elements are contiguous in row-major order.
    ///
    /// Strides of dimensions of length one, and all strides of an empty tensor, are irrelevant.
    #[inline]
    pub fn is_dense(&self) -> bool {
        let mut step = self.item as i64;
        for (dim, stride) in self.axes().rev() {
            if dim == 0 {
                return true;
            }
            if dim != 1 {
                if stride != step {
                    return self.is_empty();
                }
                // Wrapping: the lengths of an empty layout may be any numbers, and the result is then true either way.
                step = step.wrapping_mul(dim);
            }
        }
        true
    }

    /// Whether the elements fill a block without gaps or overlap in *some* order of the dimensions.
    pub fn is_dense_permuted(&self) -> bool {
        if self.is_empty() {
            return true;
        }
        let mut axes: SmallVec<[(i64, i64); 8]> =
            self.axes().filter(|&(dim, _)| dim != 1).map(|(dim, stride)| (stride, dim)).collect();
        axes.sort_unstable();
        let mut step = self.item as i64;
        axes.into_iter().all(|(stride, dim)| {
            let fits = stride == step;
            step *= dim;
            fits
        })
    }

    /// Whether a dimension of more than one element has a negative stride.
    pub fn has_negative_stride(&self) -> bool {
        !self.is_empty() && self.axes().any(|(dim, stride)| dim > 1 && stride < 0)
    }

    /// Whether a dimension of more than one element has a stride of zero.
    pub fn is_broadcast(&self) -> bool {
        !self.is_empty() && self.axes().any(|(dim, stride)| dim > 1 && stride == 0)
    }

    /// Whether elements with different indices may overlap.
    ///
    /// The result is exact for layouts of slices, transposes and broadcasts. For others, such as sliding windows, it may be
    /// true although no elements overlap, but it is never false if they do.
    pub fn may_overlap(&self) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut axes: SmallVec<[(i64, i64); 8]> = self
            .axes()
            .filter(|&(dim, _)| dim != 1)
            .map(|(dim, stride)| (stride.saturating_abs(), dim))
            .collect();
        axes.sort_unstable();
        let mut covered = self.item as i64;
        axes.into_iter().any(|(stride, dim)| {
            let overlaps = stride < covered;
            covered = stride.saturating_mul(dim - 1).saturating_add(covered);
            overlaps
        })
    }

    /// Whether every relevant stride is a multiple of the element size.
    pub fn strides_are_whole(&self) -> bool {
        let item = self.item as i64;
        item == 1 || self.is_empty() || self.axes().all(|(dim, stride)| dim <= 1 || stride % item == 0)
    }

    /// The lengths and strides of the fewest loops over the elements in row-major order, outermost first: without dimensions
    /// of length one, and with contiguous neighbours merged. A scalar has none, and an empty layout has one of length zero.
    pub fn runs(&self) -> SmallVec<[(i64, i64); 8]> {
        let mut runs: SmallVec<[(i64, i64); 8]> = SmallVec::new();
        if self.is_empty() {
            // The lengths of an empty layout may be any numbers, whose product overflows.
            runs.push((0, self.item as i64));
            return runs;
        }
        for (length, stride) in self.axes().filter(|&(length, _)| length != 1) {
            match runs.last_mut() {
                Some(outer) if stride.checked_mul(length) == Some(outer.1) => {
                    *outer = (outer.0 * length, stride)
                }
                _ => runs.push((length, stride)),
            }
        }
        runs
    }

    /// The same layout, with the irrelevant strides (of dimensions of length one or zero) of a row-major tensor. Consumers
    /// that compare strides literally then recognise a dense tensor.
    #[must_use]
    pub fn normalised(&self) -> Self {
        let mut normalised = self.clone();
        let (empty, rank) = (self.is_empty(), self.rank());
        let mut step = self.item as i64;
        for axis in (0..rank).rev() {
            let dim = self.numbers[axis];
            let stride = &mut normalised.numbers[rank + axis];
            if dim <= 1 || empty {
                *stride = step;
            }
            step = stride.wrapping_mul(dim.max(1));
        }
        normalised
    }

    /// The same layout with its dimensions in reverse order.
    #[must_use]
    pub fn transposed(&self) -> Self {
        let mut transposed = self.clone();
        let (lengths, strides) = transposed.numbers.split_at_mut(self.rank());
        lengths.reverse();
        strides.reverse();
        transposed
    }

    /// The lengths, then the normalised strides in elements, for DLPack; `None` if a stride is not a multiple
    /// of the element size.
    pub fn in_elements(&self) -> Option<Numbers> {
        let mut numbers = zeros(self.rank());
        self.write_in_elements(&mut numbers).then_some(numbers)
    }

    /// As [`Layout::in_elements`], into zeros of the same rank. False if a stride is not a multiple of the element size.
    #[inline(always)]
    pub(crate) fn write_in_elements(&self, numbers: &mut Numbers) -> bool {
        let (empty, rank) = (self.is_empty(), self.rank());
        let (lengths, steps) = numbers.split_at_mut(rank);
        // Element sizes are powers of two, so a shift replaces the division.
        let (shift, rest) = (self.item.trailing_zeros(), self.item as i64 - 1);
        let mut run = 1i64;
        for ((length, step), (dim, stride)) in lengths.iter_mut().zip(steps).zip(self.axes()).rev() {
            if dim > 1 && !empty && stride & rest != 0 {
                return false;
            }
            *length = dim;
            *step = if dim <= 1 || empty { run } else { stride >> shift };
            run = step.wrapping_mul(dim.max(1));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dense_layouts() {
        let layout = Layout::dense(4, &[2, 3, 4]).unwrap();
        assert_eq!(layout.strides(), [48, 16, 4]);
        assert!(layout.is_dense() && layout.is_dense_permuted() && !layout.may_overlap());
        assert_eq!((layout.count(), layout.bytes(), layout.extent()), (24, 96, (0, 96)));
    }

    #[test]
    fn runs_are_merged() {
        let runs =
            |shape: &[i64], strides: &[i64]| Layout::strided(4, shape, strides).unwrap().runs().to_vec();
        assert_eq!(runs(&[2, 3, 4], &[48, 16, 4]), [(24, 4)]);
        assert_eq!(runs(&[4, 1, 3], &[4, 999, 16]), [(4, 4), (3, 16)]);
        assert_eq!(runs(&[2, 3, 4], &[96, 16, 4]), [(2, 96), (12, 4)]);
        assert_eq!(runs(&[], &[]), []);
        assert_eq!(runs(&[5, 2], &[0, 0]), [(10, 0)]);
    }

    #[test]
    fn a_transpose_is_dense_in_another_order() {
        let layout = Layout::strided(4, &[3, 2], &[4, 12]).unwrap();
        assert!(!layout.is_dense() && layout.is_dense_permuted() && !layout.may_overlap());
    }

    #[test]
    fn strides_of_length_one_do_not_count() {
        let layout = Layout::strided(8, &[1, 3, 1], &[7, 8, -1000]).unwrap();
        assert!(layout.is_dense() && !layout.has_negative_stride() && layout.strides_are_whole());
        assert_eq!(layout.in_elements().unwrap().as_slice(), [1, 3, 1, 3, 1, 1]);
    }

    #[test]
    fn empty_layouts_are_dense() {
        let layout = Layout::strided(4, &[5, 0, i64::MAX], &[-9, 1, i64::MIN]).unwrap();
        assert!(layout.is_dense() && layout.is_empty() && !layout.may_overlap());
        assert_eq!((layout.count(), layout.extent()), (0, (0, 0)));
        assert!(layout.in_elements().is_some());
        // The product of the lengths overflows.
        let layout = Layout::strided(4, &[0, i64::MAX, i64::MAX], &[0, 0, 0]).unwrap();
        assert_eq!(layout.runs().as_slice(), [(0, 4)]);
        let layout = Layout::strided(4, &[0, 1 << 40, 1 << 40], &[0, 1 << 42, 4]).unwrap();
        assert!(layout.is_dense());
    }

    #[test]
    fn zero_and_negative_strides() {
        let broadcast = Layout::strided(4, &[3, 4], &[0, 4]).unwrap();
        assert!(broadcast.is_broadcast() && broadcast.may_overlap() && !broadcast.is_dense_permuted());
        let reversed = Layout::strided(4, &[3], &[-4]).unwrap();
        assert!(reversed.has_negative_stride() && !reversed.may_overlap());
        assert_eq!(reversed.extent(), (-8, 4));
    }

    #[test]
    fn record_fields_are_not_whole() {
        let layout = Layout::strided(4, &[3], &[5]).unwrap();
        assert!(!layout.strides_are_whole() && layout.in_elements().is_none());
    }

    #[test]
    fn bad_layouts_are_named() {
        let fact = |shape: &[i64], strides: &[i64]| {
            Layout::strided(8, shape, strides).unwrap_err().fact().to_owned()
        };
        assert_eq!(fact(&[2, -5], &[8, 8]), "shape dimension 1 is negative: -5");
        assert!(fact(&[i64::MAX, 4], &[0, 0]).contains("overflows"));
        assert!(fact(&[3], &[i64::MAX / 2 + 1]).contains("overflows"));
        assert!(fact(&[2, 2], &[i64::MIN / 2, i64::MAX]).contains("overflows"));
        assert!(fact(&[2], &[8, 8]).contains("2"));
        assert!(Layout::strided_by_element(8, &[2], &[i64::MAX / 4]).is_err());
        assert!(Layout::dense(8, &[1 << 40, 1 << 40]).is_err());
        // As an `i64` these element sizes are negative, and so would be the sizes in bytes.
        for item in [usize::MAX, 1 << 63] {
            assert!(Layout::dense(item, &[2]).is_err());
            assert!(Layout::strided(item, &[2], &[8]).is_err());
            assert!(Layout::strided_by_element(item, &[2], &[1]).is_err());
        }
    }

    proptest! {
        #[test]
        fn extents_hold_every_index(
            dims in proptest::collection::vec((0i64..5, -40i64..40), 0..5),
            item in prop_oneof![Just(1usize), Just(2), Just(4), Just(8)],
        ) {
            let (shape, strides): (Vec<i64>, Vec<i64>) = dims.into_iter().unzip();
            let layout = Layout::strided(item, &shape, &strides).unwrap();
            let (low, high) = layout.extent();
            let mut offsets = vec![0i64];
            for (&dim, &stride) in shape.iter().zip(&strides) {
                offsets = offsets.iter().flat_map(|o| (0..dim).map(move |i| o + i * stride)).collect();
            }
            prop_assert_eq!(offsets.len(), layout.count());
            if !offsets.is_empty() {
                prop_assert_eq!(*offsets.iter().min().unwrap(), low);
                prop_assert_eq!(*offsets.iter().max().unwrap() + item as i64, high);
            }
            let dense = offsets.iter().enumerate().all(|(i, o)| *o == (i * item) as i64);
            prop_assert_eq!(layout.is_dense(), dense);
            let mut sorted = offsets.clone();
            sorted.sort_unstable();
            let overlaps = sorted.windows(2).any(|pair| pair[1] - pair[0] < item as i64);
            prop_assert!(!overlaps || layout.may_overlap(), "an overlap was missed");
            let permuted = sorted.iter().enumerate().all(|(i, o)| *o == (i * item) as i64) ;
            prop_assert_eq!(layout.is_dense_permuted(), permuted && !overlaps);
        }

        #[test]
        fn any_numbers_give_a_layout_or_an_error(
            shape in proptest::collection::vec(any::<i64>(), 0..4),
            strides in proptest::collection::vec(any::<i64>(), 0..4),
        ) {
            if let Ok(layout) = Layout::strided(16, &shape, &strides) {
                let (low, high) = layout.extent();
                prop_assert!(low <= 0 && high >= 0);
                let _ = (layout.is_dense(), layout.is_dense_permuted(), layout.may_overlap(), layout.in_elements(), layout.bytes());
            }
        }
    }
}
