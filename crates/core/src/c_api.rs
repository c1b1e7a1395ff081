//! The C structs of `tensorferry.h`: the table of functions for extension modules.
//!
//! The module `tensorferry._native` fills the table, and the crate `tensorferry-pyo3` reads it. The header has the contracts of
//! fields and functions. A test of the Python package compares both files, field by field.

use crate::dlpack::abi::{ManagedTensorVersioned, RawDType, RawDevice, RawTensor};
use std::ffi::{CStr, c_int, c_void};

/// The major version of the table. A table of another major version cannot be read.
pub const MAJOR: u32 = 1;
/// The minor version of the table. Later ones append fields.
pub const MINOR: u32 = 0;
/// The name of the capsule: the attribute `_C_API` of the module `tensorferry`.
pub const CAPSULE_NAME: &CStr = c"tensorferry._C_API";

/// Any strides that are multiples of the element size.
pub const ORDER_ANY: i32 = 0;
/// Dense, the last dimension varies fastest.
pub const ORDER_C: i32 = 1;
/// Dense, the first dimension varies fastest.
pub const ORDER_F: i32 = 2;
/// The rank of a request that accepts every rank.
pub const ANY_RANK: i32 = -1;
/// The stream of a request that is not ordered after the pending work on the tensor.
pub const NO_STREAM: i64 = -1;

/// `TfRequest`: what an extension accepts.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The size of the struct that the extension was compiled with.
    pub size: usize,
    /// The accepted element types; null accepts every type.
    pub dtypes: *const RawDType,
    /// The number of accepted element types.
    pub dtype_count: usize,
    /// The accepted device; the type 0 accepts every device.
    pub device: RawDevice,
    /// The accepted rank, or [`ANY_RANK`].
    pub rank: i32,
    /// [`ORDER_ANY`], [`ORDER_C`] or [`ORDER_F`].
    pub order: i32,
    /// Not 0: the extension writes the tensor's own memory.
    pub writable: i32,
    /// 0: a tensor that would have to be copied is refused.
    pub copy_allowed: i32,
    /// The CUDA stream on which the extension uses the tensor, or [`NO_STREAM`].
    pub stream: i64,
    /// Not 0: the memory is borrowed until the deleter runs.
    pub borrow: i32,
    /// 0.
    pub reserved: i32,
}

impl Request {
    /// Every tensor, in place if possible: `TENSORFERRY_REQUEST_INIT`.
    pub const INIT: Self = Self {
        size: size_of::<Self>(),
        dtypes: std::ptr::null(),
        dtype_count: 0,
        device: RawDevice { device_type: 0, device_id: 0 },
        rank: ANY_RANK,
        order: ORDER_ANY,
        writable: 0,
        copy_allowed: 1,
        stream: 0,
        borrow: 0,
        reserved: 0,
    };
}

/// `TfApi`: the table. Python objects are pointers to `c_void`, because this crate does not know Python.
#[repr(C)]
#[derive(Debug)]
pub struct Api {
    /// [`MAJOR`] of the module that filled the table.
    pub major: u32,
    /// [`MINOR`] of the module that filled the table.
    pub minor: u32,
    /// The size of the table in bytes.
    pub size: usize,
    /// Reads a tensor of any framework. 0, or -1 with a Python exception set.
    pub take: unsafe extern "C" fn(*mut c_void, *const Request, *mut *mut ManagedTensorVersioned) -> c_int,
    /// Creates a framework's tensor. A new reference, or null with a Python exception set.
    pub wrap: unsafe extern "C" fn(*mut ManagedTensorVersioned, *mut c_void) -> *mut c_void,
    /// Enters memory into the table of borrows. 0, or -1 with a Python exception set.
    pub borrow: unsafe extern "C" fn(*mut c_void, *const RawTensor, c_int, *mut u64) -> c_int,
    /// Ends a borrow. 0, or -1 with a Python exception set.
    pub release: unsafe extern "C" fn(u64) -> c_int,
}
