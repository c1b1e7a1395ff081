//! Functions by which tests observe and control the driver.

use crate::ipc_event::HANG_TIMEOUT;
use crate::state::lock;
use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a held wait checks whether it may go on.
const HOLD_POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Defines functions whose first argument is the name of a driver function.
macro_rules! functions_by_name {
    ($($(#[$doc:meta])* $function:ident($name:ident $(, $argument:ident: $kind:ty)*) -> $result:ty $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// The name ends with NUL, and does not change during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(name: *const std::ffi::c_char $(, $argument: $kind)*) -> $result {
            // SAFETY: `from_ptr` reads up to the NUL, which is this function's contract. The string is used during the
            // call only.
            let $name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
            $body
        }
    )*};
}

functions_by_name! {
    /// The number of calls of a function.
    testdriver_calls(name) -> u64 { lock().calls.counts.get(&name).copied().unwrap_or(0) }

    /// Makes one call of a function fail with this status: the next one, or the one after `after` more.
    testdriver_fail(name, after: u64, status: c_int) -> () { lock().calls.fail(name, after, status) }

    /// Makes every call of a function fail with this status from now on.
    testdriver_fail_for_good(name, status: c_int) -> () {
        let calls = &mut lock().calls;
        calls.permanent_failures.insert(name.clone());
        calls.fail(name, 0, status);
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
