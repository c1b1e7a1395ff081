//! Arrays of the C device data interface: where their memory is, and the event to wait for.

use crate::abi::{ArrowArray, ArrowDeviceArray};
use crate::errors::invalid_struct;
use crate::hints;
use crate::owned::Owned;
use tensorferry_core::device::{Device, DeviceKind};
use tensorferry_core::{Error, ErrorKind, Result};

/// An array that was moved out of the producer's memory, on a device that is supported.
#[derive(Debug)]
pub struct DeviceArray {
    /// The array. Its buffers are on the device, and the structs themselves in host memory.
    pub array: Owned<ArrowArray>,
    /// The device.
    pub device: Device,
    /// The handle of a CUDA event. The buffers are not read before it is complete, and it lives as long as the array.
    pub sync_event: Option<usize>,
}

impl DeviceArray {
    /// Moves an array out of the producer's memory, and marks it there as released.
    ///
    /// # Errors
    /// When the pointer is null, the array is released already, the device is not supported, or the event is invalid.
    ///
    /// # Safety
    /// `pointer` is null, or points to a struct that nothing else reads or releases meanwhile. If it is not released, its callback
    /// may be called once, and its pointers, with that to the event, are null or as the specification requires.
    pub unsafe fn take(pointer: *mut ArrowDeviceArray) -> Result<Self> {
        if pointer.is_null() {
            return Err(invalid_struct("the ArrowDeviceArray is a null pointer"));
        }
        // SAFETY: the pointer is not null, so it points to a struct that nothing else reads meanwhile (the contract of `take`). The
        // specification lets a consumer move the array out of the struct that holds it.
        let (array, device_type, device_id, sync_event) = unsafe {
            let array = Owned::take(&raw mut (*pointer).array)?;
            (array, (*pointer).device_type, (*pointer).device_id, (*pointer).sync_event.cast::<usize>())
        };
        let device = supported_device(device_type, device_id)?;
        if sync_event.is_null() {
            return Ok(Self { array, device, sync_event: None });
        }
        if device.kind == DeviceKind::Cpu {
            return Err(invalid_struct("an array in host memory has an event, which CPUs do not have"));
        }
        if !sync_event.is_aligned() {
            return Err(invalid_struct("the pointer to the event is not aligned"));
        }
        // SAFETY: for CUDA the specification puts the handle of an event here, in host memory, which lives until the array is
        // released: `array` is alive.
        let event = unsafe { sync_event.read() };
        if event == 0 {
            return Err(invalid_struct("the event is a null pointer"));
        }
        Ok(Self { array, device, sync_event: Some(event) })
    }
}

/// The device with these numbers: the host, or a CUDA GPU.
fn supported_device(device_type: i32, device_id: i64) -> Result<Device> {
    let kind = DeviceKind::from_code(device_type);
    match kind {
        Some(DeviceKind::Cpu) => Ok(Device::CPU),
        // Pinned memory may have no device of its own.
        Some(kind @ DeviceKind::CudaHost) => {
            Ok(Device { kind, index: i32::try_from(device_id.max(0)).unwrap_or(0) })
        }
        Some(kind @ (DeviceKind::Cuda | DeviceKind::CudaManaged)) => match i32::try_from(device_id) {
            Ok(index) if index >= 0 => Ok(Device { kind, index }),
            _ => Err(invalid_struct(format!("the array is on the GPU with the number {device_id}"))),
        },
        _ => {
            let name = kind.map_or_else(String::new, |kind| format!(" ({})", kind.name()));
            let fact = format!(
                "the array is on a device of type {device_type}{name}; only host memory and CUDA GPUs are supported"
            );
            Err(Error::new(ErrorKind::UnsupportedDevice, fact).with_hint(hints::MOVE_TO_HOST))
        }
    }
}
