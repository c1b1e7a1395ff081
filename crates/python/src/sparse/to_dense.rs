//! The dense tensor of a sparse one, packed once, where it is wanted.
//!
//! On the host the elements are scattered into new memory, which the target then shares. Where the result is to be on a GPU, the
//! arrays go there, which are small, and the target's own scatter fills the tensor. Values with the same coordinates are summed in
//! the source's type; another type that is asked for is made of the sums.

use super::arrays::{Array, made};
use super::call_options::Request;
use super::components::Parts;
use super::convert::{self, DETACHED, Decided, ValuePlacement, stored};
use super::framework_functions;
use super::host::HostEngine;
use super::validate::{check_arrays, validate};
use crate::conversion::carry::{self, ConversionRequest};
use crate::conversion::recognise::recognise;
use crate::conversion::source::fresh_memory;
use crate::errors::{Result, fail};
use crate::frameworks;
use crate::frameworks::register::{self, Entry};
use crate::reports::{ArrayReport, PlanReport, SparseReport, TensorReport};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tensorferry_core::plan::sparse::fill_method;
use tensorferry_core::plan::{self, ConvertOptions, DeviceRequest};
use tensorferry_core::{Device, ErrorKind, Layout};

/// Who fills the dense tensor.
#[derive(Clone, Copy)]
enum Filler {
    /// The source's own framework: only it knows how a batch is laid out.
    Source,
    /// The target's framework, on a GPU.
    Target(&'static Entry),
    /// The host.
    Host,
}

/// The way of a sparse tensor to a dense one.
pub(super) struct DenseRoute<'py> {
    x: Bound<'py, PyAny>,
    parts: Parts<'py>,
    values: Array<'py>,
    filler: Filler,
    placement: ValuePlacement,
    array_request: ConversionRequest,
}

impl<'py> DenseRoute<'py> {
    /// Decides the way.
    pub(super) fn decide(
        x: &Bound<'py, PyAny>,
        source: &'static Entry,
        framework: &Bound<'py, PyAny>,
        request: &Request<'py>,
    ) -> Result<Self> {
        let py = x.py();
        let parts = Parts::read(x, source)?;
        let target = frameworks::target(framework)?;
        let array_request = ConversionRequest {
            options: request.options,
            stream: request.stream(py),
            ..ConversionRequest::plain(target)
        };
        let values = Array::read(&parts.values, parts.is_read_only)?;
        let placement = ValuePlacement::of(py, &values, &array_request)?;
        if request.options.copy == Some(false) {
            let fact = format!(
                "{} {} to a dense tensor needs a copy: a dense tensor is new memory",
                source.name,
                parts.format.name()
            );
            return Err(fail(ErrorKind::CopyRequired, fact, "leave out copy=False"));
        }
        let entry = register::find(target.facts(py)?.framework).filter(|entry| entry.has_sparse);
        let filler = match entry {
            _ if parts.batch_axes > 0 || parts.sparse_shape().is_empty() => Filler::Source,
            Some(entry) if placement.device.is_cuda() => Filler::Target(entry),
            _ => Filler::Host,
        };
        Ok(Self { x: x.clone(), parts, values, filler, placement, array_request })
    }

    /// Goes the way.
    pub(super) fn run(self) -> Result<Bound<'py, PyAny>> {
        let Self { x, parts, values, filler, placement, mut array_request } = self;
        let py = x.py();
        let request = Request::for_arrays(placement.device, &array_request, py);
        let ConvertOptions { dtype, writable, device, .. } = array_request.options;
        let follows = device == DeviceRequest::Nearest
            && placement.device == Device::CPU
            && placement.source_device == placement.device;
        let device = if follows { DeviceRequest::Nearest } else { DeviceRequest::At(placement.device) };
        array_request.options = ConvertOptions { dtype, writable, device, ..ConvertOptions::NONE };
        let object = match filler {
            Filler::Source if parts.framework.name == "torch" => {
                convert::validate_source(&parts, values, placement.source_device)?;
                x.call_method0("detach")?.call_method0("to_dense")?
            }
            // JAX leaves out what is beyond the shape.
            Filler::Source => x.call_method0("todense")?,
            Filler::Target(entry) => {
                let Decided::Converted(mut route) =
                    convert::decide(&x, parts.framework, entry, &request, true)?
                else {
                    return Err(fail(ErrorKind::InvalidTensor, "the arrays were not carried", "report this"));
                };
                let (values, coordinates) = route.arrive()?;
                let Some(scatter) = &framework_functions::functions(py, entry)?.scatter else {
                    return Err(fail(ErrorKind::UnsupportedDevice, "it fills no GPU memory", "report this"));
                };
                let is_unique = route.conversion.unique;
                let shape = PyTuple::new(py, &parts.shape)?;
                scatter.bind(py).call1((shape, values, coordinates, is_unique))?
            }
            Filler::Host => {
                let arrays = parts.index_arrays()?;
                check_arrays(&parts, &values, &arrays)?;
                let mut engine = HostEngine::new(&parts, values, arrays)?;
                let structure = validate(&parts, &mut engine)?;
                let fill = fill_method(parts.format, parts.sparse_shape().len(), &structure);
                let tensor = engine.filled(fill, &parts.shape, structure.order.unique)?;
                return carry::carry_read(py, made(py, tensor), &array_request);
            }
        };
        carry::one(&object, recognise(&object)?, &array_request)
    }

    /// The way in words.
    pub(super) fn report(self) -> Result<SparseReport> {
        let Self { parts, values, filler, placement, array_request, x } = self;
        let target = array_request.target.facts(x.py())?;
        let (device, by) = match filler {
            Filler::Source => (placement.source_device, format!(", by {} itself", parts.framework.name)),
            Filler::Target(entry) => (placement.device, format!(", by {} on the GPU", entry.name)),
            Filler::Host => (Device::CPU, String::new()),
        };
        let layout = Layout::dense(placement.source_dtype.size(), &parts.shape)?;
        let facts = fresh_memory(placement.source_dtype, &layout, device);
        let options = ConvertOptions {
            dtype: array_request.options.dtype,
            device: DeviceRequest::At(placement.device),
            ..ConvertOptions::NONE
        };
        let told = TensorReport::new(&facts, target, &plan::decide(&facts, target, &options)?);
        let scatter = format!("each element goes to its place in a dense tensor{by}");
        let steps = vec![("scatter".into(), scatter)];
        let array = ArrayReport::made(told, parts.shape.to_vec(), layout.bytes(), steps);
        let mut notes = vec!["the same place twice is summed in the source's type".to_owned()];
        if parts.is_detached {
            notes.push(DETACHED.to_owned());
        }
        Ok(SparseReport {
            source: parts.framework.name.to_owned(),
            target: target.framework.to_owned(),
            source_format: parts.name.to_string(),
            format: None,
            is_itself: false,
            source_dtype: placement.source_dtype.name().to_owned(),
            dtype: placement.dtype.name().to_owned(),
            shape: parts.shape.to_vec(),
            source_device: placement.source_device.to_string(),
            device: placement.device.to_string(),
            nnz: stored(values.shape(), parts.dense_axes),
            parts: vec![PlanReport::from(array).named("dense tensor".to_owned())],
            notes,
        })
    }
}
