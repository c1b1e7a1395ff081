//! Planes whose rows and columns are exchanged.
//!
//! A block takes a tile of squares, each of sixteen bytes by as many rows as there are elements in sixteen bytes. A thread
//! reads a line of sixteen bytes from each row of its square, turns the square around in its registers, and leaves the
//! turned lines in shared memory, in the order of the target. From there sixteen threads side by side write 256 bytes of
//! a target row; as many read 256 bytes of a source row. Squares alone, without the detour, write 64 bytes at a time.
//!
//! Lines lie in the tile with their places exchanged, row by row ([`place`]), so that neither the threads that write nor
//! those that read meet in one bank of the shared memory.
//!
//! Where rows begin anywhere, each line is put together from two aligned ones. Tiles over the edge of such planes go
//! element by element through the same tile.
//!
//! Blocks go down the source in pairs of columns, so that what runs at the same time writes long stretches of few target
//! rows; nothing is written twice, so the caches are told not to keep it.

use crate::Sixteen;
use crate::jobs::Planes;
use core::arch::asm;
use core::arch::nvptx::{_block_idx_x, _block_idx_y, _block_idx_z, _syncthreads, _thread_idx_x, _thread_idx_y};

/// Squares on top of each other in a tile.
const HIGH: u32 = 16;
/// Bytes of a target row in a tile.
const PITCH: u32 = 16 * HIGH;

/// Sixteen bytes of global memory.
///
/// # Safety
/// They are readable global memory, aligned to sixteen.
#[inline(always)]
unsafe fn load(from: *const u8) -> Sixteen {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "ld.global.v4.u32 {{{}, {}, {}, {}}}, [{}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) from,
            options(nostack, readonly, preserves_flags)
        );
    }
    Sixteen([a, b, c, d])
}

/// Sixteen bytes that nobody reads soon.
///
/// # Safety
/// They are writable global memory, aligned to sixteen.
#[inline(always)]
unsafe fn store(to: *mut u8, line: Sixteen) {
    let Sixteen([a, b, c, d]) = line;
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "st.global.cs.v4.u32 [{}], {{{}, {}, {}, {}}};",
            in(reg64) to, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d,
            options(nostack, preserves_flags)
        );
    }
}

impl Sixteen {
    /// The sixteen bytes that begin after some of this line, fifteen at most, and go on in the next.
    #[inline(always)]
    fn and_on(self, next: Self, past: u32) -> Self {
        let (Self([a, b, c, d]), Self([e, f, g, h])) = (self, next);
        let (a, b, c, d, e, f) = if past & 8 == 0 { (a, b, c, d, e, f) } else { (c, d, e, f, g, h) };
        let (a, b, c, d, e) = if past & 4 == 0 { (a, b, c, d, e) } else { (b, c, d, e, f) };
        let shift = |low: u32, high: u32| {
            let word: u32;
            // SAFETY: arithmetic.
            unsafe {
                asm!(
                    "shf.r.wrap.b32 {}, {}, {}, {};",
                    out(reg32) word, in(reg32) low, in(reg32) high, in(reg32) 8 * (past % 4),
                    options(nostack, nomem, pure, preserves_flags)
                );
            }
            word
        };
        Self([shift(a, b), shift(b, c), shift(c, d), shift(d, e)])
    }
}

/// A block's tile in shared memory, by an address that only shared loads and stores take: through general pointers they
/// are half as fast.
#[derive(Clone, Copy)]
struct Tile(u32);

impl Tile {
    /// # Safety
    /// The line lies within the tile.
    #[inline(always)]
    unsafe fn put(self, place: u32, line: Sixteen) {
        let Sixteen([a, b, c, d]) = line;
        // SAFETY: the caller's contract.
        unsafe {
            asm!(
                "st.shared.v4.u32 [{}], {{{}, {}, {}, {}}};",
                in(reg32) self.0 + place, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d,
                options(nostack, preserves_flags)
            );
        }
    }

    /// # Safety
    /// The line lies within the tile.
    #[inline(always)]
    unsafe fn get(self, place: u32) -> Sixteen {
        let (a, b, c, d): (u32, u32, u32, u32);
        // SAFETY: the caller's contract.
        unsafe {
            asm!(
                "ld.shared.v4.u32 {{{}, {}, {}, {}}}, [{}];",
                out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) self.0 + place,
                options(nostack, readonly, preserves_flags)
            );
        }
        Sixteen([a, b, c, d])
    }
}

/// An element that shared memory takes.
trait Element: Copy {
    /// # Safety
    /// The element lies within the tile.
    unsafe fn put(self, tile: Tile, place: u32);

    /// # Safety
    /// The element lies within the tile.
    unsafe fn get(tile: Tile, place: u32) -> Self;

    /// A square with its rows and columns exchanged.
    #[inline(always)]
    fn turned<const N: usize>(square: [Sixteen; N]) -> [Sixteen; N] {
        // SAFETY: `N` elements are sixteen bytes, and any bytes are an element.
        unsafe {
            let square: [[Self; N]; N] = core::mem::transmute_copy(&square);
            let turned: [[Self; N]; N] = core::array::from_fn(|column| core::array::from_fn(|row| square[row][column]));
            core::mem::transmute_copy(&turned)
        }
    }
}

macro_rules! elements {
    ($($kind:ty: $class:ident $held:ty, $store:literal $load:literal $({ $($more:item)* })?;)*) => {$(
        impl Element for $kind {
            $($($more)*)?

            #[inline(always)]
            unsafe fn put(self, tile: Tile, place: u32) {
                // SAFETY: the caller's contract.
                unsafe {
                    asm!($store, in(reg32) tile.0 + place, in($class) self as $held, options(nostack, preserves_flags));
                }
            }

            #[inline(always)]
            unsafe fn get(tile: Tile, place: u32) -> Self {
                let element: $held;
                // SAFETY: the caller's contract.
                unsafe {
                    asm!(
                        $load, out($class) element, in(reg32) tile.0 + place,
                        options(nostack, readonly, preserves_flags)
                    );
                }
                element as Self
            }
        }
    )*};
}

elements! {
    u8: reg16 u16, "st.shared.u8 [{}], {};" "ld.shared.u8 {}, [{}];" {
        #[inline(always)]
        fn turned<const N: usize>(square: [Sixteen; N]) -> [Sixteen; N] {
            turned_bytes(square)
        }
    };
    u16: reg16 u16, "st.shared.u16 [{}], {};" "ld.shared.u16 {}, [{}];";
    u32: reg32 u32, "st.shared.u32 [{}], {};" "ld.shared.u32 {}, [{}];";
    u64: reg64 u64, "st.shared.u64 [{}], {};" "ld.shared.u64 {}, [{}];";
}

/// Four words with their bytes exchanged as rows and columns.
#[inline(always)]
fn turned_words([a, b, c, d]: [u32; 4]) -> [u32; 4] {
    let pick = |low: u32, high: u32, which: u32| {
        let word: u32;
        // SAFETY: arithmetic.
        unsafe {
            asm!(
                "prmt.b32 {}, {}, {}, {};",
                out(reg32) word, in(reg32) low, in(reg32) high, in(reg32) which,
                options(nostack, nomem, pure, preserves_flags)
            );
        }
        word
    };
    let (even, odd) = (0x6240, 0x7351);
    let (ab_even, ab_odd) = (pick(a, b, even), pick(a, b, odd));
    let (cd_even, cd_odd) = (pick(c, d, even), pick(c, d, odd));
    let (low, high) = (0x5410, 0x7632);
    let [even_low, even_high] = [pick(ab_even, cd_even, low), pick(ab_even, cd_even, high)];
    let [odd_low, odd_high] = [pick(ab_odd, cd_odd, low), pick(ab_odd, cd_odd, high)];
    [even_low, odd_low, even_high, odd_high]
}

/// A square of bytes, word by word: byte by byte it would not stay in registers.
#[inline(always)]
fn turned_bytes<const N: usize>(square: [Sixteen; N]) -> [Sixteen; N] {
    let mut turned = square;
    macro_rules! blocks {
        ($($down:literal $across:literal)*) => {$(
            let words = turned_words(core::array::from_fn(|row| square[4 * $down + row].0[$across]));
            turned[4 * $across].0[$down] = words[0];
            turned[4 * $across + 1].0[$down] = words[1];
            turned[4 * $across + 2].0[$down] = words[2];
            turned[4 * $across + 3].0[$down] = words[3];
        )*};
    }
    blocks! { 0 0  0 1  0 2  0 3  1 0  1 1  1 2  1 3  2 0  2 1  2 2  2 3  3 0  3 1  3 2  3 3 }
    turned
}

impl Element for Sixteen {
    #[inline(always)]
    unsafe fn put(self, tile: Tile, place: u32) {
        // SAFETY: the caller's contract.
        unsafe { tile.put(place, self) }
    }

    #[inline(always)]
    unsafe fn get(tile: Tile, place: u32) -> Self {
        // SAFETY: the caller's contract.
        unsafe { tile.get(place) }
    }
}

/// Where in the tile a line of a target row lies.
#[inline(always)]
fn place<const N: usize>(row: u32, line: u32) -> u32 {
    let (square, within) = (row / N as u32, row % N as u32);
    row * PITCH + 16 * (line ^ ((square ^ within) & 7))
}

/// What a block has to do: where its tile begins in the plane, and how much of it is there.
struct Part<T> {
    from: *const T,
    to: *mut T,
    rows: u32,
    columns: u32,
}

impl<T: Element> Part<T> {
    /// Where a row of the source begins.
    #[inline(always)]
    fn row(&self, job: &Planes, row: u32) -> *const u8 {
        self.from.cast::<u8>().wrapping_offset((row as i64 * job.from_pitch) as isize)
    }

    /// Where a row of the target, a column of the source, begins.
    #[inline(always)]
    fn column(&self, job: &Planes, column: u32) -> *mut u8 {
        self.to.cast::<u8>().wrapping_offset((column as i64 * job.to_pitch) as isize)
    }
}

/// # Safety
/// The planes are memory of this device; the tile has room for `WIDE` by [`HIGH`] squares, `N` is sixteen by the size of
/// an element, and `whole` holds only where every pitch and start is a multiple of sixteen.
#[inline(always)]
unsafe fn turn<T: Element, const N: usize, const WIDE: u32>(job: &Planes, whole: bool, tile: Tile) {
    let (tall, broad) = (HIGH * N as u32, WIDE * N as u32);
    // SAFETY: reads of registers.
    let (block, pair, plane) = unsafe { (_block_idx_x() as u64, _block_idx_y() as u64, _block_idx_z() as i64) };
    let (x, y) = ((2 * pair + block % 2) * broad as u64, block / 2 * tall as u64);
    if x >= job.columns || y >= job.rows {
        return;
    }
    // SAFETY: the tile begins within the plane; the host checked the planes.
    let part = unsafe {
        let from = job.from.wrapping_offset((plane * job.from_plane) as isize);
        let to = job.to.wrapping_offset((plane * job.to_plane) as isize);
        Part::<T> {
            from: from.offset((y as i64 * job.from_pitch) as isize).cast::<T>().add(x as usize),
            to: to.offset((x as i64 * job.to_pitch) as isize).cast::<T>().add(y as usize),
            rows: (job.rows - y).min(tall as u64) as u32,
            columns: (job.columns - x).min(broad as u64) as u32,
        }
    };
    // SAFETY: the caller's contract; all threads of the block go the same way.
    unsafe {
        if whole && part.columns % N as u32 == 0 {
            lines::<T, N, WIDE>(job, &part, tile);
        } else if part.rows == tall && part.columns == broad {
            shifted_lines::<T, N, WIDE>(job, &part, tile);
        } else {
            elements::<T, N, WIDE>(job, &part, tile);
        }
    }
}

/// This thread's square, turned around and left in the tile.
///
/// # Safety
/// As for [`turn`]; `line` reads the line of sixteen bytes that begins at an address of the part.
#[inline(always)]
unsafe fn turn_square<T: Element, const N: usize>(
    job: &Planes,
    part: &Part<T>,
    tile: Tile,
    (across, down): (u32, u32),
    line: impl Fn(*const u8) -> Sixteen,
) {
    // SAFETY: places within the part and the tile.
    unsafe {
        let mut square = [Sixteen([0; 4]); N];
        for (row, place) in square.iter_mut().enumerate() {
            *place = line(part.row(job, down * N as u32 + row as u32).wrapping_add(16 * across as usize));
        }
        for (column, line) in T::turned(square).iter().enumerate() {
            tile.put(place::<N>(across * N as u32 + column as u32, down), *line);
        }
    }
}

/// A tile whose lines are aligned.
///
/// # Safety
/// As for [`turn`], where `whole` holds and the part is made of whole squares.
#[inline(always)]
unsafe fn lines<T: Element, const N: usize, const WIDE: u32>(job: &Planes, part: &Part<T>, tile: Tile) {
    // SAFETY: reads of registers; then places within the part and the tile.
    unsafe {
        let (across, down) = (_thread_idx_x() as u32, _thread_idx_y() as u32);
        if across * (N as u32) < part.columns && down * (N as u32) < part.rows {
            turn_square::<T, N>(job, part, tile, (across, down), |from| load(from));
        }
        _syncthreads();
        let thread = down * WIDE + across;
        let line = thread % HIGH;
        for step in 0..N as u32 {
            let row = thread / HIGH + step * WIDE;
            if row < part.columns && line * (N as u32) < part.rows {
                let to = part.column(job, row).wrapping_add(16 * line as usize);
                store(to, tile.get(place::<N>(row, line)));
            }
        }
    }
}

/// A whole tile whose rows begin anywhere: lines are put together from the two aligned ones that they lie in.
///
/// # Safety
/// As for [`turn`], with a part that is a whole tile.
#[inline(always)]
unsafe fn shifted_lines<T: Element, const N: usize, const WIDE: u32>(job: &Planes, part: &Part<T>, tile: Tile) {
    // SAFETY: reads of registers; then places within the part and the tile. An aligned line that has a byte of the part is
    // readable as a whole.
    unsafe {
        let (across, down) = (_thread_idx_x() as u32, _thread_idx_y() as u32);
        turn_square::<T, N>(job, part, tile, (across, down), |from| {
            let past = from.addr() as u32 % 16;
            let aligned = from.wrapping_sub(past as usize);
            let low = load(aligned);
            if past == 0 { low } else { low.and_on(load(aligned.wrapping_add(16)), past) }
        });
        _syncthreads();
        let thread = down * WIDE + across;
        let line = thread % HIGH;
        for step in 0..N as u32 {
            let row = thread / HIGH + step * WIDE;
            let to = part.column(job, row);
            let missing = to.addr() as u32 % 16;
            let own = tile.get(place::<N>(row, line));
            if missing == 0 {
                store(to.wrapping_add(16 * line as usize), own);
                continue;
            }
            // The aligned lines of the target are one less, and what is before the first and after the last is one
            // line's worth of elements.
            if line > 0 {
                let before = tile.get(place::<N>(row, line - 1));
                let aligned = to.wrapping_add((16 * line - missing) as usize);
                store(aligned, before.and_on(own, 16 - missing));
            }
            if line < N as u32 {
                let offset = line * size_of::<T>() as u32;
                let from = if offset < 16 - missing { 0 } else { HIGH - 1 };
                let element = T::get(tile, place::<N>(row, from) + offset);
                *to.wrapping_add((16 * from + offset) as usize).cast::<T>() = element;
            }
        }
    }
}

/// Loads that a thread has under way at a time, where it goes by elements.
const UNDER_WAY: usize = 8;

/// What there is of a tile, one element at a time, side by side on both ways.
///
/// # Safety
/// As for [`turn`].
#[inline(always)]
unsafe fn elements<T: Element, const N: usize, const WIDE: u32>(job: &Planes, part: &Part<T>, tile: Tile) {
    let Part { rows, columns, .. } = *part;
    let threads = WIDE * HIGH;
    let at = |row: u32, column: u32| place::<N>(column, row / N as u32) + row % N as u32 * size_of::<T>() as u32;
    // SAFETY: reads of registers; then places within the part and the tile.
    unsafe {
        core::hint::assert_unchecked(rows != 0 && columns != 0);
        let thread = _thread_idx_y() as u32 * WIDE + _thread_idx_x() as u32;
        let mut first = thread;
        while first < rows * columns {
            let mut loaded = [core::mem::MaybeUninit::<T>::uninit(); UNDER_WAY];
            for (step, place) in loaded.iter_mut().enumerate() {
                let element = first + step as u32 * threads;
                if element < rows * columns {
                    place.write(*part.row(job, element / columns).cast::<T>().add((element % columns) as usize));
                }
            }
            for (step, place) in loaded.iter().enumerate() {
                let element = first + step as u32 * threads;
                if element < rows * columns {
                    place.assume_init().put(tile, at(element / columns, element % columns));
                }
            }
            first += UNDER_WAY as u32 * threads;
        }
        _syncthreads();
        let mut element = thread;
        while element < rows * columns {
            let (column, row) = (element / rows, element % rows);
            *part.column(job, column).cast::<T>().add(row as usize) = T::get(tile, at(row, column));
            element += threads;
        }
    }
}

macro_rules! transposes {
    ($($name:ident: $kind:ty, $n:literal elements in a line, $wide:literal squares wide;)*) => {$(
        /// Transposes planes of elements of one size.
        ///
        /// # Safety
        /// The job describes memory of this device; `whole` is not zero only where all pitches and starts are multiples
        /// of sixteen bytes. A block is a thread for each square of a tile.
        #[unsafe(no_mangle)]
        unsafe extern "ptx-kernel" fn $name(job: Planes, whole: u32) {
            let tile: u32;
            // SAFETY: the declaration of a variable of this block, and its address; then the caller's contract.
            unsafe {
                asm!(
                    ".shared .align 16 .b8 tile[{}]; mov.u32 {}, tile;",
                    const $n * $wide * PITCH, out(reg32) tile, options(nostack, preserves_flags)
                );
                turn::<$kind, $n, $wide>(&job, whole != 0, Tile(tile))
            }
        }
    )*};
}

transposes! {
    transpose_1: u8, 16 elements in a line, 8 squares wide;
    transpose_2: u16, 8 elements in a line, 16 squares wide;
    transpose_4: u32, 4 elements in a line, 16 squares wide;
    transpose_8: u64, 2 elements in a line, 16 squares wide;
    transpose_16: Sixteen, 1 elements in a line, 16 squares wide;
}
