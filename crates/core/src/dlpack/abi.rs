//! The C structs of DLPack 1.3, and the unversioned one that JAX and TensorFlow still use.

use std::ffi::{c_char, c_int, c_void};

/// The version of exported structs.
pub const VERSION: Version = Version { major: 1, minor: 3 };

/// The memory must not be written.
pub const FLAG_READ_ONLY: u64 = 1 << 0;
/// The producer made a copy for this export.
pub const FLAG_IS_COPIED: u64 = 1 << 1;
/// Elements narrower than a byte are stored one per byte.
pub const FLAG_SUBBYTE_PADDED: u64 = 1 << 2;

/// The name of a capsule with a [`ManagedTensor`] that has not been imported.
pub const LEGACY_NAME: &std::ffi::CStr = c"dltensor";
/// The name after the import.
pub const LEGACY_USED_NAME: &std::ffi::CStr = c"used_dltensor";
/// The name of a capsule with a [`ManagedTensorVersioned`] that has not been imported.
pub const VERSIONED_NAME: &std::ffi::CStr = c"dltensor_versioned";
/// The name after the import.
pub const VERSIONED_USED_NAME: &std::ffi::CStr = c"used_dltensor_versioned";
/// The name of the capsule in `__dlpack_c_exchange_api__`.
pub const EXCHANGE_API_NAME: &std::ffi::CStr = c"dlpack_exchange_api";

/// `DLPackVersion`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Incompatible between different values.
    pub major: u32,
    /// Compatible additions.
    pub minor: u32,
}

/// `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawDevice {
    /// A `DLDeviceType`, as an integer because it is not validated.
    pub device_type: i32,
    /// The index of the device.
    pub device_id: i32,
}

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawDType {
    /// A `DLDataTypeCode`.
    pub code: u8,
    /// The bits of one lane.
    pub bits: u8,
    /// The lanes of a vector type; only one is supported.
    pub lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawTensor {
    /// Start of the memory.
    pub data: *mut c_void,
    /// The device of the memory.
    pub device: RawDevice,
    /// Number of dimensions.
    pub ndim: i32,
    /// Element type.
    pub dtype: RawDType,
    /// `ndim` lengths.
    pub shape: *mut i64,
    /// `ndim` strides in elements; null means dense before DLPack 1.2.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// `DLManagedTensor`, the form without a version.
#[repr(C)]
#[derive(Debug)]
pub struct ManagedTensor {
    /// The tensor.
    pub dl_tensor: RawTensor,
    /// Private data of the producer.
    pub manager_ctx: *mut c_void,
    /// Called once by the last holder of the struct.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
#[derive(Debug)]
pub struct ManagedTensorVersioned {
    /// The DLPack version of the producer.
    pub version: Version,
    /// Private data of the producer.
    pub manager_ctx: *mut c_void,
    /// Called once by the last holder of the struct.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensorVersioned)>,
    /// `FLAG_...` bits.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: RawTensor,
}

/// `DLPackExchangeAPIHeader`.
#[repr(C)]
#[derive(Debug)]
pub struct ExchangeApiHeader {
    /// The DLPack version of the producer.
    pub version: Version,
    /// An older table, or null.
    pub prev_api: *mut ExchangeApiHeader,
}

/// `DLPackExchangeAPI`: a framework's C functions. Each returns 0, or -1 with a Python error set.
#[repr(C)]
#[derive(Debug)]
pub struct ExchangeApi {
    /// Version and older tables.
    pub header: ExchangeApiHeader,
    /// Allocates a tensor like a prototype.
    pub managed_tensor_allocator: Option<
        unsafe extern "C" fn(
            *mut RawTensor,
            *mut *mut ManagedTensorVersioned,
            *mut c_void,
            Option<unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char)>,
        ) -> c_int,
    >,
    /// Exports a Python tensor with an owner.
    pub managed_tensor_from_py_object_no_sync:
        Option<unsafe extern "C" fn(*mut c_void, *mut *mut ManagedTensorVersioned) -> c_int>,
    /// Imports a managed tensor as a Python tensor.
    pub managed_tensor_to_py_object_no_sync:
        Option<unsafe extern "C" fn(*mut ManagedTensorVersioned, *mut *mut c_void) -> c_int>,
    /// Describes a Python tensor without owning it; shape and strides are valid as long as the tensor.
    pub dltensor_from_py_object_no_sync: Option<unsafe extern "C" fn(*mut c_void, *mut RawTensor) -> c_int>,
    /// The current stream of the framework.
    pub current_work_stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int>,
}

impl RawTensor {
    /// An empty struct for a C function to fill.
    #[doc(hidden)]
    pub const fn empty() -> Self {
        Self {
            data: std::ptr::null_mut(),
            device: RawDevice { device_type: 0, device_id: 0 },
            ndim: 0,
            dtype: RawDType { code: 0, bits: 0, lanes: 0 },
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn the_structs_have_the_sizes_of_the_c_header() {
        assert_eq!(size_of::<RawTensor>(), 48);
        assert_eq!(size_of::<ManagedTensor>(), 64);
        assert_eq!(size_of::<ManagedTensorVersioned>(), 80);
        assert_eq!(offset_of!(ManagedTensorVersioned, flags), 24);
        assert_eq!(offset_of!(RawTensor, byte_offset), 40);
        assert_eq!(size_of::<ExchangeApi>(), 56);
    }
}
