//! A library with the names of the CUDA driver, over host memory, for machines without a GPU.
//!
//! There are two devices ([`devices`] says how a test has others). Streams do their work only when somebody waits for it ([`timeline`]), so that a missing wait
//! shows as a wrong value. Every call is counted ([`testdriver_calls`]), any can be made to fail
//! ([`testdriver_fail`]), and waits for everything can be held up ([`testdriver_hold`]), devices can be lost and streams captured. Memory and events go to other processes as with the
//! real driver ([`ipc`]), and what that refuses is refused. It is for tests alone and goes into no wheel.

#![expect(clippy::missing_safety_doc, reason = "the contracts are those of the CUDA driver's documentation")]

mod ipc_event;
#[path = "../../cuda/src/jobs.rs"]
mod jobs;
mod kernels;
mod memfd;
mod timeline;
mod virtual_memory;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use timeline::World;
use virtual_memory::Physical;

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;
const INVALID_DEVICE: c_int = 101;
const INVALID_CONTEXT: c_int = 201;
const CAPTURE_UNSUPPORTED: c_int = 900;
const NOT_FOUND: c_int = 500;
const NOT_READY: c_int = 600;
const INVALID_HANDLE: c_int = 400;

/// The devices that this process sees, by their true numbers: `TENSORFERRY_TESTDRIVER_DEVICES=1,0` turns the two round,
/// and `=1` shows the second alone.
fn devices() -> &'static [usize] {
    static DEVICES: LazyLock<Vec<usize>> = LazyLock::new(|| {
        let text = std::env::var("TENSORFERRY_TESTDRIVER_DEVICES").unwrap_or_else(|_| "0,1".into());
        text.split(',').filter_map(|number| number.parse().ok()).collect()
    });
    &DEVICES
}

/// How long anything is waited for; only a hang takes longer.
const HANG: Duration = Duration::from_secs(120);

/// How much memory each device seems to have.
const TOTAL: usize = 1 << 30;

/// The context of the first device; the others follow.
const CONTEXT: usize = 0xc000;

#[derive(Default)]
struct Driver {
    world: World,
    physical: Physical,
    between: ipc::State,
    calls: HashMap<String, u64>,
    /// What every call answers, once the device is lost.
    lost: Option<c_int>,
    /// Functions that fail for good from that call on.
    lasting: HashSet<String>,
    /// By function: the number of the call that fails, and what it answers.
    faults: HashMap<String, (u64, c_int)>,
    /// Streams that are being captured, and whether a call has broken that off.
    captured: HashSet<usize>,
    broken: bool,
    functions: Vec<String>,
}

thread_local! {
    /// The contexts that a thread has made current, the last one on top.
    static CONTEXTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The device whose context is current.
fn current_device() -> usize {
    CONTEXTS.with_borrow(|contexts| contexts.last().map_or(0, |context| context - CONTEXT))
}

static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(Mutex::default);

fn driver() -> MutexGuard<'static, Driver> {
    DRIVER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver {
    /// What a call answers that a capture does not allow.
    fn break_off(&mut self) -> c_int {
        self.broken = true;
        CAPTURE_UNSUPPORTED
    }
}

/// Counts a call, and gives the status of one that is to fail.
fn enter(name: &str) -> Result<MutexGuard<'static, Driver>, c_int> {
    let mut driver = driver();
    let count = driver.calls.entry(name.to_owned()).or_default();
    *count += 1;
    let count = *count;
    if let Some(status) = driver.lost
        && !name.starts_with("cuGetError")
    {
        return Err(status);
    }
    match driver.faults.get(name) {
        Some(&(number, status)) if number == count || (number < count && driver.lasting.contains(name)) => {
            Err(status)
        }
        _ => Ok(driver),
    }
}

/// How often a function was called.
///
/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn testdriver_calls(name: *const c_char) -> u64 {
    // SAFETY: the caller's contract.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    driver().calls.get(name.as_ref()).copied().unwrap_or(0)
}

/// Makes the call after so many more of a function fail with this status.
///
/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn testdriver_fail(name: *const c_char, after: u64, status: c_int) {
    // SAFETY: the caller's contract.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let mut driver = driver();
    let number = driver.calls.get(&name).copied().unwrap_or(0) + after + 1;
    driver.faults.insert(name, (number, status));
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
        driver().lasting.insert(CStr::from_ptr(name).to_string_lossy().into_owned());
    }
}

/// Loses the devices: every call fails with this status from now on.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_lose(status: c_int) {
    driver().lost = Some(status);
}

/// Begins to capture a stream.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_capture(stream: usize) {
    let mut driver = driver();
    driver.captured.insert(stream);
    driver.broken = false;
}

/// Ends all captures; whether none was broken off by a call that is not allowed meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_end_captures() -> bool {
    let mut driver = driver();
    driver.captured.clear();
    !driver.broken
}

/// Streams on which something is queued that is not done.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_busy() -> usize {
    driver().world.busy()
}

/// Bytes of device memory that are in use.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_used() -> usize {
    let driver = driver();
    driver.world.used() + driver.physical.used()
}

/// What there is of other processes' memory, and of address space, mappings and handles of either.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_mappings() -> usize {
    let driver = driver();
    driver.world.foreign() + driver.physical.count() + driver.between.pools()
}

/// Events that other processes may wait for, and those of theirs.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_events() -> usize {
    driver().world.signals()
}

/// Whether waits for everything are held up, and whether one is held up now. Not below the driver's lock, which the one
/// that waits has.
static HELD: AtomicBool = AtomicBool::new(false);
static WAITS: AtomicBool = AtomicBool::new(false);

/// Holds up every wait for everything until it is called with 0.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_hold(held: c_int) {
    HELD.store(held != 0, Ordering::SeqCst);
}

/// Whether a wait for everything is held up now.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_waits() -> c_int {
    c_int::from(WAITS.load(Ordering::SeqCst))
}

/// Waits until nothing is held up. A test that forgets to let go of it fails by what it counts, and does not hang.
fn wait_while_held() {
    let begin = Instant::now();
    while HELD.load(Ordering::SeqCst) && begin.elapsed() < HANG {
        WAITS.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_micros(200));
    }
    WAITS.store(false, Ordering::SeqCst);
}

/// Ranges of host memory that are registered.
#[unsafe(no_mangle)]
pub extern "C" fn testdriver_registered() -> usize {
    driver().world.registered()
}

/// The functions themselves: each counts its call, may be made to fail, and answers with what its body gives.
macro_rules! functions {
    ($($name:ident($($argument:ident: $kind:ty),*) |$driver:ident| $body:block)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::allow_attributes, reason = "the driver's own names")]
        #[allow(clippy::too_many_arguments, clippy::allow_attributes, reason = "the driver's own")]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            match enter(stringify!($name)) {
                Ok(mut guard) => {
                    #[allow(unused_variables, clippy::allow_attributes, reason = "not every body needs it")]
                    let $driver = &mut *guard;
                    // SAFETY: the caller's contract, which is that of the CUDA driver.
                    #[allow(unused_unsafe, clippy::allow_attributes, reason = "not every body writes")]
                    unsafe { $body }
                }
                Err(status) => status,
            }
        }
    )*};
}

/// Memory and events for other processes, and theirs here.
pub mod ipc;

functions! {
    cuInit(_flags: c_uint) |driver| { SUCCESS }
    cuDriverGetVersion(version: *mut c_int) |driver| { *version = 13000; SUCCESS }
    cuGetErrorName(status: c_int, text: *mut *const c_char) |driver| {
        *text = match status {
            OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
            INVALID_DEVICE => c"CUDA_ERROR_INVALID_DEVICE",
            719 => c"CUDA_ERROR_LAUNCH_FAILED",
            _ => return INVALID_VALUE,
        }
        .as_ptr();
        SUCCESS
    }
    cuGetErrorString(status: c_int, text: *mut *const c_char) |driver| {
        *text = match status {
            OUT_OF_MEMORY => c"out of memory",
            INVALID_DEVICE => c"invalid device ordinal",
            719 => c"unspecified launch failure",
            _ => return INVALID_VALUE,
        }
        .as_ptr();
        SUCCESS
    }
    cuDeviceGetCount(count: *mut c_int) |driver| { *count = devices().len() as c_int; SUCCESS }
    cuDeviceGet(device: *mut c_int, index: c_int) |driver| {
        if !(0..devices().len() as c_int).contains(&index) { return INVALID_DEVICE; }
        *device = index;
        SUCCESS
    }
    cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) |driver| {
        *context = std::ptr::without_provenance_mut(CONTEXT + device as usize);
        SUCCESS
    }
    cuCtxPushCurrent_v2(context: *mut c_void) |driver| {
        CONTEXTS.with_borrow_mut(|contexts| contexts.push(context as usize));
        SUCCESS
    }
    cuCtxPopCurrent_v2(context: *mut *mut c_void) |driver| {
        let popped = CONTEXTS.with_borrow_mut(Vec::pop);
        *context = std::ptr::without_provenance_mut(popped.unwrap_or(0));
        if popped.is_some() { SUCCESS } else { INVALID_CONTEXT }
    }
    cuCtxGetCurrent(context: *mut *mut c_void) |driver| {
        let current = CONTEXTS.with_borrow(|contexts| contexts.last().copied());
        *context = std::ptr::without_provenance_mut(current.unwrap_or(0));
        SUCCESS
    }
    cuCtxSynchronize() |driver| {
        wait_while_held();
        driver.world.finish_all();
        SUCCESS
    }
    cuCtxRecordEvent(_context: *mut c_void, event: *mut c_void) |driver| {
        if !driver.captured.is_empty() { return driver.break_off(); }
        driver.world.record_all(event as usize);
        SUCCESS
    }
    cuCtxWaitEvent(_context: *mut c_void, event: *mut c_void) |driver| {
        if !driver.captured.is_empty() { return driver.break_off(); }
        driver.world.wait_all(event as usize);
        SUCCESS
    }
    cuStreamCreate(stream: *mut *mut c_void, _flags: c_uint) |driver| {
        *stream = std::ptr::without_provenance_mut(driver.world.handle());
        SUCCESS
    }
    cuThreadExchangeStreamCaptureMode(_mode: *mut c_int) |driver| { SUCCESS }
    cuStreamQuery(stream: *mut c_void) |driver| {
        if driver.captured.contains(&(stream as usize)) { return driver.break_off(); }
        if driver.world.is_idle(stream as usize) { SUCCESS } else { NOT_READY }
    }
    cuStreamSynchronize(stream: *mut c_void) |driver| {
        if driver.captured.contains(&(stream as usize)) { return driver.break_off(); }
        driver.world.finish(stream as usize);
        SUCCESS
    }
    cuStreamWaitEvent(stream: *mut c_void, event: *mut c_void, _flags: c_uint) |driver| {
        // A captured stream waits for none that is not.
        let outside = driver.world.streams_of(event as usize).iter().any(|other| !driver.captured.contains(other));
        if driver.captured.contains(&(stream as usize)) && outside { return driver.break_off(); }
        driver.world.wait(stream as usize, event as usize);
        SUCCESS
    }
    cuStreamIsCapturing(stream: *mut c_void, state: *mut c_int) |driver| {
        *state = c_int::from(driver.captured.contains(&(stream as usize)));
        SUCCESS
    }
    cuEventCreate(event: *mut *mut c_void, flags: c_uint) |driver| {
        let handle = driver.world.handle();
        // For other processes, and then without times.
        if flags & 4 != 0 {
            if flags & 2 == 0 { return INVALID_VALUE; }
            let Some(signal) = ipc_event::Signal::new() else { return OUT_OF_MEMORY };
            driver.world.signal(handle, signal);
        }
        *event = std::ptr::without_provenance_mut(handle);
        SUCCESS
    }
    cuEventRecord(event: *mut c_void, stream: *mut c_void) |driver| {
        if driver.world.is_opened(event as usize) { return INVALID_HANDLE; }
        driver.world.record(event as usize, stream as usize);
        if driver.world.signal_of(event as usize).is_some() { ipc::do_soon(event as usize); }
        SUCCESS
    }
    cuEventQuery(event: *mut c_void) |driver| {
        if driver.world.is_over(event as usize) { SUCCESS } else { NOT_READY }
    }
    cuEventSynchronize(event: *mut c_void) |driver| { driver.world.finish_event(event as usize); SUCCESS }
    cuEventDestroy_v2(event: *mut c_void) |driver| { driver.world.destroy(event as usize); SUCCESS }
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |driver| {
        *free = TOTAL.saturating_sub(driver.world.used() + driver.physical.used());
        *total = TOTAL;
        SUCCESS
    }
    cuMemAlloc_v2(address: *mut u64, bytes: usize) |driver| {
        if bytes == 0 { return INVALID_VALUE; }
        allocate(driver, address, bytes, false)
    }
    cuMemAllocAsync(address: *mut u64, bytes: usize, _stream: *mut c_void) |driver| {
        if bytes == 0 { return INVALID_VALUE; }
        allocate(driver, address, bytes, true)
    }
    cuMemFreeAsync(address: u64, stream: *mut c_void) |driver| {
        let Some(overwrite) = driver.world.free(address as usize) else { return INVALID_VALUE };
        driver.world.queue(stream as usize, overwrite);
        SUCCESS
    }
    cuMemFree_v2(address: u64) |driver| {
        free(driver, address as usize)
    }
    cuMemHostAlloc(data: *mut *mut c_void, bytes: usize, _flags: c_uint) |driver| {
        let Some(start) = driver.world.allocate(bytes, None, false) else { return OUT_OF_MEMORY };
        *data = std::ptr::with_exposed_provenance_mut(start);
        SUCCESS
    }
    cuMemFreeHost(data: *mut c_void) |driver| {
        free(driver, data as usize)
    }
    cuMemHostRegister_v2(data: *mut c_void, bytes: usize, _flags: c_uint) |driver| {
        if driver.world.register(data as usize, bytes) { SUCCESS } else { INVALID_VALUE }
    }
    cuMemHostUnregister(data: *mut c_void) |driver| {
        if driver.world.unregister(data as usize) { SUCCESS } else { INVALID_VALUE }
    }
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) |driver| {
        copy(driver, to as usize, from as usize, bytes, stream)
    }
    cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: *mut c_void) |driver| {
        copy(driver, to as usize, from as usize, bytes, stream)
    }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: *mut c_void) |driver| {
        copy(driver, to as usize, from as usize, bytes, stream)
    }
    cuMemcpyPeerAsync(
        to: u64, _to_context: *mut c_void, from: u64, _from_context: *mut c_void, bytes: usize, stream: *mut c_void
    ) |driver| {
        copy(driver, to as usize, from as usize, bytes, stream)
    }
    cuModuleLoadData(module: *mut *mut c_void, _image: *const c_void) |driver| {
        *module = std::ptr::without_provenance_mut(driver.world.handle());
        SUCCESS
    }
    cuModuleGetFunction(function: *mut *mut c_void, _module: *mut c_void, name: *const c_char) |driver| {
        let name = CStr::from_ptr(name).to_string_lossy().into_owned();
        if !kernels::is_known(&name) { return NOT_FOUND; }
        driver.functions.push(name);
        *function = std::ptr::without_provenance_mut(driver.functions.len());
        SUCCESS
    }
    cuLaunchKernel(
        function: *mut c_void, _x: c_uint, _y: c_uint, planes: c_uint, _wide: c_uint, _high: c_uint, _deep: c_uint,
        _shared: c_uint, stream: *mut c_void, arguments: *mut *mut c_void, _extra: *mut *mut c_void
    ) |driver| {
        let Some(name) = driver.functions.get((function as usize).wrapping_sub(1)) else { return INVALID_VALUE };
        let work = kernels::work(name, planes, arguments);
        driver.world.queue(stream as usize, work);
        SUCCESS
    }
}

/// Device memory, for work in the order of a stream or not.
///
/// # Safety
/// A place for the address.
unsafe fn allocate(driver: &mut Driver, address: *mut u64, bytes: usize, pool: bool) -> c_int {
    if driver.world.used() + driver.physical.used() + bytes > TOTAL {
        return OUT_OF_MEMORY;
    }
    let Some(start) = driver.world.allocate(bytes, Some(current_device()), pool) else {
        return OUT_OF_MEMORY;
    };
    // SAFETY: the caller's contract.
    unsafe { *address = start as u64 };
    SUCCESS
}

/// Gives memory back at once.
fn free(driver: &mut Driver, address: usize) -> c_int {
    let Some(overwrite) = driver.world.free(address) else { return INVALID_VALUE };
    overwrite();
    SUCCESS
}

/// Queues a copy.
fn copy(driver: &mut Driver, to: usize, from: usize, bytes: usize, stream: *mut c_void) -> c_int {
    let work = Box::new(move || {
        let from: *const u8 = std::ptr::with_exposed_provenance(from);
        // SAFETY: what the caller of the driver vouched for: both are there until the stream is past this.
        unsafe { from.copy_to(std::ptr::with_exposed_provenance_mut(to), bytes) }
    });
    driver.world.queue(stream as usize, work);
    SUCCESS
}
