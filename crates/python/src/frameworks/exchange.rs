//! The DLPack C exchange API: a table of C functions on a tensor type, spoken by PyTorch and Paddle.

use crate::errors::Result;
use crate::fast_paths::{Probed, Unusable, present};
use crate::interpreter::owner::Owner;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ptr::{self, NonNull};
use tensorferry_core::dlpack::abi::{
    EXCHANGE_API_NAME, ExchangeApi, ManagedTensorVersioned, RawTensor, VERSION,
};
use tensorferry_core::dlpack::{self, ManagedOwner};
use tensorferry_core::{Access, Device, Tensor};
use tensorferry_cuda::Stream;

/// A framework's table, seen to be of a version we speak and to have the functions we call.
#[derive(Clone, Copy)]
pub(crate) struct Exchange {
    view: unsafe extern "C" fn(*mut std::ffi::c_void, *mut RawTensor) -> std::ffi::c_int,
    export: unsafe extern "C" fn(*mut std::ffi::c_void, *mut *mut ManagedTensorVersioned) -> std::ffi::c_int,
    import: unsafe extern "C" fn(*mut ManagedTensorVersioned, *mut *mut std::ffi::c_void) -> std::ffi::c_int,
    stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut std::ffi::c_void) -> std::ffi::c_int>,
}

impl Exchange {
    /// The table of a tensor type, if it has one that we can use.
    pub(crate) fn of(kind: &Bound<'_, PyAny>) -> Probed<Self> {
        let capsule = present(kind.getattr("__dlpack_c_exchange_api__"))?;
        let lacks = |what: &str| Unusable::missing(format!("its table of C functions has no {what}"));
        // SAFETY: `IsValid` takes any object; a capsule of that name holds a table that lives as long as its
        // framework, which is never unloaded, and whose header has its place in every version.
        unsafe {
            if ffi::PyCapsule_IsValid(capsule.as_ptr(), EXCHANGE_API_NAME.as_ptr()) != 1 {
                return Err(Unusable::missing("__dlpack_c_exchange_api__ is not a capsule of that name"));
            }
            let table =
                ffi::PyCapsule_GetPointer(capsule.as_ptr(), EXCHANGE_API_NAME.as_ptr()).cast::<ExchangeApi>();
            let table = table.as_ref().ok_or_else(|| lacks("functions"))?;
            let major = table.header.version.major;
            if major != VERSION.major {
                return Err(Unusable::missing(format!("its table of C functions is of DLPack {major}")));
            }
            Ok(Self {
                view: table.dltensor_from_py_object_no_sync.ok_or_else(|| lacks("view"))?,
                export: table.managed_tensor_from_py_object_no_sync.ok_or_else(|| lacks("export"))?,
                import: table.managed_tensor_to_py_object_no_sync.ok_or_else(|| lacks("import"))?,
                stream: table.current_work_stream,
            })
        }
    }

    /// Looks at a tensor and puts its memory under the owner that `own` makes.
    #[inline(always)]
    pub(crate) fn look(
        &self,
        object: &Bound<'_, PyAny>,
        access: Access,
        own: impl FnOnce() -> Result<Owner>,
    ) -> Result<Tensor<Owner>> {
        // First the owner, which may run Python code; nothing runs between the look and the copy of what it shows.
        let owner = own()?;
        let mut raw = RawTensor::empty();
        // SAFETY: the object is one of the framework's tensors, and the struct is ours to fill.
        if unsafe { (self.view)(object.as_ptr().cast(), &raw mut raw) } != 0 {
            return Err(PyErr::fetch(object.py()).into());
        }
        // SAFETY: shape and strides live in the tensor, which the caller holds; the owner keeps the memory.
        Ok(unsafe { dlpack::borrow(&raw, access, false, owner) }?)
    }

    /// Whether the framework tells its current stream.
    pub(crate) fn has_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// The stream on which the calling thread queues work for a device; the default one where the framework does not tell.
    pub(crate) fn stream(&self, py: Python<'_>, device: Device) -> Result<Stream> {
        let Some(current) = self.stream else { return Ok(Stream::LEGACY) };
        let mut handle = ptr::null_mut();
        // SAFETY: a device in DLPack's terms, and a place for the answer.
        match unsafe { current(device.kind as i32, device.index, &raw mut handle) } {
            // SAFETY: the framework's current stream. PyTorch and Paddle never destroy a stream of their own; whoever makes
            // a foreign one current keeps it alive (README, "On a GPU").
            0 => Ok(unsafe { Stream::from_handle(handle as usize) }),
            _ => Err(PyErr::fetch(py).into()),
        }
    }

    /// Exports a tensor with an owner of the framework's making.
    pub(crate) fn export(&self, object: &Bound<'_, PyAny>) -> Result<Tensor<ManagedOwner>> {
        let mut managed = ptr::null_mut();
        // SAFETY: the object is one of the framework's tensors; on success the struct is ours to release.
        unsafe {
            if (self.export)(object.as_ptr().cast(), &raw mut managed) != 0 {
                return Err(PyErr::fetch(object.py()).into());
            }
            match NonNull::new(managed) {
                Some(managed) => Ok(dlpack::from_versioned(managed)?),
                None => Err(PyErr::fetch(object.py()).into()),
            }
        }
    }

    /// Makes one of the framework's tensors over the memory of `tensor`.
    pub(crate) fn import<'py, O: Send + 'static>(
        &self,
        py: Python<'py>,
        tensor: Tensor<O>,
    ) -> Result<Bound<'py, PyAny>> {
        let dense = tensor.layout().is_dense();
        let handover = dlpack::offer_versioned(tensor)?;
        let mut managed = handover.managed();
        if dense {
            // Frameworks build a dense tensor quicker when they need not look at its strides. From version 1.2 on
            // these must be there; a tensor of version 1.1 may leave them out.
            // SAFETY: the struct is ours until it is handed over.
            let managed = unsafe { managed.as_mut() };
            managed.version.minor = managed.version.minor.min(1);
            managed.dl_tensor.strides = ptr::null_mut();
        }
        let mut object = ptr::null_mut();
        // SAFETY: the struct is valid, and the framework releases it once at most; the hand-over sees whether it did. (Tried:
        // on failure PyTorch does so from the moment it has made its pointer to the data, and Paddle never.)
        unsafe {
            if (self.import)(managed.as_ptr(), &raw mut object) != 0 {
                return Err(PyErr::fetch(py).into());
            }
            handover.taken();
            Ok(Bound::from_owned_ptr_or_err(py, object.cast())?)
        }
    }
}
