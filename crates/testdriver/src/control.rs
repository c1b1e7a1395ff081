//! Functions by which tests observe and control the driver.

use crate::ipc_event::HANG_TIMEOUT;
use crate::state::lock;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a held wait checks whether it may go on.
const HOLD_POLL_INTERVAL: Duration = Duration::from_micros(200);

/// The number of calls of a function.
///
/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn testdriver_calls(name: *const c_char) -> u64 {
    // SAFETY: the caller's contract.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    lock().calls.counts.get(name.as_ref()).copied().unwrap_or(0)
}

/// Makes one call of a function fail with this status: the next one, or the one after `after` more.
///
/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn testdriver_fail(name: *const c_char, after: u64, status: c_int) {
    // SAFETY: the caller's contract.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let calls = &mut lock().calls;
    let failing = calls.counts.get(&name).copied().unwrap_or(0) + after + 1;
    calls.failures.insert(name, (failing, status));
}

/// Makes every call of a function fail with this status from now on.
///
/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn testdriver_fail_for_good(name: *const c_char, status: c_int) {
    // SAFETY: the caller's contract, twice.
    unsafe {
        testdriver_fail(name, 0, status);
        lock().calls.permanent_failures.insert(CStr::from_ptr(name).to_string_lossy().into_owned());
    }
}

/// Loses the devices: every call fails with this status from now on.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_lose(status: c_int) {
    lock().calls.lost_status = Some(status);
}

/// Begins to capture a stream.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_capture(stream: usize) {
    let capture = &mut lock().capture;
    capture.streams.insert(stream);
    capture.is_invalidated = false;
}

/// Ends all captures. Returns whether no forbidden call has invalidated one.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_end_captures() -> bool {
    let capture = &mut lock().capture;
    capture.streams.clear();
    !capture.is_invalidated
}

/// The number of streams with work that has not run.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_busy() -> usize {
    lock().timeline.busy_streams()
}

/// Bytes of device memory in use.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_used() -> usize {
    lock().used_bytes()
}

/// The number of imported blocks, physical memory handles, address reservations, mappings and pools.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_mappings() -> usize {
    let driver = lock();
    driver.memory.imported_count() + driver.virtual_memory.count() + driver.pools.len()
}

/// The number of interprocess events, of this and other processes.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_events() -> usize {
    lock().timeline.ipc_event_count()
}

/// The number of registered ranges of host memory.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_registered() -> usize {
    lock().memory.registered_count()
}

/// Whether context waits are held, and whether one is held now. Outside of the driver's lock, which the waiting thread has.
static IS_HELD: AtomicBool = AtomicBool::new(false);
static IS_WAITING: AtomicBool = AtomicBool::new(false);

/// Holds every `cuCtxSynchronize` until this is called with 0.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_hold(held: c_int) {
    IS_HELD.store(held != 0, Ordering::SeqCst);
}

/// Whether a `cuCtxSynchronize` is held now.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_waits() -> c_int {
    c_int::from(IS_WAITING.load(Ordering::SeqCst))
}

/// Waits while context waits are held. A test that never ends the hold fails its own counts, and does not hang.
pub(crate) fn wait_while_held() {
    let begin = Instant::now();
    while IS_HELD.load(Ordering::SeqCst) && begin.elapsed() < HANG_TIMEOUT {
        IS_WAITING.store(true, Ordering::SeqCst);
        std::thread::sleep(HOLD_POLL_INTERVAL);
    }
    IS_WAITING.store(false, Ordering::SeqCst);
}
