//! Conversion of a sparse tensor to a dense one, written once, on the device of the result.
//!
//! On the host, a kernel scatters the elements into new memory, which the target then shares. For a result on a GPU, the component
//! arrays are uploaded, which are smaller than the tensor, and the target's own scatter fills the tensor. Values with equal
//! coordinates are summed in the source's dtype; a cast to another dtype follows the sum.

use super::arrays::{SourceArray, new_array_source};
use super::call_options::SparseCallOptions;
use super::components::SparseComponents;
use super::convert::{self, ConversionDecision, DETACHED_NOTE, ValuePlacement, stored_count};
use super::framework_functions;
use super::host::HostEngine;
use super::validate::{check_arrays, validate};
use crate::conversion::convert as dense_conversion;
use crate::conversion::gradient_warning;
use crate::conversion::recognise::recognise;
use crate::conversion::request::ConversionRequest;
use crate::conversion::source::fresh_memory;
use crate::errors::{Result, fail};
use crate::frameworks;
use crate::frameworks::builtin_frameworks::{self, Entry};
use crate::reports::{ArrayReport, PlanReport, SparseReport, TensorReport};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tensorferry_core::plan::sparse::fill_method;
use tensorferry_core::plan::{self, ConvertOptions, DeviceRequest};
use tensorferry_core::{Device, ErrorKind, Layout};

/// Which code fills the dense tensor.
#[derive(Clone, Copy)]
enum Filler {
    /// The source's own framework: only it knows the layout of a batch.
    Source,
    /// The target's framework, on a GPU.
    Target(&'static Entry),
    /// The host kernels.
    Host,
}

/// A planned conversion of a sparse tensor to a dense one.
pub(super) struct DenseConversion<'py> {
    x: Bound<'py, PyAny>,
    components: SparseComponents<'py>,
    values: SourceArray<'py>,
    filler: Filler,
    placement: ValuePlacement,
    array_request: ConversionRequest,
}

impl<'py> DenseConversion<'py> {
    /// Plans the conversion.
    pub(super) fn decide(
        x: &Bound<'py, PyAny>,
        source: &'static Entry,
        framework: &Bound<'py, PyAny>,
        call_options: &SparseCallOptions<'py>,
    ) -> Result<Self> {
        let py = x.py();
        let components = SparseComponents::read(x, source)?;
        let target = frameworks::target(framework)?;
        let array_request = ConversionRequest {
            options: call_options.options,
            stream: call_options.stream(py),
            ..ConversionRequest::new(target)
        };
        let values = SourceArray::read(&components.values, components.is_read_only)?;
        let placement = ValuePlacement::of(py, &values, &array_request)?;
        if call_options.options.copy == Some(false) {
            let fact = format!(
                "{} {} to a dense tensor needs a copy: a dense tensor is always new memory",
                source.name,
                components.format.name()
            );
            return Err(fail(ErrorKind::CopyRequired, fact, "leave out copy=False"));
        }
        let entry =
            builtin_frameworks::find(target.capabilities(py)?.framework).filter(|entry| entry.has_sparse);
        let filler = match entry {
            _ if components.batch_axes > 0 || components.sparse_shape().is_empty() => Filler::Source,
            Some(entry) if placement.device.is_cuda() => Filler::Target(entry),
            _ => Filler::Host,
        };
        Ok(Self { x: x.clone(), components, values, filler, placement, array_request })
    }

    /// The options for the new dense tensor.
    fn dense_options(&self) -> ConvertOptions {
        let (placement, ConvertOptions { dtype, writable, device, .. }) =
            (&self.placement, self.array_request.options);
        let follows = device == DeviceRequest::Nearest
            && placement.device == Device::CPU
            && placement.source_device == placement.device;
        let device = if follows { DeviceRequest::Nearest } else { DeviceRequest::At(placement.device) };
        ConvertOptions { dtype, writable, device, ..ConvertOptions::NONE }
    }

    /// Executes the conversion.
    pub(super) fn run(self) -> Result<Bound<'py, PyAny>> {
        let dense_options = self.dense_options();
        let Self { x, components, values, filler, placement, mut array_request } = self;
        let py = x.py();
        if components.is_detached {
            let target = array_request.target.capabilities(py)?.framework;
            gradient_warning::warn_once(py, components.framework.name, target)?;
        }
        let call_options = SparseCallOptions::for_arrays(placement.device, &array_request, py);
        array_request.options = dense_options;
        let object = match filler {
            Filler::Source if components.framework.name == "torch" => {
                convert::validate_source(&components, values, placement.source_device)?;
                x.call_method0("detach")?.call_method0("to_dense")?
            }
            // JAX drops elements outside the shape.
            Filler::Source => x.call_method0("todense")?,
            Filler::Target(entry) => {
                let ConversionDecision::Convert(mut conversion) =
                    convert::decide(&x, components.framework, entry, &call_options, true)?
                else {
                    return Err(fail(
                        ErrorKind::InvalidTensor,
                        "the arrays were not converted",
                        "report this",
                    ));
                };
                let (values, coordinates) = conversion.convert_arrays()?;
                let Some(scatter) = &framework_functions::functions(py, entry)?.scatter else {
                    return Err(fail(
                        ErrorKind::UnsupportedDevice,
                        "the target has no scatter function",
                        "report this",
                    ));
                };
                let is_unique = conversion.conversion.unique;
                let shape = PyTuple::new(py, &components.shape)?;
                scatter.bind(py).call1((shape, values, coordinates, is_unique))?
            }
            Filler::Host => {
                let arrays = components.index_arrays()?;
                check_arrays(&components, &values, &arrays)?;
                let mut engine = HostEngine::new(&components, values, arrays)?;
                let structure = validate(&components, &mut engine)?;
                let fill = fill_method(components.format, components.sparse_shape().len(), &structure);
                let tensor = engine.fill_dense(fill, &components.shape, structure.order.unique)?;
                return dense_conversion::convert_source(py, new_array_source(py, tensor), &array_request);
            }
        };
        dense_conversion::convert_object(recognise(&object)?, &array_request)
    }

    /// The report about the conversion.
    pub(super) fn report(&self) -> Result<SparseReport> {
        let Self { components, values, filler, placement, array_request, x } = self;
        let target = array_request.target.capabilities(x.py())?;
        let (device, by) = match filler {
            Filler::Source => (placement.source_device, format!(", by {} itself", components.framework.name)),
            Filler::Target(entry) => (placement.device, format!(", by {} on the GPU", entry.name)),
            Filler::Host => (Device::CPU, String::new()),
        };
        let layout = Layout::dense(placement.source_dtype.size(), &components.shape)?;
        let description = fresh_memory(placement.source_dtype, &layout, device);
        let plan = plan::decide(&description, target, &self.dense_options())?;
        let report = TensorReport::new(&description, target, &plan);
        let scatter = format!("the elements are scattered into a dense tensor{by}");
        let steps = vec![("scatter".into(), scatter)];
        let array = ArrayReport::for_new_array(report, components.shape.to_vec(), layout.bytes(), steps);
        let mut notes = vec!["values with equal coordinates are summed in the source's type".to_owned()];
        if components.is_detached {
            notes.push(DETACHED_NOTE.to_owned());
        }
        Ok(SparseReport {
            source: components.framework.name.to_owned(),
            target: target.framework.to_owned(),
            source_format: components.name.to_string(),
            format: None,
            is_itself: false,
            source_dtype: placement.source_dtype.name().to_owned(),
            dtype: placement.dtype.name().to_owned(),
            shape: components.shape.to_vec(),
            source_device: placement.source_device.to_string(),
            device: placement.device.to_string(),
            nnz: stored_count(values.shape(), components.dense_axes),
            parts: vec![PlanReport::from(array).named("dense tensor".to_owned())],
            notes,
        })
    }
}
