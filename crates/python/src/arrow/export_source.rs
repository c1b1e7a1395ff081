//! The tensors that `ferry.arrow.export` exports: their own memory where consumers can use it, or a dense copy.

use super::device_memory;
use crate::conversion::convert::convert_object;
use crate::conversion::host_copy::copy_packed;
use crate::conversion::object_kinds::RecognisedObject;
use crate::conversion::reading::{materialise, read, require_in_place};
use crate::conversion::recognise::recognise;
use crate::conversion::request::ConversionRequest;
use crate::conversion::source::SourceMemory;
use crate::conversion::streams::Streams;
use crate::errors::Result;
use crate::frameworks;
use crate::interpreter::owner::Owner;
use crate::reports::TensorReport;
use pyo3::prelude::*;
use pyo3::types::PyString;
use tensorferry_core::dtype::DTypes;
use tensorferry_core::plan::{
    self, ConvertOptions, Strides, SupportedDevices, TargetCapabilities, TargetMutability,
};
use tensorferry_core::{ByteOrder, Device, Tensor};

/// What consumers of Arrow accept. `ColumnExport` has the errors of types that Arrow lacks.
const CONSUMERS: TargetCapabilities = TargetCapabilities {
    framework: "arrow",
    title: "Arrow",
    dtypes: DTypes::ALL,
    repacked: DTypes::NONE,
    host_only: DTypes::NONE,
    own_memory: None,
    keeps_64_bit: true,
    narrow_by_default: false,
    accepts_swapped_bytes: false,
    strides: Strides::Dense,
    alignment: 1,
    max_rank: 64,
    mutability: TargetMutability::Immutable,
    devices: SupportedDevices::Both,
    default_device: Device::CPU,
    cpu_count: 1,
    default_cpu: 0,
    drops_on_own_threads: true,
};

/// A tensor whose values are complete, and how it was obtained.
pub(super) struct ExportSource {
    pub(super) tensor: Tensor<Owner>,
    pub(super) report: TensorReport,
}

/// Reads a tensor, and copies it on its device if consumers cannot use its memory.
pub(super) fn read_source(x: &Bound<'_, PyAny>) -> Result<ExportSource> {
    let (py, recognised) = (x.py(), recognise(x)?);
    let mut source = read(recognised)?;
    let (framework, streams) = (source.framework, source.take_streams());
    // No other framework could allocate the copy of a GPU tensor.
    let on_gpu = source.describe().device.is_cuda();
    let target = TargetCapabilities { drops_on_own_threads: !on_gpu, ..CONSUMERS };
    let description = source.describe_for(&target);
    let plan = plan::decide(&description, &target, &ConvertOptions::NONE)?;
    let report = TensorReport::new(&description, &target, &plan);
    let (tensor, is_new) = match source.memory {
        SourceMemory::InPlace(tensor) => (tensor, false),
        SourceMemory::Pending { pending, dtype, .. } => (materialise(&source.object, pending, dtype)?, true),
    };
    let is_dense = tensor.layout().is_dense() && tensor.order() == ByteOrder::Native;
    let is_exportable = plan.shares() || (is_new && is_dense);
    let tensor = match tensor.device() {
        device if device.is_host() && is_exportable => tensor,
        device if device.is_host() => copy_packed(py, &tensor, tensor.dtype())?,
        device if device.is_cuda() && is_exportable => {
            device_memory::complete(py, tensor, streams.unwrap_or_else(Streams::unnamed))?
        }
        device if device.is_cuda() && recognised.tensor().is_some() => {
            copy_with_framework(recognised, framework)?
        }
        // No framework allocates the memory of a copy. `ColumnExport` has the error.
        _ => tensor,
    };
    Ok(ExportSource { tensor, report })
}

/// A dense copy on the GPU, which the tensor's own framework allocates.
fn copy_with_framework(recognised: RecognisedObject<'_, '_>, framework: &str) -> Result<Tensor<Owner>> {
    let py = recognised.object().py();
    let target = frameworks::target(&PyString::new(py, framework))?;
    let options = ConvertOptions { copy: Some(true), ..ConvertOptions::NONE };
    let request = ConversionRequest { options, ..ConversionRequest::new(target) };
    let mut copied = read(recognise(&convert_object(recognised, &request)?)?)?;
    let streams = copied.take_streams().unwrap_or_else(Streams::unnamed);
    device_memory::complete(py, require_in_place(copied)?, streams)
}
