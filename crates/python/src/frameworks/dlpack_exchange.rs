//! The DLPack C exchange API: a table of C functions in a capsule on the tensor type. PyTorch and Paddle provide it.

use crate::errors::Result;
use crate::fast_paths::{Probed, Unusable, present};
use crate::interpreter::objects;
use crate::interpreter::owner::Owner;
use pyo3::prelude::*;
use std::ptr::{self, NonNull};
use tensorferry_core::dlpack::abi::{
    EXCHANGE_API_NAME, ExchangeApi, ManagedTensorVersioned, RawTensor, VERSION,
};
use tensorferry_core::dlpack::{self, ManagedOwner};
use tensorferry_core::{Access, Device, Tensor};
use tensorferry_cuda::Stream;

/// The functions of a framework's table, of a supported version.
#[derive(Clone, Copy)]
pub(crate) struct Exchange {
    view: unsafe extern "C" fn(*mut std::ffi::c_void, *mut RawTensor) -> std::ffi::c_int,
    export: unsafe extern "C" fn(*mut std::ffi::c_void, *mut *mut ManagedTensorVersioned) -> std::ffi::c_int,
    import: unsafe extern "C" fn(*mut ManagedTensorVersioned, *mut *mut std::ffi::c_void) -> std::ffi::c_int,
    stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut std::ffi::c_void) -> std::ffi::c_int>,
}

impl Exchange {
    /// The table of a tensor type, if it exists and is usable.
    pub(crate) fn of(kind: &Bound<'_, PyAny>) -> Probed<Self> {
        let capsule = present(kind.getattr("__dlpack_c_exchange_api__"))?;
        let lacks = |what: &str| Unusable::missing(format!("the table of C functions lacks {what}"));
        let table = objects::capsule_pointer(&capsule, EXCHANGE_API_NAME)
            .ok_or_else(|| Unusable::missing("__dlpack_c_exchange_api__ is not a capsule of that name"))?;
        let table = table.cast::<ExchangeApi>().as_ptr();
        // SAFETY: DLPack says that a capsule of this name holds a table that is never freed, and whose header has the same
        // fields in every version. The other fields are read only after the major version was compared.
        let table = unsafe {
            let major = (*table).header.version.major;
            if major != VERSION.major {
                return Err(Unusable::missing(format!(
                    "the table of C functions has DLPack version {major}"
                )));
            }
            &*table
        };
        Ok(Self {
            view: table.dltensor_from_py_object_no_sync.ok_or_else(|| lacks("view"))?,
            export: table.managed_tensor_from_py_object_no_sync.ok_or_else(|| lacks("export"))?,
            import: table.managed_tensor_to_py_object_no_sync.ok_or_else(|| lacks("import"))?,
            stream: table.current_work_stream,
        })
    }

    /// A tensor over the memory of `object`, kept alive by the owner that `own` returns.
    ///
    /// # Safety
    /// The object is an instance of the type whose table this is. The owner keeps the memory of the object alive, or nothing
    /// uses the result.
    #[inline(always)]
    pub(crate) unsafe fn borrow(
        &self,
        object: &Bound<'_, PyAny>,
        access: Access,
        own: impl FnOnce() -> Result<Owner>,
    ) -> Result<Tensor<Owner>> {
        // The owner comes first because `own` may run Python code. Nothing runs between the call of `view` and the copy of
        // the description.
        let owner = own()?;
        let mut raw = RawTensor::empty();
        // SAFETY: DLPack's function requires an instance of the type, as the contract of `borrow` says, an attached thread, which
        // the `Bound` proves, and a writable struct, which `raw` is.
        if unsafe { (self.view)(object.as_ptr().cast(), &raw mut raw) } != 0 {
            return Err(PyErr::fetch(object.py()).into());
        }
        // SAFETY: `dlpack::borrow` requires shape and strides during the call: they belong to `object`, which is borrowed, and no
        // code runs since `view` returned. It requires an owner that keeps the memory, as the contract of this function says.
        Ok(unsafe { dlpack::borrow(raw, access, false, owner) }?)
    }

    /// Whether the table has the function for the current stream.
    pub(crate) fn has_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// The current stream of the calling thread for a device; the default stream if the table lacks the function.
    pub(crate) fn stream(&self, py: Python<'_>, device: Device) -> Result<Stream> {
        let Some(current) = self.stream else { return Ok(Stream::LEGACY) };
        let mut handle = ptr::null_mut();
        // SAFETY: DLPack's function requires a device in its encoding, which `DeviceKind` has, and a pointer to write the result to,
        // which is that of a local.
        match unsafe { current(device.kind as i32, device.index, &raw mut handle) } {
            // SAFETY: `from_handle` requires a stream that outlives the result. PyTorch and Paddle never destroy their own streams,
            // and the documentation asks a user who makes an external stream current to keep it alive.
            0 => Ok(unsafe { Stream::from_handle(handle as usize) }),
            _ => Err(PyErr::fetch(py).into()),
        }
    }

    /// Exports a tensor with the framework's own owner.
    ///
    /// # Safety
    /// The object is an instance of the type whose table this is.
    pub(crate) unsafe fn export(&self, object: &Bound<'_, PyAny>) -> Result<Tensor<ManagedOwner>> {
        let mut managed = ptr::null_mut();
        // SAFETY: DLPack's function requires an instance of the type, as the contract of `export` says, and a pointer to write the
        // result to. On success it returns a valid struct that only the caller releases, as `from_versioned` requires.
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

    /// Exports an object through the table of its own type, if that has one.
    pub(crate) fn export_by_own_table(
        object: &Bound<'_, PyAny>,
    ) -> Option<(Self, Result<Tensor<ManagedOwner>>)> {
        let exchange = Self::of(&object.get_type()).ok()?;
        // SAFETY: `export` requires an instance of the type whose table it is: the line above has read it from the object's type.
        Some((exchange, unsafe { exchange.export(object) }))
    }

    /// Creates one of the framework's tensors over the memory of `tensor`.
    pub(crate) fn import<'py, O: Send + 'static>(
        &self,
        py: Python<'py>,
        tensor: Tensor<O>,
    ) -> Result<Bound<'py, PyAny>> {
        let dense = tensor.layout().is_dense();
        let offer = dlpack::offer_versioned(tensor)?;
        let mut managed = offer.managed();
        if dense {
            // Frameworks import a dense tensor faster without strides. DLPack 1.2 requires strides; version 1.1 allows a
            // null pointer for dense tensors.
            // SAFETY: `as_mut` requires a struct that nothing else uses: `offer` owns it, and the framework does not have it yet.
            let managed = unsafe { managed.as_mut() };
            managed.version.minor = managed.version.minor.min(1);
            managed.dl_tensor.strides = ptr::null_mut();
        }
        let mut object = ptr::null_mut();
        // SAFETY: DLPack's function requires a valid struct, which the offer holds during the call, and a pointer to write the
        // result to. The framework releases the struct at most once, and the offer detects whether it did. (Observed: on failure
        // PyTorch releases it once it has created its data pointer, and Paddle never does.) On success the result is a new
        // reference, which `from_owned_ptr_or_err` takes.
        unsafe {
            if (self.import)(managed.as_ptr(), &raw mut object) != 0 {
                return Err(PyErr::fetch(py).into());
            }
            offer.taken();
            Ok(Bound::from_owned_ptr_or_err(py, object.cast())?)
        }
    }
}
