//! What keeps a process alive when memory runs out: a reserve for small allocations, and checks before large growth.
//!
//! Rust ends the process when a `Box`, a `String` or a `Vec` gets no memory. The standard library offers no stable way to
//! make that an error, and an allocator that unwinds breaks the contract of `GlobalAlloc`. So there are two measures:
//!
//! - [`Allocator`] serves allocations of at most [`MAX_RESERVE_ALLOCATION_BYTES`] from a static reserve when the system has
//!   no memory. The code that is running gets as far as the next check ([`check`], [`spend`]), and that is an error.
//! - Whatever grows with the caller's input reserves fallibly (`try_reserve`), and calls [`spend`]. For each MiB that is
//!   spent, one allocation of 4 MiB shows that there is room for the next. This also covers what frameworks
//!   allocate for each tensor: PyTorch ends the process when it has no memory for one of its own small objects.
//!
//! The reserve is a table of cells with one bitmap word for each 4 KiB. An allocation is a run of bits within one word, so
//! that taking and giving back are one atomic operation each: no lock, and a fork copies nothing half done.
//!
//! Rejected: fallible allocation everywhere, which `format!`, `Box<dyn Error>` and PyO3 do not offer; a block that is freed
//! when memory runs out, because any other thread can take it first.

use crate::error::{Error, ErrorKind, Result};
use crate::hints;
use crate::pool;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The largest allocation that the reserve serves.
pub const MAX_RESERVE_ALLOCATION_BYTES: usize = 64 * CELL_BYTES;

/// The size of the reserve.
const RESERVE_BYTES: usize = 256 << 10;

/// The unit of the reserve, and its alignment.
const CELL_BYTES: usize = 64;

const WORDS: usize = RESERVE_BYTES / MAX_RESERVE_ALLOCATION_BYTES;

/// After this much growth, [`spend`] looks whether there is headroom.
const CHECK_INTERVAL_BYTES: usize = 1 << 20;

/// What must be left then: room until the next look, and for tables of frameworks that double with the number of their
/// tensors. (With 2 MiB, JAX and MLX ended the process now and then.)
const HEADROOM_BYTES: usize = 4 << 20;

#[repr(C, align(64))]
struct Reserve {
    cells: UnsafeCell<[u8; RESERVE_BYTES]>,
    /// A bit for each cell that is in use.
    used: [AtomicU64; WORDS],
    /// How many allocations are in the reserve.
    allocations: AtomicUsize,
}

// SAFETY: cells are only reached through pointers that `take` gives out, each to one holder.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve::new();

impl Reserve {
    const fn new() -> Self {
        Self {
            cells: UnsafeCell::new([0; RESERVE_BYTES]),
            used: [const { AtomicU64::new(0) }; WORDS],
            allocations: AtomicUsize::new(0),
        }
    }

    /// The bits of a run of cells that holds this number of bytes, at the low end.
    fn run(bytes: usize) -> u64 {
        match bytes.div_ceil(CELL_BYTES) {
            64 => u64::MAX,
            cells => (1 << cells) - 1,
        }
    }

    /// Memory for a layout; null where the reserve has none.
    #[cold]
    fn take(&self, layout: Layout) -> *mut u8 {
        if layout.size() > MAX_RESERVE_ALLOCATION_BYTES || layout.align() > CELL_BYTES || layout.size() == 0 {
            return ptr::null_mut();
        }
        let run = Self::run(layout.size());
        for (place, word) in self.used.iter().enumerate() {
            let mut used = word.load(Ordering::Relaxed);
            while let Some(shift) = (0..=run.leading_zeros()).find(|shift| used & (run << shift) == 0) {
                match word.compare_exchange(used, used | (run << shift), Ordering::Acquire, Ordering::Relaxed)
                {
                    Ok(_) => {
                        self.allocations.fetch_add(1, Ordering::Relaxed);
                        let cell = place * 64 + shift as usize;
                        // SAFETY: the cell lies in the reserve.
                        return unsafe { self.cells.get().cast::<u8>().add(cell * CELL_BYTES) };
                    }
                    Err(now) => used = now,
                }
            }
        }
        ptr::null_mut()
    }

    /// Where in the reserve a pointer points; `None` for any other memory.
    #[inline(always)]
    fn offset(&self, pointer: *mut u8) -> Option<usize> {
        let offset = pointer.addr().wrapping_sub(self.cells.get().addr());
        (offset < RESERVE_BYTES).then_some(offset)
    }

    /// Takes memory back.
    #[cold]
    fn give_back(&self, offset: usize, layout: Layout) {
        let cell = offset / CELL_BYTES;
        self.used[cell / 64].fetch_and(!(Self::run(layout.size()) << (cell % 64)), Ordering::Release);
        self.allocations.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The system's allocator, with a reserve for small allocations.
#[derive(Clone, Copy, Debug)]
pub struct Allocator;

// SAFETY: memory comes from the system's allocator or from the reserve, whose runs do not overlap; it goes back to where it
// came from, which its address tells. Nothing here unwinds.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() { RESERVE.take(layout) } else { memory }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        let memory = RESERVE.take(layout);
        if !memory.is_null() {
            // SAFETY: as many bytes were taken just now.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match RESERVE.offset(memory) {
            // SAFETY: not from the reserve, so from the system; otherwise the caller's contract.
            None => unsafe { System.dealloc(memory, layout) },
            Some(offset) => RESERVE.give_back(offset, layout),
        }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if RESERVE.offset(memory).is_none() {
            // SAFETY: from the system; otherwise the caller's contract.
            let grown = unsafe { System.realloc(memory, layout, size) };
            if !grown.is_null() {
                return grown;
            }
        }
        // SAFETY: the caller's contract: the size is not zero and does not overflow with the alignment; both blocks hold
        // the smaller of the two sizes and do not overlap; the old one is given back once.
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

/// Sees that there is memory, where the reserve is in use.
///
/// # Errors
/// When the system still has none.
#[inline]
pub fn check_headroom() -> Result<()> {
    if RESERVE.allocations.load(Ordering::Relaxed) == 0 { Ok(()) } else { look(MAX_RESERVE_ALLOCATION_BYTES) }
}

/// Notes that a call takes some bytes for one of many parts, and sees from time to time that there is memory for more.
///
/// # Errors
/// When there is not.
#[inline]
pub fn reserve_headroom(bytes: usize) -> Result<()> {
    static SPENT_BYTES: AtomicUsize = AtomicUsize::new(0);
    // Not one atomic operation: a part that is lost between two threads does not matter.
    let spent = SPENT_BYTES.load(Ordering::Relaxed).saturating_add(bytes);
    if spent < CHECK_INTERVAL_BYTES {
        SPENT_BYTES.store(spent, Ordering::Relaxed);
        return check_headroom();
    }
    SPENT_BYTES.store(0, Ordering::Relaxed);
    look(HEADROOM_BYTES)
}

/// Checks that the system can allocate this number of bytes, without touching them.
#[cold]
fn look(bytes: usize) -> Result<()> {
    let found = Layout::from_size_align(bytes, 1).is_ok_and(|layout| {
        // SAFETY: the size is not zero; the block is given back with the layout that it was asked for.
        unsafe {
            // Without the black box the compiler may leave out both calls.
            let memory = black_box(System.alloc(layout));
            if !memory.is_null() {
                System.dealloc(memory, layout);
            }
            !memory.is_null()
        }
    });
    if found {
        return Ok(());
    }
    // What lies idle in the pool is given back before anybody hears of it.
    if pool::release_idle() > 0 {
        return look(bytes);
    }
    Err(Error::new(ErrorKind::OutOfMemory, format!("less than {bytes} bytes of memory are left on the host"))
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
    fn the_reserve_gives_runs_that_do_not_overlap_and_takes_them_back() {
        let reserve = Box::new(Reserve::new());
        let mut taken: Vec<*mut u8> = Vec::new();
        loop {
            let memory = reserve.take(layout(100));
            if memory.is_null() {
                break;
            }
            // SAFETY: 100 bytes were taken.
            unsafe { memory.write_bytes(taken.len() as u8, 100) };
            taken.push(memory);
        }
        assert_eq!(taken.len(), RESERVE_BYTES / 128);
        for (index, &memory) in taken.iter().enumerate() {
            // SAFETY: 100 bytes were written above.
            let bytes = unsafe { std::slice::from_raw_parts(memory, 100) };
            assert!(bytes.iter().all(|&byte| byte == index as u8));
            reserve.give_back(reserve.offset(memory).unwrap(), layout(100));
        }
        assert_eq!(reserve.allocations.load(Ordering::Relaxed), 0);
        let whole = reserve.take(layout(MAX_RESERVE_ALLOCATION_BYTES));
        assert_eq!(reserve.offset(whole), Some(0));
    }

    #[test]
    fn the_reserve_refuses_what_does_not_fit() {
        let reserve = Box::new(Reserve::new());
        assert!(reserve.take(layout(MAX_RESERVE_ALLOCATION_BYTES + 1)).is_null());
        assert!(reserve.take(Layout::from_size_align(8, 128).unwrap()).is_null());
        assert!(reserve.take(Layout::new::<()>()).is_null());
        let mut elsewhere = 0u8;
        assert_eq!(reserve.offset(&raw mut elsewhere), None);
    }

    #[test]
    fn a_block_of_the_reserve_grows_into_the_system_and_keeps_its_bytes() {
        // SAFETY: each block is used within its size, and given back once with its own layout.
        unsafe {
            let small = RESERVE.take(layout(10));
            small.write_bytes(7, 10);
            let large = Allocator.realloc(small, layout(10), 5000);
            assert_eq!(RESERVE.offset(large), None);
            assert_eq!(std::slice::from_raw_parts(large, 10), [7; 10]);
            Allocator.dealloc(large, layout(5000));
        }
    }

    #[test]
    fn too_much_to_ask_for_is_an_error_with_a_hint() {
        // Miri ends the program instead of refusing.
        if !cfg!(miri) {
            let error = look(isize::MAX as usize - 4096).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory);
            assert!(error.hint().is_some());
        }
    }

    #[test]
    fn spending_little_is_no_error() {
        for _ in 0..3000 {
            reserve_headroom(4096).unwrap();
        }
    }

    proptest! {
        #[test]
        fn any_order_of_taking_and_giving_back(
            steps in proptest::collection::vec((1usize..=MAX_RESERVE_ALLOCATION_BYTES, any::<bool>()), 0..200)
        ) {
            let reserve = Box::new(Reserve::new());
            let mut held: Vec<(usize, usize)> = Vec::new();
            for (bytes, takes) in steps {
                if takes {
                    if let Some(offset) = reserve.offset(reserve.take(layout(bytes))) {
                        prop_assert!(offset + bytes <= RESERVE_BYTES);
                        for &(other, length) in &held {
                            prop_assert!(offset + bytes <= other || other + length <= offset);
                        }
                        held.push((offset, bytes));
                    }
                } else if let Some((offset, length)) = held.pop() {
                    reserve.give_back(offset, layout(length));
                }
            }
            for (offset, length) in held {
                reserve.give_back(offset, layout(length));
            }
            prop_assert!(reserve.used.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        }
    }
}
