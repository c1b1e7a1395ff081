//! The state of the driver, its lock, and the macro that defines the driver's functions.

use crate::ipc_event::COMPLETION_DELAY;
use crate::memfd::MemfdAllocator;
use crate::memory::MemoryTable;
use crate::status::CAPTURE_UNSUPPORTED;
use crate::timeline::Timeline;
use crate::virtual_memory::VirtualMemory;
use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Everything that the driver knows.
#[derive(Default)]
pub(crate) struct Driver {
    pub(crate) timeline: Timeline,
    pub(crate) memory: MemoryTable,
    pub(crate) virtual_memory: VirtualMemory,
    /// Legacy handles that are open here: the address, and how often it was opened.
    pub(crate) legacy_imports: HashMap<[u8; 64], (usize, usize)>,
    pub(crate) pools: HashMap<usize, MemoryPool>,
    /// The names of loaded kernels; a function handle is an index from 1.
    pub(crate) kernels: Vec<String>,
    pub(crate) capture: Capture,
    pub(crate) calls: CallControl,
}

/// A pool that the program created.
pub(crate) struct MemoryPool {
    /// The physical index of its device.
    pub(crate) device: usize,
    pub(crate) is_exportable: bool,
    pub(crate) files: MemfdAllocator,
}

/// Stream captures.
#[derive(Default)]
pub(crate) struct Capture {
    pub(crate) streams: HashSet<usize>,
    /// Whether a forbidden call has invalidated a capture.
    pub(crate) is_invalidated: bool,
}

/// Counts of calls, and the errors that a test injects.
#[derive(Default)]
pub(crate) struct CallControl {
    pub(crate) counts: HashMap<String, u64>,
    /// By function: the index of the call that fails, and its status.
    pub(crate) failures: HashMap<String, (u64, c_int)>,
    /// Functions whose later calls fail too.
    pub(crate) permanent_failures: HashSet<String>,
    /// The status of every call, once the devices are lost.
    pub(crate) lost_status: Option<c_int>,
}

impl CallControl {
    /// Makes one call of a function fail: the next one, or the one after `after` more.
    pub(crate) fn fail(&mut self, function: String, after: u64, status: c_int) {
        let failing = self.counts.get(&function).copied().unwrap_or(0) + after + 1;
        self.failures.insert(function, (failing, status));
    }
}

impl Capture {
    /// Whether a stream is captured.
    pub(crate) fn contains(&self, stream: usize) -> bool {
        self.streams.contains(&stream)
    }

    /// Invalidates the captures, and returns the status of the call that a capture forbids.
    pub(crate) fn invalidate(&mut self) -> c_int {
        self.is_invalidated = true;
        CAPTURE_UNSUPPORTED
    }
}

impl Driver {
    /// Bytes of device memory in use, without that of other processes.
    pub(crate) fn used_bytes(&self) -> usize {
        self.memory.used_bytes() + self.virtual_memory.used_bytes()
    }
}

/// Locks the driver.
pub(crate) fn lock() -> MutexGuard<'static, Driver> {
    static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(Mutex::default);
    DRIVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a call and locks the driver; returns the status of a call that fails.
pub(crate) fn begin_call(function: &str) -> Result<MutexGuard<'static, Driver>, c_int> {
    let mut driver = lock();
    let calls = &mut driver.calls;
    let count = calls.counts.entry(function.to_owned()).or_default();
    *count += 1;
    let count = *count;
    if let Some(status) = calls.lost_status
        && !function.starts_with("cuGetError")
    {
        return Err(status);
    }
    match calls.failures.get(function) {
        Some(&(failing, status))
            if failing == count || (failing < count && calls.permanent_failures.contains(function)) =>
        {
            Err(status)
        }
        _ => Ok(driver),
    }
}

/// Completes an event after a delay, as a GPU does without being waited for. If `TENSORFERRY_TESTDRIVER_STALLED` is set, the
/// event never completes.
pub(crate) fn complete_after_delay(event: usize) {
    if std::env::var_os("TENSORFERRY_TESTDRIVER_STALLED").is_some() {
        return;
    }
    let _ = std::thread::Builder::new().name("testdriver".into()).spawn(move || {
        std::thread::sleep(COMPLETION_DELAY);
        lock().timeline.finish_event(event);
    });
}

/// Defines functions of the driver. Each counts its call, may be made to fail, and returns the status of its body.
macro_rules! driver_functions {
    ($($name:ident($($argument:ident: $kind:ty),*) |$driver:ident| $body:block)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::allow_attributes, reason = "the name is the driver's")]
        #[allow(clippy::too_many_arguments, clippy::allow_attributes, reason = "the signature is the driver's")]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> std::ffi::c_int {
            match $crate::state::begin_call(stringify!($name)) {
                Ok(mut guard) => {
                    #[allow(unused_variables, clippy::allow_attributes, reason = "some bodies do not use it")]
                    let $driver = &mut *guard;
                    // SAFETY: the bodies read and write through their pointer arguments, and queue work on the memory that the
                    // arguments describe. `cuda.h` says what each pointer must point to, and that the memory stays valid until
                    // the stream has passed the work; this function's contract is the same.
                    #[allow(unused_unsafe, clippy::allow_attributes, reason = "some bodies write nothing")]
                    unsafe { $body }
                }
                Err(status) => status,
            }
        }
    )*};
}

pub(crate) use driver_functions;
