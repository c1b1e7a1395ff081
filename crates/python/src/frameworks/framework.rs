//! The trait that each framework's file implements.

use crate::conversion::object_kinds::RecognisedTensor;
use crate::conversion::source::Source;
use crate::conversion::streams::{DeviceAllocation, Streams};
use crate::errors::{Failure, Result, fail};
use crate::interpreter::once::interned;
use crate::interpreter::owner::Owner;
use pyo3::prelude::*;
use tensorferry_core::plan::{Pending, TargetCapabilities};
use tensorferry_core::{DType, ErrorKind, Tensor};
use tensorferry_cuda::{Gpu, Stream, SyncPoint};

/// Reads and creates the tensors of one framework.
pub(crate) trait Framework: Sync {
    /// What the framework accepts at the time of the call. Imports the framework.
    fn capabilities(&self, py: Python<'_>) -> Result<&'static TargetCapabilities>;

    /// Describes the memory of one of its tensors.
    fn read<'py>(&self, tensor: RecognisedTensor<'_, 'py>) -> Result<Source<'py>>;

    /// Performs the pending operation that `read` reported. The result is memory that nothing else refers to.
    fn materialise(&self, tensor: RecognisedTensor<'_, '_>, pending: Pending) -> Result<Tensor<Owner>>;

    /// Creates one of its tensors over the memory of `tensor`, which meets its capabilities.
    fn write<'py>(&self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>>;

    /// Refuses a write into the memory of one of its tensors, or records that the values change. Called before each write.
    fn begin_write(&self, _object: &Bound<'_, PyAny>) -> Result<()> {
        Ok(())
    }

    /// The streams on which it queues work on imported memory of this GPU.
    fn streams(&self, _py: Python<'_>, _gpu: &'static Gpu) -> Result<Streams> {
        Err(host_only())
    }

    /// Whether its users choose the current stream.
    fn has_named_streams(&self) -> bool {
        false
    }

    /// Whether the batches of a feed are uploaded into memory of ours, which it then shares. Its own allocators are bound to streams
    /// on which work may be queued, and calling them takes the GIL while the consumer needs it.
    fn accepts_epoch_memory(&self) -> bool {
        false
    }

    /// [`Framework::write`] for GPU memory. `next_use` is the sync point of the framework that waits for the memory, if the
    /// memory is not ready yet.
    fn write_gpu<'py>(
        &self,
        py: Python<'py>,
        tensor: Tensor<Owner>,
        _next_use: Option<SyncPoint>,
    ) -> Result<Bound<'py, PyAny>> {
        self.write(py, tensor)
    }

    /// Allocates a dense row-major tensor on a GPU, on `stream` if it is given and otherwise on the framework's choice.
    fn allocate<'py>(
        &self,
        _py: Python<'py>,
        _dtype: DType,
        _shape: &[i64],
        _gpu: &'static Gpu,
        _stream: Option<Stream>,
    ) -> Result<DeviceAllocation<'py>> {
        Err(host_only())
    }
}

/// The error of a framework without GPU memory. The planner rejects such a target earlier.
pub(super) fn host_only() -> Failure {
    fail(ErrorKind::UnsupportedDevice, "the framework holds host memory only", "leave out device=")
}

/// Refuses to write into a leaf that requires a gradient, as the framework itself does while gradients are enabled.
pub(super) fn refuse_leaf(
    object: &Bound<'_, PyAny>,
    is_grad_enabled: &Bound<'_, PyAny>,
    module: &str,
) -> Result<()> {
    if !object.getattr(interned!(object.py(), "is_leaf"))?.is_truthy()?
        || !is_grad_enabled.call0()?.is_truthy()?
    {
        return Ok(());
    }
    Err(fail(
        ErrorKind::InvalidArgument,
        "out is a leaf tensor that requires a gradient, and gradients are enabled",
        format!("write inside {module}.no_grad(), or pass out=out.detach()"),
    ))
}
