//! The table of borrows: which memory extension modules read and write at the moment.
//!
//! A borrow covers the elements of one tensor, for reading or for writing. Two borrows conflict if one of them is for writing and
//! their elements overlap. Memory is compared by address, so that views of one allocation conflict in whichever framework they are.
//!
//! Borrows last as long as calls of functions, so that a few exist at a time. The table is therefore a list, and a new borrow is
//! compared with each of them. A tree of intervals would cost more than it saves.

use crate::dlpack::abi::RawTensor;
use crate::tensor::Tensor;

/// The elements of a tensor, by their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementRange {
    /// The lowest byte of an element, and one past the highest.
    range: (usize, usize),
    /// The address of one element.
    address: usize,
    /// The size of an element in bytes.
    item: usize,
    /// The greatest common divisor of the strides in bytes; 0 for a single element.
    step: u64,
}

impl ElementRange {
    /// The elements of a tensor; `None` for a tensor without elements.
    #[inline(always)]
    pub fn of<O>(tensor: &Tensor<O>) -> Option<Self> {
        let layout = tensor.layout();
        let axes = layout.shape().iter().copied().zip(layout.strides().iter().copied());
        Self::of_axes(tensor.data() as usize, layout.item(), axes)
    }

    /// The elements of a tensor of DLPack; `None` for a tensor without elements.
    ///
    /// # Safety
    /// The tensor is valid: its shape and strides have `ndim` numbers, and its elements are in one allocation.
    #[inline]
    pub unsafe fn of_raw(tensor: &RawTensor) -> Option<Self> {
        let item = (usize::from(tensor.dtype.bits) * usize::from(tensor.dtype.lanes)).div_ceil(8);
        let address = (tensor.data as usize).wrapping_add(tensor.byte_offset as usize);
        let axes = (0..tensor.ndim.max(0) as usize).map(|axis| {
            // SAFETY: shape and strides have `ndim` numbers, by the contract of this function.
            let (length, stride) = unsafe { (*tensor.shape.add(axis), *tensor.strides.add(axis)) };
            (length, stride.wrapping_mul(item as i64))
        });
        Self::of_axes(address, item, axes)
    }

    /// The elements at an address, by the length and the stride in bytes of each axis; `None` if a length is 0.
    ///
    /// The elements are in one allocation, so that no offset between two of them overflows.
    #[inline(always)]
    pub fn of_axes(address: usize, item: usize, axes: impl Iterator<Item = (i64, i64)>) -> Option<Self> {
        let (mut low, mut high, mut step) = (address, address.wrapping_add(item), 0);
        for (length, stride) in axes {
            if length == 0 {
                return None;
            }
            if length > 1 {
                let reach = (length - 1).wrapping_mul(stride) as isize;
                let end = if reach < 0 { &mut low } else { &mut high };
                *end = end.wrapping_add_signed(reach);
                step = gcd(step, stride.unsigned_abs());
            }
        }
        Some(Self { range: (low, high), address, item, step })
    }

    /// The address of one element.
    pub fn address(&self) -> usize {
        self.address
    }

    /// The size of an element in bytes.
    pub fn item(&self) -> usize {
        self.item
    }

    /// The length and the stride in bytes of the axes of a tensor with this range, this address and this greatest common
    /// divisor. It may have more elements.
    pub fn axes(&self) -> impl Iterator<Item = (i64, i64)> {
        let step = self.step as i64;
        let after = (self.range.1 - self.item - self.address) as i64;
        let before = (self.address - self.range.0) as i64;
        let axis = move |(reach, stride): (i64, i64)| (reach > 0).then(|| (reach / step + 1, stride));
        [(after, step), (before, -step)].into_iter().filter_map(axis)
    }

    /// Whether elements of both may overlap. Exact for slices of one array with equal strides, such as two of its columns. Never
    /// false if elements overlap.
    pub fn may_overlap(&self, other: &Self) -> bool {
        if self.range.0 >= other.range.1 || other.range.0 >= self.range.1 {
            return false;
        }
        // The addresses of the elements of both are multiples of the step, up to one distance.
        let step = gcd(self.step, other.step) as usize;
        if step == 0 {
            return true;
        }
        let distance = match self.address <= other.address {
            true => (other.address - self.address) % step,
            false => (step - (self.address - other.address) % step) % step,
        };
        distance < self.item || distance + other.item > step
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    // The usual case: a division costs as much as the rest of a borrow.
    if a == 0 {
        return b;
    }
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Why a borrow was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BorrowConflict {
    /// The memory is being written.
    Written,
    /// The memory is being read, and the refused borrow would write it.
    Read,
}

/// A borrow, as its end returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Borrow<P> {
    /// `None` for a tensor without elements, which conflicts with nothing.
    pub elements: Option<ElementRange>,
    /// Whether it is for writing.
    pub is_exclusive: bool,
    /// The caller's.
    pub payload: P,
}

struct Slot<P> {
    /// The number of the latest borrow of this slot.
    number: u32,
    borrow: Option<Borrow<P>>,
}

/// The borrows of a process. Each has a payload of the caller's.
pub struct BorrowTable<P> {
    slots: Vec<Slot<P>>,
    /// The number of the last borrow, so that the identifier of an ended borrow is not that of a later one.
    last_number: u32,
}

impl<P> Default for BorrowTable<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> BorrowTable<P> {
    /// An empty table.
    pub const fn new() -> Self {
        Self { slots: Vec::new(), last_number: 0 }
    }

    /// Adds a borrow, for writing if it is exclusive, and returns its identifier, which is not 0. A borrow that is added gets the
    /// payload that `payload` returns.
    ///
    /// # Errors
    /// When the borrow conflicts with another one.
    #[inline(always)]
    pub fn borrow(
        &mut self,
        elements: Option<ElementRange>,
        is_exclusive: bool,
        payload: impl FnOnce() -> P,
    ) -> Result<u64, BorrowConflict> {
        let mut free = None;
        for (index, slot) in self.slots.iter().enumerate() {
            let Some(borrow) = &slot.borrow else {
                free = Some(index);
                continue;
            };
            if !(borrow.is_exclusive || is_exclusive) {
                continue;
            }
            if let (Some(held), Some(new)) = (&borrow.elements, &elements)
                && held.may_overlap(new)
            {
                let is_written = borrow.is_exclusive;
                return Err(if is_written { BorrowConflict::Written } else { BorrowConflict::Read });
            }
        }
        self.last_number = self.last_number.wrapping_add(1).max(1);
        let borrow = Some(Borrow { elements, is_exclusive, payload: payload() });
        let slot = Slot { number: self.last_number, borrow };
        let index = free.unwrap_or(self.slots.len());
        match free {
            Some(free) => self.slots[free] = slot,
            None => self.slots.push(slot),
        }
        Ok(u64::from(self.last_number) << 32 | index as u64)
    }

    /// Ends a borrow, and returns it. `None` for an unknown identifier.
    pub fn release(&mut self, identifier: u64) -> Option<Borrow<P>> {
        let slot = self.slots.get_mut((identifier & u64::from(u32::MAX)) as usize)?;
        if u64::from(slot.number) != identifier >> 32 {
            return None;
        }
        let ended = slot.borrow.take();
        self.drop_empty_slots();
        ended
    }

    /// Ends the borrows whose payload is not to be kept, and returns them.
    pub fn retain(&mut self, keep: impl Fn(&P) -> bool) -> Vec<Borrow<P>> {
        let ends = |borrow: &mut Borrow<P>| !keep(&borrow.payload);
        let ended = self.slots.iter_mut().filter_map(|slot| slot.borrow.take_if(ends)).collect();
        self.drop_empty_slots();
        ended
    }

    /// Shortens the list that each new borrow is compared with.
    fn drop_empty_slots(&mut self) {
        while self.slots.pop_if(|slot| slot.borrow.is_none()).is_some() {}
    }

    /// The number of borrows.
    pub fn len(&self) -> usize {
        self.slots.iter().filter(|slot| slot.borrow.is_some()).count()
    }

    /// Whether the table has no borrow.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::dlpack::abi::RawDType;
    use crate::dtype::DType;
    use crate::layout::Layout;
    use crate::tensor::{Access, ByteOrder};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// A tensor at an offset of an imagined allocation. Nothing reads it.
    fn tensor(offset: usize, shape: &[i64], strides: &[i64]) -> Tensor<()> {
        let layout = Layout::strided(4, shape, strides).unwrap();
        let data = std::ptr::without_provenance_mut(1 << 20 | offset);
        // SAFETY: no function of this module reads or writes the memory, and neither do the tests.
        let made = unsafe {
            Tensor::new(data, DType::Float32, layout, Device::CPU, ByteOrder::Native, Access::ReadWrite, ())
        };
        made.unwrap()
    }

    fn elements(offset: usize, shape: &[i64], strides: &[i64]) -> Option<ElementRange> {
        ElementRange::of(&tensor(offset, shape, strides))
    }

    /// Ends a borrow, and returns what tests compare.
    fn end<P>(table: &mut BorrowTable<P>, identifier: u64) -> Option<(bool, P)> {
        table.release(identifier).map(|ended| (ended.is_exclusive, ended.payload))
    }

    #[test]
    fn readers_share_and_writers_exclude() {
        let mut table = BorrowTable::new();
        let whole = elements(0, &[8], &[4]);
        let (one, other) =
            (table.borrow(whole, false, || 'a').unwrap(), table.borrow(whole, false, || 'b').unwrap());
        assert_eq!(table.borrow(elements(28, &[1], &[4]), true, || 'c'), Err(BorrowConflict::Read));
        assert_eq!(end(&mut table, one), Some((false, 'a')));
        assert_eq!(end(&mut table, other), Some((false, 'b')));
        let writer = table.borrow(whole, true, || 'd').unwrap();
        assert_eq!(table.borrow(whole, false, || 'e'), Err(BorrowConflict::Written));
        assert_eq!(table.borrow(whole, true, || 'f'), Err(BorrowConflict::Written));
        table.borrow(elements(32, &[8], &[4]), true, || 'g').unwrap();
        assert_eq!(end(&mut table, writer), Some((true, 'd')));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn columns_of_one_array_do_not_overlap() {
        let column = |index: usize| elements(4 * index, &[3], &[16]).unwrap();
        assert!(!column(0).may_overlap(&column(1)));
        assert!(!column(3).may_overlap(&column(0)));
        assert!(column(2).may_overlap(&column(2)));
        let row = elements(16, &[4], &[4]).unwrap();
        assert!(row.may_overlap(&column(1)) && column(1).may_overlap(&row));
    }

    #[test]
    fn an_ended_borrow_cannot_be_released_again() {
        let mut table = BorrowTable::new();
        let first = table.borrow(None, true, || ()).unwrap();
        assert_eq!(end(&mut table, first), Some((true, ())));
        let second = table.borrow(None, true, || ()).unwrap();
        assert_ne!(first, second);
        assert_eq!(table.release(first), None);
        assert_eq!(table.release(0), None);
        assert_eq!(table.release(u64::MAX), None);
        assert!(!table.is_empty());
        assert_eq!(end(&mut table, second), Some((true, ())));
        assert!(table.is_empty());
    }

    #[test]
    fn the_list_shrinks_after_a_peak() {
        let mut table = BorrowTable::new();
        let held: Vec<_> = (0..100).map(|number| table.borrow(None, false, || number).unwrap()).collect();
        assert_eq!(table.retain(|&number| number < 10).len(), 90);
        assert_eq!((table.len(), table.slots.len()), (10, 10));
        for (number, &identifier) in held[..10].iter().enumerate() {
            assert_eq!(end(&mut table, identifier), Some((false, number)));
        }
        assert!(held.into_iter().all(|identifier| table.release(identifier).is_none()));
        assert!(table.slots.is_empty());
    }

    /// The addresses of the bytes of all elements.
    fn bytes(tensor: &Tensor<()>) -> BTreeSet<usize> {
        let layout = tensor.layout();
        let mut starts = vec![tensor.data() as i64];
        for (&length, &stride) in layout.shape().iter().zip(layout.strides()) {
            starts = starts
                .iter()
                .flat_map(|&start| (0..length).map(move |index| start + index * stride))
                .collect();
        }
        starts.iter().flat_map(|&start| start as usize..start as usize + layout.item()).collect()
    }

    prop_compose! {
        fn any_tensor()(
            offset in 0usize..96,
            axes in prop::collection::vec((0i64..4, -24i64..24), 0..3),
        ) -> Tensor<()> {
            let (shape, strides): (Vec<_>, Vec<_>) = axes.into_iter().unzip();
            tensor(offset, &shape, &strides)
        }
    }

    proptest! {
        #[test]
        fn both_descriptions_give_the_same_elements(
            offset in 0usize..96,
            axes in prop::collection::vec((0i64..4, -6i64..6), 0..3),
        ) {
            let (mut shape, mut strides): (Vec<i64>, Vec<i64>) = axes.into_iter().unzip();
            let in_bytes: Vec<i64> = strides.iter().map(|stride| stride * 4).collect();
            let described = tensor(offset, &shape, &in_bytes);
            let raw = RawTensor {
                data: described.data().cast(),
                ndim: shape.len() as i32,
                dtype: RawDType { code: 2, bits: 32, lanes: 1 },
                shape: shape.as_mut_ptr(),
                strides: strides.as_mut_ptr(),
                ..RawTensor::empty()
            };
            // SAFETY: both vectors have `ndim` numbers. The memory is imagined, and nothing reads it.
            prop_assert_eq!(unsafe { ElementRange::of_raw(&raw) }, ElementRange::of(&described));
        }

        #[test]
        fn axes_give_the_same_range_again(tensor in any_tensor()) {
            if let Some(elements) = ElementRange::of(&tensor) {
                let again = ElementRange::of_axes(elements.address(), elements.item(), elements.axes());
                prop_assert_eq!(again, Some(elements));
            }
        }

        #[test]
        fn tensors_with_a_byte_in_common_always_overlap(one in any_tensor(), other in any_tensor()) {
            let shared = bytes(&one).intersection(&bytes(&other)).next().is_some();
            let found = match (ElementRange::of(&one), ElementRange::of(&other)) {
                (Some(a), Some(b)) => {
                    prop_assert_eq!(a.may_overlap(&b), b.may_overlap(&a));
                    a.may_overlap(&b)
                }
                _ => false,
            };
            prop_assert!(found || !shared);
        }

        #[test]
        fn slices_with_one_stride_are_compared_exactly(
            (one, other) in (0usize..64, 0usize..64),
            (length, rest) in (1i64..5, 1i64..5),
            stride in 4i64..24,
        ) {
            let (a, b) = (tensor(one, &[length], &[stride]), tensor(other, &[rest], &[stride]));
            prop_assume!(length > 1 && rest > 1);
            let shared = bytes(&a).intersection(&bytes(&b)).next().is_some();
            let in_range = ElementRange::of(&a).unwrap().may_overlap(&ElementRange::of(&b).unwrap());
            // Ranges that interleave at their ends alone are reported too.
            prop_assert!(in_range || !shared);
            if one.abs_diff(other) as i64 % stride >= 4 && (one.abs_diff(other) as i64 % stride) + 4 <= stride {
                prop_assert!(!in_range);
            }
        }
    }
}
