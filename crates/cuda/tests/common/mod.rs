//! Helpers that the tests share: the test driver's control functions, and copies between host and GPU.

#![allow(dead_code, clippy::allow_attributes, reason = "no test uses all of them")]

use libloading::Library;
use std::ffi::{CStr, c_char, c_int};
use std::sync::LazyLock;
use tensorferry_core::{ByteOrder, DType, Layout, Result};
use tensorferry_cuda::ipc::GpuArena;
use tensorferry_cuda::{
    DeviceBlock, DeviceSource, Gpu, HostDestination, RingOptions, Stream, SyncPoint, TransferControl,
    TransferPath,
};

/// The functions by which tests control the test driver.
struct Control {
    fail: unsafe extern "C" fn(*const c_char, u64, c_int),
    calls: unsafe extern "C" fn(*const c_char) -> u64,
    mappings: extern "C" fn() -> usize,
    events: extern "C" fn() -> usize,
    used: extern "C" fn() -> usize,
    _library: Library,
}

static CONTROL: LazyLock<Control> = LazyLock::new(|| {
    let is_missing = "libcuda.so.1 is not the test driver: run `make test-rust`";
    // SAFETY: `get` needs the types of the symbols, which are those of `crates/testdriver/src/control.rs`. The struct
    // keeps the library loaded. The initialisers of the test driver do nothing.
    unsafe {
        let library = Library::new("libcuda.so.1").expect(is_missing);
        Control {
            fail: *library.get("testdriver_fail").expect(is_missing),
            calls: *library.get("testdriver_calls").expect(is_missing),
            mappings: *library.get("testdriver_mappings").expect(is_missing),
            events: *library.get("testdriver_events").expect(is_missing),
            used: *library.get("testdriver_used").expect(is_missing),
            _library: library,
        }
    }
});

/// Makes one call of a driver function fail: the next one, or a later one.
pub(crate) fn fail(name: &CStr, after: u64, status: c_int) {
    // SAFETY: `testdriver_fail` reads the name up to its NUL.
    unsafe { (CONTROL.fail)(name.as_ptr(), after, status) }
}

/// The number of calls of a driver function.
pub(crate) fn calls(name: &CStr) -> u64 {
    // SAFETY: `testdriver_calls` reads the name up to its NUL.
    unsafe { (CONTROL.calls)(name.as_ptr()) }
}

/// What the driver holds: mappings and handles, interprocess events, bytes.
pub(crate) fn driver_counts() -> (usize, usize, usize) {
    ((CONTROL.mappings)(), (CONTROL.events)(), (CONTROL.used)())
}

pub(crate) fn gpu() -> &'static Gpu {
    Gpu::get(0).expect("the test driver: run `make test-rust`")
}

const RING: RingOptions = RingOptions { threads: 2, chunk: 256 << 10, saves_memory: false, batched: false };

/// GPU memory that one value owns.
pub(crate) trait GpuMemory {
    fn start(&self) -> *mut u8;
    fn size(&self) -> usize;
}

impl GpuMemory for DeviceBlock {
    fn start(&self) -> *mut u8 {
        self.data()
    }

    fn size(&self) -> usize {
        self.bytes()
    }
}

impl GpuMemory for GpuArena {
    fn start(&self) -> *mut u8 {
        self.data()
    }

    fn size(&self) -> usize {
        self.bytes()
    }
}

/// Bytes as a tensor.
pub(crate) fn byte_source(data: *const u8, layout: &Layout) -> DeviceSource<'_> {
    DeviceSource { data, dtype: DType::UInt8, layout, order: ByteOrder::Native }
}

/// Uploads bytes to the start of the memory.
pub(crate) fn upload(gpu: &'static Gpu, bytes: &[u8], to: &impl GpuMemory, stream: Stream) -> Result<()> {
    assert!(bytes.len() <= to.size());
    let layout = Layout::dense(1, &[bytes.len() as i64])?;
    let source = byte_source(bytes.as_ptr(), &layout);
    // SAFETY: source and target have `bytes.len()` bytes, which the assertion checks for the target. Both are borrowed
    // until the call returns, and `RING` does not batch.
    unsafe { gpu.upload(&source, to.start(), DType::UInt8, stream, RING, &TransferControl::default()) }
}

/// Downloads the first bytes of the memory, after the work of a stream.
pub(crate) fn download(
    gpu: &'static Gpu,
    from: &impl GpuMemory,
    count: usize,
    stream: Stream,
) -> Result<Vec<u8>> {
    assert!(count <= from.size());
    let (layout, mut bytes) = (Layout::dense(1, &[count as i64])?, vec![0; count]);
    let source = byte_source(from.start(), &layout);
    let to = HostDestination { data: bytes.as_mut_ptr(), dtype: DType::UInt8, layout: &layout };
    let (ready_after, control) = (SyncPoint::Stream(stream), TransferControl::default());
    // SAFETY: source and destination have `count` bytes, which the assertion checks for the source. Both live until the call
    // returns.
    unsafe { gpu.download(&source, &to, ready_after, TransferPath::Driver, &control)? };
    Ok(bytes)
}
