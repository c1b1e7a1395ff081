//! The tensors that `ferry.arrow.export` exports: their own memory where consumers can use it, or a dense copy. Booleans in host
//! memory are packed to bits, because few consumers support the extension type for booleans of a byte each.

use super::device_memory;
use crate::conversion::convert::convert_object;
use crate::conversion::host_copy::{DETACH_THRESHOLD_BYTES, NewArray, SendPtr, copy_packed};
use crate::conversion::object_kinds::{Recognised, RecognisedObject};
use crate::conversion::reading::{materialise, read, require_in_place};
use crate::conversion::recognise::recognise;
use crate::conversion::request::ConversionRequest;
use crate::conversion::source::SourceMemory;
use crate::conversion::streams::Streams;
use crate::errors::{Result, fail, type_name};
use crate::frameworks;
use crate::interpreter::owner::Owner;
use crate::reports::TensorReport;
use crate::trees::traverse::{container_of, tensor_of_node};
use pyo3::prelude::*;
use pyo3::types::PyString;
use tensorferry_arrow::pack_bits;
use tensorferry_core::dtype::DTypes;
use tensorferry_core::plan::{
    self, ConvertOptions, Strides, SupportedDevices, TargetCapabilities, TargetMutability,
};
use tensorferry_core::{Access, ByteOrder, DType, Device, ErrorKind, Tensor};

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

/// How booleans in host memory are exported.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Booleans {
    /// As bits, which are Arrow's own type.
    Bits,
    /// As bytes, which are shared, for a column that this process reads itself.
    Bytes,
}

/// A tensor whose values are complete, and how it was obtained.
pub(super) struct ExportSource {
    /// The elements; the bits of booleans are dense bytes.
    pub(super) tensor: Tensor<Owner>,
    /// The shape of booleans that are bits; `None` for all other tensors.
    pub(super) shape_of_bits: Option<Vec<i64>>,
    pub(super) report: TensorReport,
}

/// Reads a tensor, and copies it on its device if consumers cannot use its memory.
pub(super) fn read_source(x: &Bound<'_, PyAny>, booleans: Booleans) -> Result<ExportSource> {
    let py = x.py();
    let tensor = tensor_of_node(recognise(x)?)?;
    let recognised = recognise(tensor.as_ref().unwrap_or(x))?;
    check_kind(recognised)?;
    let mut source = read(recognised)?;
    let (framework, streams) = (source.framework, source.take_streams());
    // No other framework could allocate the copy of a GPU tensor.
    let device = source.describe().device;
    let repacked = match booleans {
        Booleans::Bits if device.is_host() => DTypes::of(&[DType::Bool]),
        _ => DTypes::NONE,
    };
    let target = TargetCapabilities { drops_on_own_threads: !device.is_cuda(), repacked, ..CONSUMERS };
    let description = source.describe_for(&target);
    let plan = plan::decide(&description, &target, &ConvertOptions::NONE)?;
    let report = TensorReport::new(&description, &target, &plan);
    let (tensor, is_new) = match source.memory {
        SourceMemory::InPlace(tensor) => (tensor, false),
        SourceMemory::Pending { dtype, .. } => {
            let tensor = materialise(&source.object, &source.memory, dtype)?;
            let is_new = tensor.access() == Access::ReadWrite;
            (tensor, is_new)
        }
    };
    if tensor.device().is_host() && target.repacked.contains(tensor.dtype()) {
        let shape_of_bits = Some(tensor.layout().shape().to_vec());
        return Ok(ExportSource { tensor: pack_booleans(py, tensor)?, shape_of_bits, report });
    }
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
    Ok(ExportSource { tensor, shape_of_bits: None, report })
}

/// The error for an object that holds tensors and is not one, or that cannot hold any.
fn check_kind(recognised: RecognisedObject<'_, '_>) -> Result<()> {
    if recognised.kind() == Recognised::Leaf || container_of(recognised)?.is_some() {
        return Err(fail(
            ErrorKind::NotATensor,
            format!("an object of type {} is not a tensor", type_name(recognised.object())),
            "export a tensor, or a dict of tensors by column",
        ));
    }
    Ok(())
}

/// The bits of booleans in host memory, in one pass if they are dense.
fn pack_booleans(py: Python<'_>, tensor: Tensor<Owner>) -> Result<Tensor<Owner>> {
    let tensor = match tensor.layout().is_dense() {
        true => tensor,
        false => copy_packed(py, &tensor, DType::Bool)?,
    };
    let count = tensor.layout().count();
    let bits = NewArray::new(DType::UInt8, &[count.div_ceil(8) as i64])?;
    let (from, to) = (SendPtr::<u8>::of(&tensor), bits.data::<u8>());
    // SAFETY: `pack_bits` requires `count` readable bytes and one writable byte for eight of them: the tensor is dense, in host memory,
    // of a byte each, and borrowed from here to the end, and the array is new and has these bytes. A Python thread that writes the
    // tensor meanwhile races with the call, as with a copy by NumPy.
    let pack = || unsafe { pack_bits(from.get(), count, to.get()) };
    if count < DETACH_THRESHOLD_BYTES {
        pack()
    } else {
        py.detach(pack)
    }
    // SAFETY: `tensor` requires that every element is written: `pack_bits` has written a byte for each eight booleans.
    Ok(unsafe { bits.tensor() }?)
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
