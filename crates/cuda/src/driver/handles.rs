//! Handles of driver objects as types, so that safe code can only pass a handle that the driver wrote.
//!
//! Every field is private to this file. A handle is null, or the driver wrote it through a `&mut` argument
//! (`arguments`), or it is the event of another library, for which unsafe code vouches. The driver rejects null with a status.
//!
//! - A handle whose object is never destroyed is `Copy`.
//! - A handle that owns its object is not `Clone`: uses borrow it, and the function that destroys the object consumes it.
//!
//! A handle is stored as a number: this process never dereferences it, and a number may cross threads.

use std::ffi::c_void;

/// `CUdeviceptr`. Driver functions that only look an address up accept any.
pub(crate) type Address = u64;

/// `CUcontext`: a primary context, which this process retains and never releases.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ContextHandle(usize);

/// `CUmodule`, which is never unloaded.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ModuleHandle(usize);

/// `CUfunction`: a kernel of a module that is never unloaded.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FunctionHandle(usize);

/// `CUevent`, which lives until `cuEventDestroy` consumes this.
#[repr(transparent)]
#[derive(Debug, Default)]
pub(crate) struct EventHandle(usize);

/// Device memory that was allocated here or opened from another process, until a function that releases it consumes this.
#[repr(transparent)]
#[derive(Debug, Default)]
pub(crate) struct DeviceMemory(Address);

/// `CUmemGenericAllocationHandle`: physical memory, until `cuMemRelease` consumes this.
#[repr(transparent)]
#[derive(Debug, Default)]
pub(crate) struct PhysicalHandle(u64);

macro_rules! pointers {
    ($($kind:ty),*) => {$(
        impl $kind {
            /// The handle in its C type.
            pub(crate) fn pointer(&self) -> *mut c_void {
                std::ptr::with_exposed_provenance_mut(self.0)
            }
        }
    )*};
}

pointers!(ContextHandle, ModuleHandle, FunctionHandle, EventHandle);

impl ContextHandle {
    /// Whether this is the context that `cuCtxGetCurrent` returned.
    pub(crate) fn is(self, current: usize) -> bool {
        self.0 == current
    }
}

impl EventHandle {
    /// The event of another library, which this crate does not destroy.
    ///
    /// # Safety
    /// The handle is that of an event of this process, which is alive for as long as the result is used. The result is not passed
    /// to `cuEventDestroy`.
    pub(crate) unsafe fn from_foreign(handle: usize) -> Self {
        Self(handle)
    }

    /// Moves the handle out, for the function that destroys the event.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

impl DeviceMemory {
    /// The address of the first byte.
    pub(crate) fn address(&self) -> Address {
        self.0
    }

    /// Moves the memory out, for the function that releases it.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

impl PhysicalHandle {
    /// Moves the handle out, for the function that releases it.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    pub(super) fn number(&self) -> u64 {
        self.0
    }
}
