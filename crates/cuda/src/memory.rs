//! Device memory: which device an address belongs to, and blocks that this crate allocates.

use crate::abi::PointerAttribute;
use crate::driver::Driver;
use crate::driver::handles::{Address, DeviceMemory};
use crate::gpu::Gpu;
use crate::stream::{Stream, SyncPoint};
use std::ffi::c_int;
use std::thread::{self, ThreadId};
use tensorferry_core::device::{Device, DeviceKind};
use tensorferry_core::{Error, ErrorKind, Result, hints as core_hints};

/// `CUmemorytype`.
const TYPE_HOST: u64 = 1;
const TYPE_DEVICE: u64 = 2;

/// The device that the memory at this address belongs to, according to the driver. An address that the driver does not
/// know belongs to the host.
///
/// # Errors
/// If the driver is missing.
pub fn device_of_address(address: usize) -> Result<Device> {
    let attributes =
        [PointerAttribute::MEMORY_TYPE, PointerAttribute::IS_MANAGED, PointerAttribute::DEVICE_ORDINAL];
    let [kind, managed, index] = Driver::get()?.query_address(attributes, address as Address)?;
    // The driver writes a signed number of four bytes.
    let index = index as u32 as c_int;
    Ok(match (kind, managed != 0) {
        (_, true) => Device { kind: DeviceKind::CudaManaged, index: index.max(0) },
        (TYPE_DEVICE, _) => Device { kind: DeviceKind::Cuda, index },
        (TYPE_HOST, _) => Device { kind: DeviceKind::CudaHost, index: 0 },
        _ => Device::CPU,
    })
}

/// Device memory for the time of one conversion. One stream uses it, and it is freed in the order of that stream, whichever
/// thread drops it.
pub struct DeviceBlock {
    gpu: &'static Gpu,
    memory: DeviceMemory,
    bytes: usize,
    stream: Stream,
    /// Whether the memory is freed in stream order; otherwise the host waits for the stream first.
    is_stream_ordered: bool,
    /// The thread whose default stream `stream` is. On another thread the same handle is another stream.
    stream_thread: Option<ThreadId>,
}

impl DeviceBlock {
    /// An uninitialised block for work on `stream`.
    ///
    /// # Errors
    /// If the device is out of memory: with the bytes that were requested and those that are free.
    pub fn new(gpu: &'static Gpu, bytes: usize, stream: Stream) -> Result<Self> {
        let _entered = gpu.enter()?;
        let (mut memory, bytes) = (DeviceMemory::default(), bytes.max(1));
        match gpu.driver.allocate_ordered(&mut memory, bytes, stream) {
            Some(Ok(())) => Ok(Self::owning(gpu, memory, bytes, stream, true)),
            Some(Err(error)) if error.kind() == ErrorKind::OutOfMemory => Err(out_of_memory(gpu, bytes)),
            // Old drivers lack the function, and some devices have no memory pools.
            Some(Err(error)) if error.kind() != ErrorKind::UnsupportedDevice => Err(error),
            Some(Err(_)) | None => Self::new_exportable(gpu, bytes, stream),
        }
    }

    /// A block from `cuMemAlloc`, which can be shared with other GPUs and exported to other processes.
    ///
    /// # Errors
    /// As [`DeviceBlock::new`].
    pub fn new_exportable(gpu: &'static Gpu, bytes: usize, stream: Stream) -> Result<Self> {
        let _entered = gpu.enter()?;
        let mut memory = DeviceMemory::default();
        match gpu.driver.allocate(&mut memory, bytes.max(1)) {
            Ok(()) => Ok(Self::owning(gpu, memory, bytes, stream, false)),
            Err(error) if error.kind() == ErrorKind::OutOfMemory => Err(out_of_memory(gpu, bytes)),
            Err(error) => Err(error),
        }
    }

    fn owning(
        gpu: &'static Gpu,
        memory: DeviceMemory,
        bytes: usize,
        stream: Stream,
        is_stream_ordered: bool,
    ) -> Self {
        let stream_thread = stream.is_per_thread().then(|| thread::current().id());
        Self { gpu, memory, bytes, stream, is_stream_ordered, stream_thread }
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its first byte.
    pub fn data(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.memory.address() as usize)
    }
}

impl Drop for DeviceBlock {
    fn drop(&mut self) {
        // A failure is one of the device, which the next call reports.
        let Ok(_entered) = self.gpu.enter() else { return };
        let is_other_stream = self.stream_thread.is_some_and(|owner| owner != thread::current().id());
        // This thread cannot name the stream, so it waits for all of them, or leaks the memory.
        if is_other_stream && !self.gpu.settle() {
            return;
        }
        if self.is_stream_ordered {
            let _ = self.gpu.driver.free_ordered(self.memory.take(), self.stream);
        } else if self.gpu.wait(SyncPoint::Stream(self.stream)).is_ok() {
            // Work on the stream may have used the memory until now, and `cuMemFree` does not wait for it.
            let _ = self.gpu.driver.free(self.memory.take());
        }
    }
}

/// The error for an allocation that failed: the bytes that were requested and those that are free.
pub fn out_of_memory(gpu: &Gpu, bytes: usize) -> Error {
    let free = match gpu.memory() {
        Ok((free, total)) => format!(": {free} of {total} bytes are free"),
        Err(_) => String::new(),
    };
    Error::new(ErrorKind::OutOfMemory, format!("no memory for {bytes} bytes on cuda:{}{free}", gpu.index()))
        .with_hint(core_hints::FREE_MEMORY)
}
