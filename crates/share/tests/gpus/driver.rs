//! Direct calls of the driver: memory pools, and the controls of the test driver.

use std::ffi::{CStr, c_int, c_void};
use tensorferry_cuda::Gpu;

fn function(name: &CStr) -> *mut c_void {
    // SAFETY: names that end with a zero byte; the driver stays loaded.
    unsafe { libc::dlsym(libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW), name.as_ptr()) }
}

/// Whether this is the test driver, and not a GPU.
pub(crate) fn is_test_driver() -> bool {
    !function(c"testdriver_fail").is_null()
}

/// Makes a call of a function fail, after `after` more that succeed.
pub(crate) fn fail_call(name: &CStr, after: u64, status: c_int) {
    // SAFETY: the test driver has this function, of this type.
    unsafe {
        let fail: extern "C" fn(*const std::ffi::c_char, u64, c_int) =
            std::mem::transmute(function(c"testdriver_fail"));
        fail(name.as_ptr(), after, status);
    }
}

/// The mappings, events and bytes of the test driver; zeros on a GPU.
pub(crate) fn open_resources() -> [usize; 3] {
    if !is_test_driver() {
        return [0; 3];
    }
    [c"testdriver_mappings", c"testdriver_events", c"testdriver_used"].map(|name| {
        // SAFETY: the counting functions of the test driver have no arguments.
        let count: extern "C" fn() -> usize = unsafe { std::mem::transmute(function(name)) };
        count()
    })
}

/// Memory of a pool that supports sharing.
pub(crate) struct PooledMemory {
    pool: *mut c_void,
    address: u64,
}

// SAFETY: handles that the driver takes from any thread.
unsafe impl Send for PooledMemory {}
// SAFETY: as above.
unsafe impl Sync for PooledMemory {}

/// Runs a call with the GPU's context current.
fn with_context<T>(gpu: &Gpu, call: impl FnOnce() -> T) -> T {
    let mut context: *mut c_void = std::ptr::null_mut();
    // SAFETY: functions of the driver, of these types.
    unsafe {
        let retain: extern "C" fn(*mut *mut c_void, c_int) -> c_int =
            std::mem::transmute(function(c"cuDevicePrimaryCtxRetain"));
        let push: extern "C" fn(*mut c_void) -> c_int = std::mem::transmute(function(c"cuCtxPushCurrent_v2"));
        let pop: extern "C" fn(*mut *mut c_void) -> c_int =
            std::mem::transmute(function(c"cuCtxPopCurrent_v2"));
        assert_eq!((retain(&raw mut context, gpu.index()), push(context)), (0, 0));
        let result = call();
        assert_eq!(pop(&raw mut context), 0);
        result
    }
}

impl PooledMemory {
    pub(crate) fn new(gpu: &Gpu, bytes: usize) -> Self {
        let mut properties = [0u64; 16];
        // Pinned memory with descriptors, on the device with this index.
        properties[0] = 1 | 1 << 32;
        properties[1] = 1 | (gpu.index() as u64) << 32;
        let (mut pool, mut address): (*mut c_void, u64) = (std::ptr::null_mut(), 0);
        // SAFETY: functions of the driver, of these types.
        unsafe {
            let create: extern "C" fn(*mut *mut c_void, *const u64) -> c_int =
                std::mem::transmute(function(c"cuMemPoolCreate"));
            let allocate: extern "C" fn(*mut u64, usize, *mut c_void, *mut c_void) -> c_int =
                std::mem::transmute(function(c"cuMemAllocFromPoolAsync"));
            assert_eq!(with_context(gpu, || create(&raw mut pool, properties.as_ptr())), 0);
            assert_eq!(
                with_context(gpu, || allocate(&raw mut address, bytes, pool, std::ptr::null_mut())),
                0
            );
        }
        Self { pool, address }
    }

    pub(crate) fn data(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address as usize)
    }
}

impl Drop for PooledMemory {
    fn drop(&mut self) {
        // SAFETY: functions of the driver, of these types; the memory and the pool are ours.
        unsafe {
            let free: extern "C" fn(u64) -> c_int = std::mem::transmute(function(c"cuMemFree_v2"));
            let destroy: extern "C" fn(*mut c_void) -> c_int =
                std::mem::transmute(function(c"cuMemPoolDestroy"));
            with_context(Gpu::get(0).unwrap(), || (free(self.address), destroy(self.pool)));
        }
    }
}
