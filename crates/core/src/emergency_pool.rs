//! Protection against running out of memory: an emergency reserve for small allocations, and checks before large growth.
//!
//! Rust aborts the process when a `Box`, a `String` or a `Vec` gets no memory. The standard library has no stable way to make
//! that an error, and an allocator that unwinds violates the contract of `GlobalAlloc`. There are two measures:
//!
//! - [`Allocator`] serves allocations of at most [`MAX_EMERGENCY_ALLOCATION_BYTES`] from a static reserve when the system has
//!   no memory. The running code continues to the next check ([`check_headroom`], [`ensure_headroom`]), which fails.
//! - Collections that grow with the caller's input reserve fallibly (`try_reserve`) and call [`ensure_headroom`]. For each MiB
//!   of growth, a trial allocation of 4 MiB shows that there is memory for the next. This also covers what frameworks
//!   allocate for each tensor: PyTorch aborts the process if it has no memory for one of its own small objects.
//!
//! The reserve is a table of cells with one bitmap word for each 4 KiB. An allocation is a run of bits within one word, so
//! allocating and freeing are one atomic operation each: there is no lock, and a fork never copies an inconsistent state.
//!
//! Rejected: fallible allocation everywhere, which `format!`, `Box<dyn Error>` and PyO3 do not offer; a block that is freed
//! when memory runs out, because another thread can allocate it first.

use crate::error::{Error, ErrorKind, Result};
use crate::hints;
use crate::pool;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The largest allocation that the reserve serves.
pub const MAX_EMERGENCY_ALLOCATION_BYTES: usize = 64 * CELL_BYTES;

/// The size of the reserve; less under Miri, which takes minutes to fill it.
const EMERGENCY_RESERVE_BYTES: usize = if cfg!(miri) { 16 << 10 } else { 256 << 10 };

/// The unit of the reserve, and its alignment.
const CELL_BYTES: usize = 64;

const WORDS: usize = EMERGENCY_RESERVE_BYTES / MAX_EMERGENCY_ALLOCATION_BYTES;

/// The growth after which [`ensure_headroom`] checks the headroom.
const CHECK_INTERVAL_BYTES: usize = 1 << 20;

/// The memory that must be available then: for the growth until the next check, and for tables of frameworks that double
/// with the number of tensors. (With 2 MiB, JAX and MLX occasionally aborted the process.)
const HEADROOM_BYTES: usize = 4 << 20;

#[repr(C, align(64))]
struct EmergencyReserve {
    cells: UnsafeCell<[u8; EMERGENCY_RESERVE_BYTES]>,
    /// A bit for each cell that is in use.
    used: [AtomicU64; WORDS],
    /// The number of allocations in the reserve.
    allocations: AtomicUsize,
}

// SAFETY: the bitmap and the counter are atomics. No method accesses the cells. `allocate` returns a pointer to cells whose
// bits it has set in one atomic operation, so no two allocations share a cell until `free` clears the bits.
unsafe impl Sync for EmergencyReserve {}

static EMERGENCY_RESERVE: EmergencyReserve = EmergencyReserve::new();

impl EmergencyReserve {
    const fn new() -> Self {
        Self {
            cells: UnsafeCell::new([0; EMERGENCY_RESERVE_BYTES]),
            used: [const { AtomicU64::new(0) }; WORDS],
            allocations: AtomicUsize::new(0),
        }
    }

    /// The bits of the cells for an allocation of this size, at the low end.
    fn cell_bits(bytes: usize) -> u64 {
        match bytes.div_ceil(CELL_BYTES) {
            64 => u64::MAX,
            cells => (1 << cells) - 1,
        }
    }

    /// Memory for a layout; null if the reserve has none.
    #[cold]
    fn allocate(&self, layout: Layout) -> *mut u8 {
        if layout.size() > MAX_EMERGENCY_ALLOCATION_BYTES || layout.align() > CELL_BYTES || layout.size() == 0
        {
            return ptr::null_mut();
        }
        let bits = Self::cell_bits(layout.size());
        for (index, word) in self.used.iter().enumerate() {
            let mut used = word.load(Ordering::Relaxed);
            while let Some(shift) = (0..=bits.leading_zeros()).find(|shift| used & (bits << shift) == 0) {
                match word.compare_exchange(
                    used,
                    used | (bits << shift),
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        self.allocations.fetch_add(1, Ordering::Relaxed);
                        let cell = index * 64 + shift as usize;
                        // SAFETY: `add` requires an offset within the allocation. `index` is below `WORDS`, and the run of bits
                        // fits in the word, so the cell is one of the 64 cells of each word.
                        return unsafe { self.cells.get().cast::<u8>().add(cell * CELL_BYTES) };
                    }
                    Err(now) => used = now,
                }
            }
        }
        ptr::null_mut()
    }

    /// The offset of a pointer in the reserve; `None` for any other memory.
    #[inline(always)]
    fn offset(&self, pointer: *mut u8) -> Option<usize> {
        let offset = pointer.addr().wrapping_sub(self.cells.get().addr());
        (offset < EMERGENCY_RESERVE_BYTES).then_some(offset)
    }

    /// Frees memory of the reserve.
    ///
    /// # Safety
    /// [`allocate`](Self::allocate) returned the memory at this offset for this layout, and nothing uses it any more.
    #[cold]
    unsafe fn free(&self, offset: usize, layout: Layout) {
        let cell = offset / CELL_BYTES;
        self.used[cell / 64].fetch_and(!(Self::cell_bits(layout.size()) << (cell % 64)), Ordering::Release);
        self.allocations.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The system allocator with an emergency reserve for small allocations.
#[derive(Clone, Copy, Debug)]
pub struct Allocator;

// SAFETY: the trait requires valid memory for the layout, and no unwinding. Memory comes from the system allocator, or from
// cells of the reserve that no other allocation has, aligned to 64 bytes, and its address determines where it is freed. Nothing
// panics: the index in `free` is below `WORDS`, because the offset is below the size of the reserve.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the size of the layout is not zero (the contract of `GlobalAlloc::alloc`, which is the same).
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() { EMERGENCY_RESERVE.allocate(layout) } else { memory }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the size of the layout is not zero (the contract of `GlobalAlloc::alloc_zeroed`, which is the same).
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        let memory = EMERGENCY_RESERVE.allocate(layout);
        if !memory.is_null() {
            // SAFETY: `allocate` returned memory for this layout that nothing else uses.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: this allocator returned the memory for this layout, and nothing uses it any more (the contract of
        // `GlobalAlloc::dealloc`). Memory within the reserve came from its `allocate`, and any other from the system allocator.
        unsafe {
            match EMERGENCY_RESERVE.offset(memory) {
                None => System.dealloc(memory, layout),
                Some(offset) => EMERGENCY_RESERVE.free(offset, layout),
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if EMERGENCY_RESERVE.offset(memory).is_none() {
            // SAFETY: the memory is not within the reserve, so it came from the system allocator. The layout and the size are
            // those that the contract of `GlobalAlloc::realloc` requires, which is the same.
            let grown = unsafe { System.realloc(memory, layout, size) };
            if !grown.is_null() {
                return grown;
            }
        }
        // SAFETY: the size is not zero and does not overflow when rounded up to the alignment (the contract of
        // `GlobalAlloc::realloc`), so it makes a layout. The new block is another allocation, and both have the smaller of the
        // two sizes. This allocator returned the old block for this layout, and the caller does not use it after success.
        unsafe {
            let grown = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !grown.is_null() {
                ptr::copy_nonoverlapping(memory, grown, layout.size().min(size));
                self.dealloc(memory, layout);
            }
            grown
        }
    }
}

/// Checks that the system has memory, if the reserve is in use.
///
/// # Errors
/// When the system still has no memory.
#[inline]
pub fn check_headroom() -> Result<()> {
    if EMERGENCY_RESERVE.allocations.load(Ordering::Relaxed) == 0 {
        Ok(())
    } else {
        try_allocate(MAX_EMERGENCY_ALLOCATION_BYTES)
    }
}

/// Records that a call allocates memory for one of many items, and regularly checks that there is memory for more.
///
/// # Errors
/// If memory runs out.
#[inline]
pub fn ensure_headroom(bytes: usize) -> Result<()> {
    static SPENT_BYTES: AtomicUsize = AtomicUsize::new(0);
    // Not a single atomic operation: an addition that two threads lose does not matter.
    let spent = SPENT_BYTES.load(Ordering::Relaxed).saturating_add(bytes);
    if spent < CHECK_INTERVAL_BYTES {
        SPENT_BYTES.store(spent, Ordering::Relaxed);
        return check_headroom();
    }
    SPENT_BYTES.store(0, Ordering::Relaxed);
    try_allocate(HEADROOM_BYTES)
}

/// Checks that the system can allocate this number of bytes, without touching them.
#[cold]
fn try_allocate(bytes: usize) -> Result<()> {
    let has_memory = Layout::from_size_align(bytes, 1).is_ok_and(|layout| {
        // SAFETY: `alloc` requires a size that is not zero: callers pass the two constants of this file. The block is freed
        // once, with the layout that it was allocated with.
        unsafe {
            // Without the black box the compiler may remove both calls.
            let memory = black_box(System.alloc(layout));
            if !memory.is_null() {
                System.dealloc(memory, layout);
            }
            !memory.is_null()
        }
    });
    if has_memory {
        return Ok(());
    }
    // Idle blocks of the pool are unmapped before the call fails.
    if pool::release_idle() > 0 {
        return try_allocate(bytes);
    }
    Err(Error::new(
        ErrorKind::OutOfMemory,
        format!("less than {bytes} bytes of memory are available on the host"),
    )
    .with_hint(hints::CONVERT_FEWER_TENSORS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 8).unwrap()
    }

    #[test]
    fn allocations_of_the_reserve_do_not_overlap_and_can_be_freed() {
        let reserve = Box::new(EmergencyReserve::new());
        let mut taken: Vec<*mut u8> = Vec::new();
        loop {
            let memory = reserve.allocate(layout(100));
            if memory.is_null() {
                break;
            }
            // SAFETY: `allocate` returned memory for 100 bytes that nothing else uses.
            unsafe { memory.write_bytes(taken.len() as u8, 100) };
            taken.push(memory);
        }
        assert_eq!(taken.len(), EMERGENCY_RESERVE_BYTES / 128);
        for (index, &memory) in taken.iter().enumerate() {
            // SAFETY: the first loop allocated these 100 bytes and wrote them. They are freed once, after the last read.
            unsafe {
                assert_eq!(std::slice::from_raw_parts(memory, 100), [index as u8; 100]);
                reserve.free(reserve.offset(memory).unwrap(), layout(100));
            }
        }
        assert_eq!(reserve.allocations.load(Ordering::Relaxed), 0);
        let whole = reserve.allocate(layout(MAX_EMERGENCY_ALLOCATION_BYTES));
        assert_eq!(reserve.offset(whole), Some(0));
    }

    #[test]
    fn the_reserve_rejects_layouts_that_do_not_fit() {
        let reserve = Box::new(EmergencyReserve::new());
        assert!(reserve.allocate(layout(MAX_EMERGENCY_ALLOCATION_BYTES + 1)).is_null());
        assert!(reserve.allocate(Layout::from_size_align(8, 128).unwrap()).is_null());
        assert!(reserve.allocate(Layout::new::<()>()).is_null());
        let mut elsewhere = 0u8;
        assert_eq!(reserve.offset(&raw mut elsewhere), None);
    }

    #[test]
    fn reallocation_out_of_the_reserve_keeps_the_bytes() {
        // SAFETY: `allocate` returned memory for ten bytes, which are written, and `realloc` gets their layout. It copies them
        // to a block of 5000 bytes, of which ten are read, and which is freed once with a layout of that size.
        unsafe {
            let small = EMERGENCY_RESERVE.allocate(layout(10));
            small.write_bytes(7, 10);
            let large = Allocator.realloc(small, layout(10), 5000);
            assert_eq!(EMERGENCY_RESERVE.offset(large), None);
            assert_eq!(std::slice::from_raw_parts(large, 10), [7; 10]);
            Allocator.dealloc(large, layout(5000));
        }
    }

    #[test]
    fn an_impossible_allocation_is_an_error_with_a_hint() {
        // Miri aborts instead of failing the allocation.
        if !cfg!(miri) {
            let error = try_allocate(isize::MAX as usize - 4096).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory);
            assert!(error.hint().is_some());
        }
    }

    #[test]
    fn little_growth_succeeds() {
        for _ in 0..if cfg!(miri) { 30 } else { 3000 } {
            ensure_headroom(4096).unwrap();
        }
    }

    proptest! {
        #[test]
        fn any_order_of_allocating_and_freeing(
            steps in proptest::collection::vec((1usize..=MAX_EMERGENCY_ALLOCATION_BYTES, any::<bool>()), 0..200)
        ) {
            let reserve = Box::new(EmergencyReserve::new());
            let mut held: Vec<(usize, usize)> = Vec::new();
            // SAFETY: the callers pass allocations of the reserve, which they remove from `held`, so each is freed once.
            let free = |(offset, length)| unsafe { reserve.free(offset, layout(length)) };
            for (bytes, takes) in steps {
                if takes {
                    if let Some(offset) = reserve.offset(reserve.allocate(layout(bytes))) {
                        prop_assert!(offset + bytes <= EMERGENCY_RESERVE_BYTES);
                        for &(other, length) in &held {
                            prop_assert!(offset + bytes <= other || other + length <= offset);
                        }
                        held.push((offset, bytes));
                    }
                } else if let Some(allocation) = held.pop() {
                    free(allocation);
                }
            }
            held.into_iter().for_each(free);
            prop_assert!(reserve.used.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        }
    }
}
