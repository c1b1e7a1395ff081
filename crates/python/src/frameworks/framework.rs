//! The trait that each framework's file implements.

use crate::conversion::kinds::Form;
use crate::conversion::source::Source;
use crate::conversion::streams::{Room, Streams};
use crate::errors::{Failure, Result, fail};
use crate::interpreter::owner::Owner;
use pyo3::prelude::*;
use tensorferry_core::plan::{Pending, TargetCapabilities};
use tensorferry_core::{DType, ErrorKind, Tensor};
use tensorferry_cuda::{Gpu, Stream, SyncPoint};

/// What every framework's file provides.
pub(crate) trait Framework: Sync {
    /// What it accepts, right now. Imports the framework if the caller asked for it by name.
    fn facts(&self, py: Python<'_>) -> Result<&'static TargetCapabilities>;

    /// Reads one of its tensors.
    fn read<'py>(&self, object: &Bound<'py, PyAny>, form: Form) -> Result<Source<'py>>;

    /// Does the work that a reader found put off, and gives memory that nobody else uses.
    fn materialise(&self, object: &Bound<'_, PyAny>, pending: Pending) -> Result<Tensor<Owner>>;

    /// Wraps a tensor that meets its facts as the framework's own type.
    fn write<'py>(&self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>>;

    /// Where it will queue work on memory of this GPU that it is given.
    fn streams(&self, _py: Python<'_>, _gpu: &'static Gpu) -> Result<Streams> {
        Err(host_only())
    }

    /// Whether its users choose the stream on which they use a tensor.
    fn has_named_streams(&self) -> bool {
        false
    }

    /// As [`Framework::write`], for GPU memory; `waits` is the side of it that was told to wait, if the memory is not
    /// ready yet.
    fn write_gpu<'py>(
        &self,
        py: Python<'py>,
        tensor: Tensor<Owner>,
        _waits: Option<SyncPoint>,
    ) -> Result<Bound<'py, PyAny>> {
        self.write(py, tensor)
    }

    /// New memory of its own on a GPU, dense and row-major; on this stream, if one is named, and else on its own choice.
    fn allocate<'py>(
        &self,
        _py: Python<'py>,
        _dtype: DType,
        _shape: &[i64],
        _gpu: &'static Gpu,
        _stream: Option<Stream>,
    ) -> Result<Room<'py>> {
        Err(host_only())
    }
}

/// Nobody comes here: the planner sends no GPU memory to a framework whose facts say that it holds none.
pub(super) fn host_only() -> Failure {
    fail(ErrorKind::UnsupportedDevice, "the framework holds host memory only", "leave device out")
}
