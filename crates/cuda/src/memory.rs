//! Device memory: whose it is, and blocks of our own.

use crate::driver::{Address, Driver};
use crate::gpu::Gpu;
use crate::stream::{Stream, SyncPoint};
use std::ffi::{c_int, c_uint, c_void};
use tensorferry_core::device::{Device, DeviceKind};
use tensorferry_core::{Error, ErrorKind, Result};

const MEMORY_TYPE: c_int = 2;
const IS_MANAGED: c_int = 8;
const DEVICE_ORDINAL: c_int = 9;

const TYPE_HOST: c_uint = 1;
const TYPE_DEVICE: c_uint = 2;

/// Which device the memory at this address belongs to, as the driver knows it: the host where it knows nothing.
///
/// # Errors
/// Where there is no driver.
pub fn device_of_address(address: usize) -> Result<Device> {
    let (mut kind, mut managed, mut index): (c_uint, c_uint, c_int) = (0, 0, 0);
    let which = [MEMORY_TYPE, IS_MANAGED, DEVICE_ORDINAL];
    let into: [*mut c_void; 3] = [(&raw mut kind).cast(), (&raw mut managed).cast(), (&raw mut index).cast()];
    // SAFETY: three questions and a place of the right size for each answer; any address may be asked about.
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

/// Device memory of our own, for the time of a trip. It is used on one stream, and given back in that stream's order.
pub struct DeviceBlock {
    gpu: &'static Gpu,
    address: Address,
    bytes: usize,
    stream: Stream,
    /// Whether it is given back by the stream itself, when that is past what uses it; else the host waits for that.
    ordered: bool,
}

impl DeviceBlock {
    /// A block of so many bytes, not initialised, for work on `stream`.
    ///
    /// # Errors
    /// When the device has no such memory: with what was needed, and what was free.
    pub fn new(gpu: &'static Gpu, bytes: usize, stream: Stream) -> Result<Self> {
        let _entered = gpu.enter()?;
        let (mut address, bytes) = (0, bytes.max(1));
        // SAFETY: a place for the address; the context is entered, and a `Stream` is alive while it is used
        // (`Stream::from_handle`).
        match unsafe { gpu.driver.allocate_ordered(&raw mut address, bytes, stream.raw()) } {
            Some(Ok(())) => Ok(Self { gpu, address, bytes, stream, ordered: true }),
            Some(Err(error)) if error.kind() == ErrorKind::OutOfMemory => Err(out_of_memory(gpu, bytes)),
            // Old drivers do not have it, and some devices have no pools.
            Some(Err(error)) if error.kind() != ErrorKind::UnsupportedDevice => Err(error),
            Some(Err(_)) | None => Self::plain(gpu, bytes, stream),
        }
    }

    /// A block that other GPUs and other processes may be handed.
    ///
    /// # Errors
    /// As [`DeviceBlock::new`].
    pub fn plain(gpu: &'static Gpu, bytes: usize, stream: Stream) -> Result<Self> {
        let _entered = gpu.enter()?;
        let mut address = 0;
        // SAFETY: a place for the address; the context is entered.
        match unsafe { gpu.driver.allocate(&raw mut address, bytes.max(1)) } {
            Ok(()) => Ok(Self { gpu, address, bytes, stream, ordered: false }),
            Err(error) if error.kind() == ErrorKind::OutOfMemory => Err(out_of_memory(gpu, bytes)),
            Err(error) => Err(error),
        }
    }

    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where it starts.
    pub fn data(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address as usize)
    }
}

impl Drop for DeviceBlock {
    fn drop(&mut self) {
        // A failure here is one of the device, which the next call reports.
        let Ok(_entered) = self.gpu.enter() else { return };
        // SAFETY: the stream is alive as long as a copy of it is used (`Stream::from_handle`), of which the block has one; the
        // memory is ours. What is queued on the stream still uses it, and plain memory is given back at once.
        unsafe {
            if self.ordered {
                let _ = self.gpu.driver.free_ordered(self.address, self.stream.raw());
            } else if self.gpu.wait(SyncPoint::Stream(self.stream)).is_ok() {
                let _ = self.gpu.driver.free(self.address);
            }
        }
    }
}

/// Says what was needed and what was free.
pub fn out_of_memory(gpu: &Gpu, bytes: usize) -> Error {
    let free = match gpu.memory() {
        Ok((free, total)) => format!(", and {free} of its {total} bytes are free"),
        Err(_) => String::new(),
    };
    Error::new(ErrorKind::OutOfMemory, format!("no memory for {bytes} bytes on cuda:{}{free}", gpu.index()))
        .with_advice("free something first, or convert a slice at a time")
}
