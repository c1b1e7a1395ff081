//! Direct calls of the driver, and of the functions of `tensorferry_cuda` whose contract the compiler cannot check.

use std::any::Any;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use tensorferry_core::{ByteOrder, DType, Layout, Result};
use tensorferry_cuda::ipc::{Allocation, GpuArena};
use tensorferry_cuda::{
    DeviceBlock, DeviceSource, Gpu, HostDestination, RingOptions, Stream, SyncPoint, TransferControl,
    TransferPath,
};
use tensorferry_share::{
    Publication, PublishOptions, PublishedTensor, ReadyState, SharedMemory, publish_after,
};

/// A function of the driver, or null.
fn find_function(name: &CStr) -> *mut c_void {
    // SAFETY: `dlopen` and `dlsym` require names that end with a zero byte, as `CStr` does, and `dlsym` a library that
    // is loaded. Nothing closes the driver.
    unsafe { libc::dlsym(libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW), name.as_ptr()) }
}

/// A function of the driver.
///
/// # Safety
/// `Function` is a pointer to a function of the type that the driver documents for this name.
unsafe fn function<Function: Copy>(name: &CStr) -> Function {
    let address = find_function(name);
    assert!(!address.is_null() && size_of::<Function>() == size_of_val(&address), "{name:?}");
    // SAFETY: `transmute_copy` requires that the bits of `address` are a valid `Function`. The assertion compared the
    // sizes and excluded null, and the caller promises the type.
    unsafe { std::mem::transmute_copy(&address) }
}

/// Whether this is the test driver, and not a GPU.
pub(crate) fn is_test_driver() -> bool {
    !find_function(c"testdriver_fail").is_null()
}

/// Makes a call of a function of the test driver fail, after `after` more that succeed.
pub(crate) fn fail_call(name: &CStr, after: u64, status: c_int) {
    // SAFETY: `function` requires the type in `crates/testdriver`. `testdriver_fail` reads `name` until its zero byte.
    unsafe {
        function::<extern "C" fn(*const c_char, u64, c_int)>(c"testdriver_fail")(name.as_ptr(), after, status)
    };
}

/// The mappings, events and bytes of the test driver; zeros on a GPU.
pub(crate) fn open_resources() -> [usize; 3] {
    if !is_test_driver() {
        return [0; 3];
    }
    [c"testdriver_mappings", c"testdriver_events", c"testdriver_used"].map(|name| {
        // SAFETY: `function` requires the type in `crates/testdriver`: these three take nothing and return a count.
        unsafe { function::<extern "C" fn() -> usize>(name)() }
    })
}

/// Memory of a pool that supports sharing.
pub(crate) struct PooledMemory {
    gpu: &'static Gpu,
    /// The handle of the pool.
    pool: usize,
    address: u64,
}

/// Runs a call with the GPU's context current.
fn with_context<T>(gpu: &Gpu, call: impl FnOnce() -> T) -> T {
    let mut context: *mut c_void = std::ptr::null_mut();
    // SAFETY: `function` requires the types of `cuda.h`. The first call writes a handle through its pointer to `context`,
    // the second takes that handle.
    unsafe {
        let retain: extern "C" fn(*mut *mut c_void, c_int) -> c_int = function(c"cuDevicePrimaryCtxRetain");
        let push: extern "C" fn(*mut c_void) -> c_int = function(c"cuCtxPushCurrent_v2");
        assert_eq!((retain(&raw mut context, gpu.index()), push(context)), (0, 0));
    }
    let result = call();
    // SAFETY: `function` requires the type of `cuda.h`. The call writes a handle through its pointer to `context`.
    let status = unsafe {
        function::<extern "C" fn(*mut *mut c_void) -> c_int>(c"cuCtxPopCurrent_v2")(&raw mut context)
    };
    assert_eq!(status, 0);
    result
}

impl PooledMemory {
    pub(crate) fn new(gpu: &'static Gpu, bytes: usize) -> Self {
        let mut properties = [0u64; 16];
        // Pinned memory with descriptors, on the device with this index.
        properties[0] = 1 | 1 << 32;
        properties[1] = 1 | (gpu.index() as u64) << 32;
        let (mut pool, mut address) = (0usize, 0u64);
        // SAFETY: `function` requires the types of `cuda.h`, in which a handle is as wide as `usize`. The calls write
        // `pool` and `address`, and read `properties`, which is longer than `CUmemPoolProps` (88 bytes).
        let statuses = with_context(gpu, || unsafe {
            let create: extern "C" fn(*mut usize, *const u64) -> c_int = function(c"cuMemPoolCreate");
            let allocate: extern "C" fn(*mut u64, usize, usize, usize) -> c_int =
                function(c"cuMemAllocFromPoolAsync");
            (create(&raw mut pool, properties.as_ptr()), allocate(&raw mut address, bytes, pool, 0))
        });
        assert_eq!(statuses, (0, 0));
        Self { gpu, pool, address }
    }

    pub(crate) fn data(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address as usize)
    }
}

impl Drop for PooledMemory {
    fn drop(&mut self) {
        // SAFETY: `function` requires the types of `cuda.h`. The memory and the pool are those that `new` created, and
        // this is their only owner.
        with_context(self.gpu, || unsafe {
            function::<extern "C" fn(u64) -> c_int>(c"cuMemFree_v2")(self.address);
            function::<extern "C" fn(usize) -> c_int>(c"cuMemPoolDestroy")(self.pool);
        });
    }
}

const RING_OPTIONS: RingOptions =
    RingOptions { threads: 2, chunk: 256 << 10, saves_memory: false, batched: false };

/// Writes GPU memory and waits for the copy.
///
/// # Safety
/// `to` is memory of this GPU of that length, and stays allocated until this returns.
unsafe fn upload(gpu: &'static Gpu, to: *mut u8, bytes: &[u8]) -> Result<()> {
    let layout = Layout::dense(1, &[bytes.len() as i64])?;
    let source =
        DeviceSource { data: bytes.as_ptr(), dtype: DType::UInt8, layout: &layout, order: ByteOrder::Native };
    // SAFETY: `upload` requires a readable source, which is `bytes`, room at `to`, which the caller promises, and no
    // other user: the tests write while nothing reads. The default stream is one of every GPU, and `AllStreams` names none.
    unsafe {
        gpu.upload(&source, to, DType::UInt8, Stream::LEGACY, RING_OPTIONS, &TransferControl::default())?;
        gpu.wait(SyncPoint::AllStreams)
    }
}

/// The GPU memory behind a value, and the address of `count` bytes at an offset in it.
fn gpu_bytes(memory: &SharedMemory, offset: usize, count: usize) -> (&'static Gpu, *mut u8) {
    assert!(offset.checked_add(count).is_some_and(|end| end <= memory.bytes()));
    assert!(matches!(memory, SharedMemory::Gpu(_)));
    (Gpu::get(memory.device().index).unwrap(), memory.data().wrapping_add(offset))
}

/// Writes GPU memory and waits for the copy.
pub(crate) fn write(memory: &SharedMemory, offset: usize, bytes: &[u8]) -> Result<()> {
    let (gpu, to) = gpu_bytes(memory, offset, bytes.len());
    // SAFETY: `upload` requires memory of `gpu` of that length: `gpu_bytes` checked both, and `memory` keeps it.
    unsafe { upload(gpu, to, bytes) }
}

/// Reads GPU memory, on a stream that waits for no other.
pub(crate) fn read(memory: &SharedMemory, offset: usize, count: usize) -> Result<Vec<u8>> {
    let (gpu, from) = gpu_bytes(memory, offset, count);
    let (layout, mut bytes) = (Layout::dense(1, &[count as i64])?, vec![0; count]);
    let source = DeviceSource { data: from, dtype: DType::UInt8, layout: &layout, order: ByteOrder::Native };
    let to = HostDestination { data: bytes.as_mut_ptr(), dtype: DType::UInt8, layout: &layout };
    let ready_after = SyncPoint::Stream(gpu.sync_stream()?);
    // SAFETY: `download` requires a source of this GPU, which `gpu_bytes` checked and `memory` keeps, and a destination
    // of the same shape that nobody else uses, which is `bytes`. The stream is the GPU's own, and never destroyed.
    unsafe { gpu.download(&source, &to, ready_after, TransferPath::Driver, &TransferControl::default())? };
    Ok(bytes)
}

/// Waits for all work that is queued on a GPU.
pub(crate) fn wait_for_all(gpu: &Gpu) -> Result<()> {
    // SAFETY: `wait` requires that the stream is alive. `AllStreams` names none.
    unsafe { gpu.wait(SyncPoint::AllStreams) }
}

/// Makes [`read`] wait until attached tensors are ready.
pub(crate) fn order_reads(ready: &ReadyState) -> Result<()> {
    let stream = ready.gpu().sync_stream()?;
    // SAFETY: `order` requires a stream of this GPU that is alive. The stream is the GPU's own, and never destroyed.
    unsafe { ready.order(SyncPoint::Stream(stream)) }
}

/// Memory that can be exported.
pub(crate) enum Exportable {
    /// Legacy memory.
    Block(Arc<DeviceBlock>),
    /// Memory with a shareable handle.
    Arena(Arc<GpuArena>),
    /// Memory of a pool, which cannot be exported.
    Pool(Arc<PooledMemory>),
}

/// Exports memory, as the memory of another library is.
pub(crate) fn export(memory: Exportable) -> Result<Arc<GpuArena>> {
    let (data, owner): (*mut u8, Box<dyn Any + Send + Sync>) = match memory {
        Exportable::Block(block) => (block.data(), Box::new(block)),
        Exportable::Arena(arena) => (arena.data(), Box::new(arena)),
        Exportable::Pool(memory) => (memory.data(), Box::new(memory)),
    };
    // SAFETY: `export` requires that the allocation stays as it is while the owner lives. Every owner allocated
    // the memory at `data`, and frees it when it is dropped.
    unsafe { Allocation::of(data)?.export(owner) }
}

/// Publishes tensors for which nothing is queued.
pub(crate) fn publish_ready(tensors: &[PublishedTensor], options: &PublishOptions) -> Result<Publication> {
    // SAFETY: `publish_after` requires that the streams are alive. No stream is named.
    unsafe { publish_after(tensors, b"", options, &[]) }
}

/// Publishes tensors that are ready after the work on a stream: the default stream, or that of the GPU.
pub(crate) fn publish_after_stream(
    tensors: &[PublishedTensor],
    gpu: &'static Gpu,
    stream: Stream,
) -> Result<Publication> {
    assert!(stream == Stream::LEGACY || stream == gpu.sync_stream()?);
    // SAFETY: `publish_after` requires that the stream is alive, and belongs to `gpu` or is a default stream, which the
    // assertion checks. Neither stream is ever destroyed.
    unsafe { publish_after(tensors, b"", &PublishOptions::default(), &[(gpu, SyncPoint::Stream(stream))]) }
}

/// A block whose first bytes are copied elsewhere by queued work.
pub(crate) struct CopySource {
    gpu: &'static Gpu,
    block: DeviceBlock,
}

impl CopySource {
    /// A block of `bytes` bytes that begins with `text`.
    pub(crate) fn new(gpu: &'static Gpu, bytes: usize, text: &[u8]) -> Self {
        assert!(text.len() <= bytes);
        // The block waits for this stream before it is freed.
        let block = DeviceBlock::new_exportable(gpu, bytes, gpu.sync_stream().unwrap()).unwrap();
        // SAFETY: `upload` requires memory of `gpu` of that length: the line above allocated it on this GPU, and the
        // assertion compared the lengths.
        unsafe { upload(gpu, block.data(), text).unwrap() };
        Self { gpu, block }
    }

    /// Queues a copy of the first `count` bytes into an arena, on the stream of the GPU.
    pub(crate) fn queue_copy(&self, to: &Arc<GpuArena>, count: usize) {
        assert!(count <= self.block.bytes() && count <= to.bytes() && std::ptr::eq(to.gpu(), self.gpu));
        // SAFETY: `queue` requires room for `count` bytes in memory of the GPU, which the assertion checks, that lives
        // until the stream has passed the copy. An arena waits for all work of its GPU before it is freed.
        unsafe { self.queue(to.data(), count) };
    }

    /// Queues a copy of all bytes into another block, on the stream of the GPU.
    pub(crate) fn queue_copy_into(&self, to: &Self) {
        assert!(self.block.bytes() <= to.block.bytes() && std::ptr::eq(to.gpu, self.gpu));
        // SAFETY: `queue` requires room for the bytes in memory of the GPU, which the assertion checks, that lives until
        // the stream has passed the copy. `to.block` waits for that stream before it is freed.
        unsafe { self.queue(to.block.data(), self.block.bytes()) };
    }

    /// # Safety
    /// `to` has room for `count` bytes in memory of the GPU, which lives until the stream has passed the copy. The
    /// block has `count` bytes.
    unsafe fn queue(&self, to: *mut u8, count: usize) {
        let layout = Layout::dense(1, &[count as i64]).unwrap();
        let (dtype, order) = (DType::UInt8, ByteOrder::Native);
        let source = DeviceSource { data: self.block.data(), dtype, layout: &layout, order };
        let stream = self.gpu.sync_stream().unwrap();
        // SAFETY: `convert` requires that source and target live until the stream has passed the copy: the block waits
        // for this stream before it is freed, and the caller promises the same for `to`. It requires that the work
        // that fills the source is ordered before: `new` waited for it.
        unsafe { self.gpu.convert(&source, to, dtype, stream).unwrap() };
    }
}
