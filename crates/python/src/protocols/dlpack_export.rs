//! `ferry.ExportedTensor`: a tensor with `__dlpack__`, for frameworks that import from such objects only.

use crate::errors::{Result, fail};
use crate::interpreter::owner::Owner;
use crate::protocols::capsule::{Offer, Offered};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Mutex;
use tensorferry_core::{Access, ErrorKind, Tensor};

/// A tensor that can be imported once, through `__dlpack__`.
///
/// Example:
///     >>> class Crate:
///     ...     def __init__(self, array):
///     ...         self.array = array
///     >>> seen = []
///     >>> def write(exported):
///     ...     seen.append(type(exported) is ferry.ExportedTensor)
///     ...     return Crate(np.from_dlpack(exported))
///     >>> ferry.register_framework("crate", types=[Crate], read=None, write=write)
///     >>> ferry.to(np.arange(3), "crate").array.tolist(), seen
///     ([0, 1, 2], [True])
#[expect(rustdoc::broken_intra_doc_links, reason = "a docstring of Python")]
#[pyclass(frozen, module = "tensorferry", name = "ExportedTensor")]
pub(crate) struct ExportedTensor {
    tensor: Mutex<Option<Tensor<Owner>>>,
    /// The offer of the tensor, once `__dlpack__` was called.
    offer: Mutex<Option<Offer>>,
    device: (i32, i32),
    /// Whether the consumer's tensors are immutable, so that read-only memory needs no flag.
    immutable: bool,
}

impl ExportedTensor {
    /// Wraps a tensor for one import.
    pub(crate) fn wrap<'py>(
        py: Python<'py>,
        tensor: Tensor<Owner>,
        immutable: bool,
    ) -> Result<Bound<'py, PyAny>> {
        let device = tensor.device().base_device();
        let device = (device.kind as i32, device.index);
        Ok(Bound::new(
            py,
            Self { tensor: Mutex::new(Some(tensor)), offer: Mutex::new(None), device, immutable },
        )?
        .into_any())
    }
}

impl ExportedTensor {
    /// Keeps the offer until this object is dropped, after the consumer's call has returned.
    fn keep_offer<'py>(&self, offered: Offered<'py>) -> Bound<'py, PyAny> {
        let capsule = offered.clone();
        let offer = offered.unbind();
        if let Ok(mut kept) = self.offer.lock() {
            *kept = Some(offer);
        }
        capsule
    }
}

#[pymethods]
impl ExportedTensor {
    /// The tensor as a DLPack capsule. Can be called once.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        let _ = stream;
        if dl_device.is_some_and(|device| device.0 != self.device.0) || copy == Some(true) {
            return Err(fail(
                ErrorKind::InvalidArgument,
                "an exported tensor cannot change its device or be copied",
                "leave out dl_device and copy",
            ));
        }
        let tensor = self.tensor.lock().ok().and_then(|mut tensor| tensor.take());
        let Some(tensor) = tensor else {
            return Err(fail(
                ErrorKind::InvalidTensor,
                "the exported tensor was already consumed",
                "convert the tensor again",
            ));
        };
        if max_version.is_some_and(|(major, _)| major >= 1) {
            return Ok(self.keep_offer(crate::protocols::capsule::versioned(py, tensor)?));
        }
        if tensor.access() == Access::ReadOnly && !self.immutable {
            return Err(fail(
                ErrorKind::InvalidTensor,
                "a read-only tensor cannot be exported without a DLPack version",
                "call __dlpack__(max_version=(1, 0))",
            ));
        }
        Ok(self.keep_offer(crate::protocols::capsule::legacy(py, tensor)?))
    }

    /// The device of the tensor, as in DLPack.
    fn __dlpack_device__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, [self.device.0, self.device.1])
    }
}
