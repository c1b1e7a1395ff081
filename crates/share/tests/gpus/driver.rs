//! What the tests ask of the driver itself: pools, and of the stand-in that calls fail.

use std::ffi::{CStr, c_int, c_void};
use tensorferry_cuda::Gpu;

fn function(name: &CStr) -> *mut c_void {
    // SAFETY: names that end with a zero byte; the driver stays loaded.
    unsafe { libc::dlsym(libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW), name.as_ptr()) }
}

/// Whether this is the stand-in, and not a GPU.
pub(crate) fn is_stand_in() -> bool {
    !function(c"testdriver_fail").is_null()
}

/// Makes the call after so many more of a function fail.
pub(crate) fn fail(name: &CStr, after: u64, status: c_int) {
    // SAFETY: the stand-in has this function, of this type.
    unsafe {
        let fail: extern "C" fn(*const std::ffi::c_char, u64, c_int) =
            std::mem::transmute(function(c"testdriver_fail"));
        fail(name.as_ptr(), after, status);
    }
}

/// All that is open in the stand-in: mappings and such, events, bytes; zeros on a GPU.
pub(crate) fn open() -> [usize; 3] {
    if !is_stand_in() {
        return [0; 3];
    }
    [c"testdriver_mappings", c"testdriver_events", c"testdriver_used"].map(|name| {
        // SAFETY: the stand-in's functions that count take nothing.
        let count: extern "C" fn() -> usize = unsafe { std::mem::transmute(function(name)) };
        count()
    })
}

/// Memory out of a pool that was made for other processes.
pub(crate) struct Pooled {
    pool: *mut c_void,
    address: u64,
}

// SAFETY: handles that the driver takes from any thread.
unsafe impl Send for Pooled {}
// SAFETY: as above.
unsafe impl Sync for Pooled {}

/// Has the GPU's context current for a call.
fn within<T>(gpu: &Gpu, call: impl FnOnce() -> T) -> T {
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

impl Pooled {
    pub(crate) fn new(gpu: &Gpu, bytes: usize) -> Self {
        let mut properties = [0u64; 16];
        // Pinned, with descriptors; of a device, of this number.
        properties[0] = 1 | 1 << 32;
        properties[1] = 1 | (gpu.index() as u64) << 32;
        let (mut pool, mut address): (*mut c_void, u64) = (std::ptr::null_mut(), 0);
        // SAFETY: functions of the driver, of these types.
        unsafe {
            let create: extern "C" fn(*mut *mut c_void, *const u64) -> c_int =
                std::mem::transmute(function(c"cuMemPoolCreate"));
            let allocate: extern "C" fn(*mut u64, usize, *mut c_void, *mut c_void) -> c_int =
                std::mem::transmute(function(c"cuMemAllocFromPoolAsync"));
            assert_eq!(within(gpu, || create(&raw mut pool, properties.as_ptr())), 0);
            assert_eq!(within(gpu, || allocate(&raw mut address, bytes, pool, std::ptr::null_mut())), 0);
        }
        Self { pool, address }
    }

    pub(crate) fn data(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address as usize)
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        // SAFETY: functions of the driver, of these types; the memory and the pool are ours.
        unsafe {
            let free: extern "C" fn(u64) -> c_int = std::mem::transmute(function(c"cuMemFree_v2"));
            let destroy: extern "C" fn(*mut c_void) -> c_int =
                std::mem::transmute(function(c"cuMemPoolDestroy"));
            within(Gpu::get(0).unwrap(), || (free(self.address), destroy(self.pool)));
        }
    }
}
