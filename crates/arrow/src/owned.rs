//! C structs that belong to this process: their release callback runs once, when they are dropped.

use crate::abi::{ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowSchema};
use crate::errors::invalid_struct;
use tensorferry_core::Result;

/// A struct of the interface with a release callback.
pub trait Releasable: Sized {
    /// The name of the struct, for messages.
    const NAME: &'static str;

    /// The struct that the callback releases: the struct itself, or one inside it.
    type Target;

    /// The struct that the callback releases.
    fn target(&mut self) -> *mut Self::Target;

    /// The field that holds the callback.
    fn release_field(&mut self) -> &mut Option<unsafe extern "C" fn(*mut Self::Target)>;

    /// Releases the struct, if it is not released.
    ///
    /// # Safety
    /// The struct is as the specification requires, and nothing else releases it.
    unsafe fn release(&mut self) {
        if let Some(release) = *self.release_field() {
            // SAFETY: the callback of a struct that is not released may be called once (the contract of this function).
            unsafe { release(self.target()) };
        }
    }
}

impl Releasable for ArrowSchema {
    const NAME: &'static str = "ArrowSchema";

    type Target = Self;

    fn target(&mut self) -> *mut Self {
        self
    }

    fn release_field(&mut self) -> &mut Option<unsafe extern "C" fn(*mut Self)> {
        &mut self.release
    }
}

impl Releasable for ArrowArray {
    const NAME: &'static str = "ArrowArray";

    type Target = Self;

    fn target(&mut self) -> *mut Self {
        self
    }

    fn release_field(&mut self) -> &mut Option<unsafe extern "C" fn(*mut Self)> {
        &mut self.release
    }
}

impl Releasable for ArrowArrayStream {
    const NAME: &'static str = "ArrowArrayStream";

    type Target = Self;

    fn target(&mut self) -> *mut Self {
        self
    }

    fn release_field(&mut self) -> &mut Option<unsafe extern "C" fn(*mut Self)> {
        &mut self.release
    }
}

impl Releasable for ArrowDeviceArray {
    const NAME: &'static str = "ArrowDeviceArray";

    type Target = ArrowArray;

    fn target(&mut self) -> *mut ArrowArray {
        &raw mut self.array
    }

    fn release_field(&mut self) -> &mut Option<unsafe extern "C" fn(*mut ArrowArray)> {
        &mut self.array.release
    }
}

/// A struct that was moved out of the producer's memory.
///
/// Safe code cannot make one, because the drop calls a function of the struct:
///
/// ```compile_fail,E0423
/// # use tensorferry_arrow::{Owned, abi::ArrowArray};
/// drop(Owned(ArrowArray::released()));
/// ```
#[derive(Debug)]
pub struct Owned<T: Releasable>(T);

// SAFETY: the value is the only one that releases its struct (the contract of `take`). The interface requires that consumers may
// release a struct, and read its memory, on any thread.
unsafe impl<T: Releasable> Send for Owned<T> {}
// SAFETY: a shared reference only reads the struct, whose fields do not change before it is released.
unsafe impl<T: Releasable> Sync for Owned<T> {}

impl<T: Releasable> Owned<T> {
    /// Moves a struct out of the producer's memory, and marks it there as released.
    ///
    /// # Errors
    /// When the pointer is null, or the struct is released already.
    ///
    /// # Safety
    /// `pointer` is null, or points to a struct of the interface that nothing else reads or releases meanwhile. If it is not
    /// released, its callback may be called once, and its pointers are valid until then.
    pub unsafe fn take(pointer: *mut T) -> Result<Self> {
        if pointer.is_null() {
            return Err(invalid_struct(format!("the {} is a null pointer", T::NAME)));
        }
        // SAFETY: the pointer is not null, so it points to a struct that nothing else reads meanwhile (the contract of `take`). The
        // struct is moved, and the memory that it leaves is marked as released before anybody else can read it.
        unsafe {
            let mut moved = pointer.read();
            if moved.release_field().is_none() {
                return Err(invalid_struct(format!("the {} is released already", T::NAME)));
            }
            *(*pointer).release_field() = None;
            Ok(Self(moved))
        }
    }

    /// The struct.
    pub fn get(&self) -> &T {
        &self.0
    }

    /// The struct, for callbacks that change it.
    pub(crate) fn get_mut(&mut self) -> *mut T {
        &raw mut self.0
    }
}

impl<T: Releasable> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: `take` moved a struct that nothing else releases, and a value is dropped once.
        unsafe { self.0.release() };
    }
}
