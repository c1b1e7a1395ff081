//! Device memory: which device an address belongs to, and blocks that this crate allocates.

use crate::driver::{Address, Driver};
use crate::gpu::Gpu;
use crate::stream::{Stream, SyncPoint};
use std::ffi::{c_int, c_uint, c_void};
use tensorferry_core::device::{Device, DeviceKind};
use tensorferry_core::{Error, ErrorKind, Result, hints as core_hints};

/// `CUpointer_attribute` and `CUmemorytype`.
const MEMORY_TYPE: c_int = 2;
const IS_MANAGED: c_int = 8;
const DEVICE_ORDINAL: c_int = 9;

const TYPE_HOST: c_uint = 1;
const TYPE_DEVICE: c_uint = 2;

/// The device that the memory at this address belongs to, according to the driver. An address that the driver does not
/// know belongs to the host.
///
/// # Errors
/// If the driver is missing.
pub fn device_of_address(address: usize) -> Result<Device> {
    let (mut kind, mut managed, mut index): (c_uint, c_uint, c_int) = (0, 0, 0);
    let which = [MEMORY_TYPE, IS_MANAGED, DEVICE_ORDINAL];
    let into: [*mut c_void; 3] = [(&raw mut kind).cast(), (&raw mut managed).cast(), (&raw mut index).cast()];
    // SAFETY: three attributes and a place of the right size for each; any address may be queried.
    unsafe {
        Driver::get()?.pointer_attributes(3, which.as_ptr(), into.as_ptr(), address as Address)?;
    }
    Ok(match (kind, managed != 0) {
        (_, true) => Device { kind: DeviceKind::CudaManaged, index: index.max(0) },
        (TYPE_DEVICE, _) => Device { kind: DeviceKind::Cuda, index },
        (TYPE_HOST, _) => Device { kind: DeviceKind::CudaHost, index: 0 },
        _ => Device::CPU,
    })
}

/// Device memory for the time of one conversion. One stream uses it, and it is freed in the order of that stream.
pub struct DeviceBlock {
    gpu: &'static Gpu,
    address: Address,
    bytes: usize,
    stream: Stream,
    /// Whether the memory is freed in stream order; otherwise the host waits for the stream first.
    is_stream_ordered: bool,
}

impl DeviceBlock {
    /// An uninitialised block for work on `stream`.
    ///
    /// # Errors
    /// If the device is out of memory: with the bytes that were requested and those that are free.
    pub fn new(gpu: &'static Gpu, bytes: usize, stream: Stream) -> Result<Self> {
        let _entered = gpu.enter()?;
        let (mut address, bytes) = (0, bytes.max(1));
        // SAFETY: a place for the address; the context is entered, and a `Stream` is alive while it is used
        // (`Stream::from_handle`).
        match unsafe { gpu.driver.allocate_ordered(&raw mut address, bytes, stream.raw()) } {
            Some(Ok(())) => Ok(Self { gpu, address, bytes, stream, is_stream_ordered: true }),
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
        let mut address = 0;
        // SAFETY: a place for the address; the context is entered.
        match unsafe { gpu.driver.allocate(&raw mut address, bytes.max(1)) } {
            Ok(()) => Ok(Self { gpu, address, bytes, stream, is_stream_ordered: false }),
            Err(error) if error.kind() == ErrorKind::OutOfMemory => Err(out_of_memory(gpu, bytes)),
            Err(error) => Err(error),
        }
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its first byte.
    pub fn data(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address as usize)
    }
}

impl Drop for DeviceBlock {
    fn drop(&mut self) {
        // A failure is one of the device, which the next call reports.
        let Ok(_entered) = self.gpu.enter() else { return };
        // SAFETY: the stream is alive as long as a copy of it is used (`Stream::from_handle`), of which the block has one;
        // the memory is ours. Work on the stream may still use it, and `cuMemFree` does not wait for that.
        unsafe {
            if self.is_stream_ordered {
                let _ = self.gpu.driver.free_ordered(self.address, self.stream.raw());
            } else if self.gpu.wait(SyncPoint::Stream(self.stream)).is_ok() {
                let _ = self.gpu.driver.free(self.address);
            }
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
