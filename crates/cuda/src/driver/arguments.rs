//! The arguments that safe code may pass to a driver function, and the C types that they become.
//!
//! The driver trusts pointers and handles, and checks numbers. So each implementation of [`Argument`] is a number, a type
//! of `handles`, or a borrow that is valid for the whole call. The trait is private to `driver`, and this file has all
//! implementations.

use super::handles::{Address, ContextHandle, DeviceMemory, EventHandle, ModuleHandle, PhysicalHandle};
use crate::abi::{AccessDescription, AllocationProperties, IpcHandle};
use crate::stream::Stream;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};

/// An argument that meets its part of a driver function's contract by its type.
pub(super) trait Argument {
    /// The C type.
    type Raw;

    fn raw(self) -> Self::Raw;
}

/// An address for the driver to look up, which it does not dereference.
pub(crate) struct LookupAddress(pub(crate) Address);

/// The number of structs behind a reference to one.
pub(crate) struct One;

impl Argument for One {
    type Raw = usize;

    fn raw(self) -> usize {
        1
    }
}

macro_rules! numbers {
    ($($kind:ty),*) => {$(
        impl Argument for $kind {
            type Raw = Self;

            fn raw(self) -> Self {
                self
            }
        }
    )*};
}

numbers!(c_int, c_uint, u64, usize, IpcHandle);

/// A value that the driver writes. Every bit pattern that it writes is valid for the types in the function table.
impl<T> Argument for &mut T {
    type Raw = *mut T;

    fn raw(self) -> *mut T {
        self
    }
}

macro_rules! structs {
    ($($kind:ty),*) => {$(
        /// A struct that the driver reads before it returns. Its fields keep it valid.
        impl Argument for &$kind {
            type Raw = *const $kind;

            fn raw(self) -> *const $kind {
                self
            }
        }
    )*};
}

structs!(AccessDescription, AllocationProperties);

macro_rules! pointers {
    ($($kind:ty),*) => {$(
        impl Argument for $kind {
            type Raw = *mut c_void;

            fn raw(self) -> *mut c_void {
                self.pointer()
            }
        }
    )*};
}

// `EventHandle` by value is the argument of `cuEventDestroy`.
pointers!(ContextHandle, ModuleHandle, &EventHandle, EventHandle);

impl Argument for &CStr {
    type Raw = *const c_char;

    fn raw(self) -> *const c_char {
        self.as_ptr()
    }
}

impl Argument for BorrowedFd<'_> {
    type Raw = *mut c_void;

    /// The driver takes a descriptor as the value of a pointer.
    fn raw(self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.as_raw_fd() as usize)
    }
}

impl Argument for LookupAddress {
    type Raw = *mut c_void;

    fn raw(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0 as usize)
    }
}

/// Alive by the contract of [`Stream::from_handle`].
impl Argument for Stream {
    type Raw = *mut c_void;

    fn raw(self) -> *mut c_void {
        self.pointer()
    }
}

/// For the functions that release memory.
impl Argument for DeviceMemory {
    type Raw = Address;

    fn raw(self) -> Address {
        self.address()
    }
}

impl Argument for &PhysicalHandle {
    type Raw = u64;

    fn raw(self) -> u64 {
        self.number()
    }
}

/// For `cuMemRelease`.
impl Argument for PhysicalHandle {
    type Raw = u64;

    fn raw(self) -> u64 {
        self.number()
    }
}
