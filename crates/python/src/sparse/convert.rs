//! Conversion of one sparse tensor to another framework or format: planned first, then executed or reported.

use super::arrays::SourceArray;
use super::call_options::SparseCallOptions;
use super::components::{Shape, SparseComponents};
use super::engine::{Engine, ResultArray};
use super::gpu::GpuEngine;
use super::host::HostEngine;
use super::validate::{check_arrays, validate};
use super::{capabilities, framework_functions};
use crate::conversion::convert;
use crate::conversion::gradient_warning;
use crate::conversion::recognise::recognise;
use crate::conversion::request::ConversionRequest;
use crate::conversion::source::fresh_memory;
use crate::errors::{Result, fail};
use crate::frameworks::builtin_frameworks::Entry;
use crate::reports::{ArrayReport, PlanReport, SparseReport, TensorReport};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use smallvec::{SmallVec, smallvec};
use std::sync::atomic::{AtomicBool, Ordering};
use tensorferry_core::error::Hint;
use tensorferry_core::plan::sparse::{
    ArrayPlan, ArrayRole, CoordinateLayout, ElementWork, FormatChoice, Origin, SparseConversion,
    SparseFormat, SparseSource, SparseStructure, Step, choose, convert,
};
use tensorferry_core::plan::{
    self, ConvertOptions, DTypeRequest, DeviceRequest, Route as DenseRoute, TargetMutability,
};
use tensorferry_core::{DType, Device, ErrorKind, Layout, hints};

/// Whether arrays on the host use the GPU engine, for tests.
static FORCE_FRAMEWORK_ENGINE: AtomicBool = AtomicBool::new(false);

/// Makes arrays on the host use the GPU engine, for tests.
#[pyfunction]
pub(super) fn _sparse_use_framework_engine(is_on: bool) {
    FORCE_FRAMEWORK_ENGINE.store(is_on, Ordering::Relaxed);
}

/// The dtypes and devices of the values before and after the conversion. The index arrays follow the values' device.
pub(super) struct ValuePlacement {
    pub(super) source_dtype: DType,
    pub(super) dtype: DType,
    pub(super) source_device: Device,
    pub(super) device: Device,
}

impl ValuePlacement {
    /// Plans the conversion of the values.
    pub(super) fn of(
        py: Python<'_>,
        values: &SourceArray<'_>,
        array_request: &ConversionRequest,
    ) -> Result<Self> {
        let target = array_request.target.capabilities(py)?;
        let description = values.source().describe_for(target);
        let options = ConvertOptions { copy: None, writable: None, ..array_request.options };
        let plan = plan::decide(&description, target, &options).map_err(|error| match error.hint() {
            // Few sparse tensors have a real part of their own.
            Some(Hint::Key(hints::TAKE_REAL_PART, _)) => {
                error.with_hint_value(hints::TAKE_REAL_PART, "ferry.sparse.to(x, \"scipy\").real")
            }
            _ => error,
        })?;
        crate::conversion::request::check_stream(&description, &plan, array_request)?;
        if plan.device.is_cuda() && !matches!(plan.route, DenseRoute::Itself) {
            crate::conversion::to_gpu::gpu_of(target, plan.device)?;
        }
        Ok(Self {
            source_dtype: description.dtype,
            dtype: plan.dtype,
            source_device: description.device,
            device: plan.device,
        })
    }
}

/// A planned conversion of a sparse tensor, with the engine that executes it.
pub(super) struct PlannedConversion<'py> {
    pub(super) components: SparseComponents<'py>,
    target: &'static Entry,
    pub(super) placement: ValuePlacement,
    choice: FormatChoice,
    structure: SparseStructure,
    pub(super) conversion: SparseConversion,
    engine: Box<dyn Engine<'py> + 'py>,
    values_shape: Shape,
    array_request: ConversionRequest,
    /// The options of the call.
    options: ConvertOptions,
    /// Whether the host processes arrays of a GPU, because no framework on the GPU can.
    falls_back_to_host: bool,
}

/// The planner's decision about a sparse tensor.
pub(super) enum ConversionDecision<'py> {
    /// The source itself is the result.
    Itself(SparseComponents<'py>, ValuePlacement, Shape),
    Convert(Box<PlannedConversion<'py>>),
}

/// Plans the conversion of a sparse tensor. With `is_relaxed`, order and duplicates do not matter: the arrays are scattered into a
/// dense tensor.
pub(super) fn decide<'py>(
    x: &Bound<'py, PyAny>,
    source: &'static Entry,
    target: &'static Entry,
    call_options: &SparseCallOptions<'py>,
    is_relaxed: bool,
) -> Result<ConversionDecision<'py>> {
    let py = x.py();
    let components = SparseComponents::read(x, source)?;
    let block = call_options.block_size()?;
    let values = SourceArray::read(&components.values, components.is_read_only)?;
    let arrays = components.index_arrays()?;
    let array_request = ConversionRequest {
        options: call_options.options,
        stream: call_options.stream(py),
        ..ConversionRequest::new(capabilities::array_target(target))
    };
    let values_shape = Shape::from_slice(values.shape());
    let placement = ValuePlacement::of(py, &values, &array_request)?;
    if !is_relaxed
        && std::ptr::eq(source, target)
        && call_options.matches_format(&components.name)?
        && (block.is_none() || block == components.block)
        && is_itself(py, &values, &arrays, &array_request)?
    {
        return Ok(ConversionDecision::Itself(components, placement, values_shape));
    }
    let mut index_dtypes: SmallVec<[DType; 2]> = arrays.iter().map(SourceArray::dtype).collect();
    index_dtypes.sort_by_key(|dtype| dtype.name());
    index_dtypes.dedup();
    let source_description = SparseSource {
        framework: source.name,
        format: components.format,
        is_matrix: components.name.to_str()?.ends_with("matrix"),
        layout: components.layout,
        shape: &components.shape,
        batch_axes: components.batch_axes,
        dense_axes: components.dense_axes,
        block: components.block,
        index_dtypes: &index_dtypes,
    };
    let capabilities = capabilities::sparse_capabilities(py, target)?;
    let mut choice =
        choose(&source_description, &capabilities, &call_options.planner_request(&capabilities, block)?)?;
    if is_relaxed {
        choice = choice.relaxed();
    }
    choice.check_axes(&source_description)?;
    choice.check_dtype(placement.dtype)?;
    check_arrays(&components, &values, &arrays)?;
    let (mut engine, falls_back_to_host) =
        select_engine(&components, values, arrays, placement.source_device, target)?;
    let structure = validate(&components, &mut *engine)?;
    let mut conversion = convert(&source_description, &structure, &choice, &mut *engine)?;
    conversion.pack_strided(&source_description, &choice.capabilities, |conversion, role| {
        engine.is_dense(conversion, role)
    })?;
    Ok(ConversionDecision::Convert(Box::new(PlannedConversion {
        components,
        target,
        placement,
        choice,
        structure,
        conversion,
        engine,
        values_shape,
        options: array_request.options,
        array_request,
        falls_back_to_host,
    })))
}

/// Validates a tensor that its own framework makes dense.
pub(super) fn validate_source<'py>(
    components: &SparseComponents<'py>,
    values: SourceArray<'py>,
    device: Device,
) -> Result<()> {
    let arrays = components.index_arrays()?;
    check_arrays(components, &values, &arrays)?;
    let (mut engine, _) = select_engine(components, values, arrays, device, components.framework)?;
    validate(components, &mut *engine).map(drop)
}

/// Whether every array can stay as it is, so that the source is the result.
fn is_itself(
    py: Python<'_>,
    values: &SourceArray<'_>,
    arrays: &[SourceArray<'_>],
    array_request: &ConversionRequest,
) -> Result<bool> {
    if array_request.options.copy == Some(true) {
        return Ok(false);
    }
    let target = array_request.target.capabilities(py)?;
    let stays = |array: &SourceArray<'_>, dtype: DTypeRequest| -> Result<bool> {
        let options = ConvertOptions { dtype, copy: None, ..array_request.options };
        let plan = plan::decide(&array.source().describe_for(target), target, &options)?;
        Ok(matches!(plan.route, DenseRoute::Itself))
    };
    if !stays(values, array_request.options.dtype)? {
        return Ok(false);
    }
    for array in arrays {
        if !stays(array, DTypeRequest::Same)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The engine for arrays on a device, and whether it is the host engine for want of one on the GPU.
fn select_engine<'py>(
    components: &SparseComponents<'py>,
    values: SourceArray<'py>,
    arrays: SmallVec<[SourceArray<'py>; 2]>,
    device: Device,
    target: &'static Entry,
) -> Result<(Box<dyn Engine<'py> + 'py>, bool)> {
    let py = components.values.py();
    if device.is_cuda() || FORCE_FRAMEWORK_ENGINE.load(Ordering::Relaxed) {
        if let Some(framework) = GpuEngine::framework(py, target.name, components.framework.name)? {
            return Ok((Box::new(GpuEngine::new(components, framework, device)?), false));
        }
        return Ok((Box::new(HostEngine::new(components, values, arrays)?), true));
    }
    Ok((Box::new(HostEngine::new(components, values, arrays)?), false))
}

impl<'py> PlannedConversion<'py> {
    /// Executes the conversion and returns the target's tensor.
    pub(super) fn run(mut self) -> Result<Bound<'py, PyAny>> {
        let py = self.components.values.py();
        if self.options.copy == Some(false) {
            self.check_shares()?;
        }
        if self.components.is_detached {
            gradient_warning::warn_once(py, self.components.framework.name, self.target.name)?;
        }
        let (values, arrays) = self.convert_arrays()?;
        let format = self.format_name();
        let shape = PyTuple::new(py, &self.components.shape)?;
        let write = framework_functions::functions(py, self.target)?.write.bind(py);
        let SparseConversion { in_order, unique, .. } = self.conversion;
        Ok(write.call1((format, shape, values, arrays, in_order, unique))?)
    }

    /// Converts the arrays: the values, and the index arrays.
    pub(super) fn convert_arrays(&mut self) -> Result<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = self.components.values.py();
        let mut converted: SmallVec<[Bound<'py, PyAny>; 4]> = SmallVec::new();
        for number in 0..self.conversion.arrays.len() {
            let ArrayPlan { role, origin } = &self.conversion.arrays[number];
            let role = *role;
            let is_from_source = *origin == Origin::Given;
            let array = match origin {
                Origin::Given => self.engine.take_source_array(&self.conversion, role)?,
                Origin::Made(steps) if steps[..] == [Step::Pack] => {
                    self.engine.pack_array(&self.conversion, role)?
                }
                Origin::Made(_) => self.engine.make_array(&self.conversion, role)?,
            };
            self.array_request.options = self.array_options(role, is_from_source, &array)?;
            converted.push(match array {
                ResultArray::Source(source) => convert::convert_source(py, source, &self.array_request)?,
                ResultArray::Object(object) => {
                    convert::convert_object(recognise(&object)?, &self.array_request)?
                }
            });
        }
        let mut arrays = converted.into_iter();
        let Some(values) = arrays.next() else {
            return Err(fail(ErrorKind::InvalidTensor, "the tensor has no values", "report this"));
        };
        let arrays: SmallVec<[Bound<'py, PyAny>; 3]> = arrays.collect();
        Ok((values, PyTuple::new(py, arrays)?))
    }

    /// The options for one array. A dtype that the array already has is not requested again.
    fn array_options(
        &self,
        role: ArrayRole,
        is_from_source: bool,
        array: &ResultArray<'py>,
    ) -> Result<ConvertOptions> {
        let index = self.conversion.index_dtype;
        let dtype = match role {
            ArrayRole::Values => self.options.dtype,
            _ if array_dtype(array)? == index => DTypeRequest::Same,
            _ => DTypeRequest::Type(index),
        };
        let mut options = self.options_for_dtype(dtype);
        if is_from_source {
            // A framework's GPU array cannot be marked read-only, unlike memory that tensorferry has read.
            let is_object = matches!(array, ResultArray::Object(_));
            let capabilities = self.array_request.target.capabilities(self.components.values.py())?;
            let is_lent = is_object
                && self.components.is_read_only
                && capabilities.mutability == TargetMutability::Writable;
            options.copy = if is_lent { Some(true) } else { self.options.copy.filter(|&copy| copy) };
        }
        Ok(options)
    }

    /// The options for a new array of this dtype.
    fn options_for_dtype(&self, dtype: DTypeRequest) -> ConvertOptions {
        let ValuePlacement { source_device, device, .. } = self.placement;
        let follows =
            self.options.device == DeviceRequest::Nearest && device == Device::CPU && source_device == device;
        ConvertOptions {
            dtype,
            copy: None,
            writable: self.options.writable,
            budget: None,
            device: if follows { DeviceRequest::Nearest } else { DeviceRequest::At(device) },
        }
    }

    /// The name of the result's format in its framework.
    fn format_name(&self) -> String {
        let name = self.choice.capabilities.format.name();
        if self.choice.is_matrix { format!("{name}_matrix") } else { name.to_owned() }
    }

    /// The shape of one array of the result.
    fn shape(&mut self, role: ArrayRole) -> Result<Vec<i64>> {
        let (components, conversion) = (&self.components, &self.conversion);
        if conversion.work == ElementWork::Keep && self.structure.spare == 0 {
            let number = (0..components.arrays.len()).find(|&number| components.role(number) == role);
            return match number {
                Some(number) => Ok(SourceArray::read(&components.arrays[number], false)?.shape().to_vec()),
                None => Ok(self.values_shape.to_vec()),
            };
        }
        let count = match (conversion.count, conversion.work) {
            (Some(count), _) => count,
            (None, ElementWork::Blocks(block)) => self.engine.block_count(block)?,
            _ => 0,
        } as i64;
        let lengths = self.components.sparse_shape();
        let block = match (self.conversion.work, self.conversion.format) {
            (ElementWork::Blocks(block), _) => Some(block),
            (ElementWork::Keep, SparseFormat::Bsr) => self.components.block,
            _ => None,
        };
        Ok(match role {
            ArrayRole::Values => {
                let dense =
                    &self.components.shape[self.components.shape.len() - self.components.dense_axes..];
                let block = block.as_ref().map_or(&[][..], |block| &block[..]);
                [&[count], block, dense].concat()
            }
            ArrayRole::Pointers => {
                let leading = self.conversion.format.leading_axis();
                vec![lengths[leading] / block.map_or(1, |block| block[leading]) + 1]
            }
            ArrayRole::Indices | ArrayRole::Axis(..) => vec![count],
            ArrayRole::Coordinates if self.conversion.layout == CoordinateLayout::Axes => {
                vec![lengths.len() as i64, count]
            }
            ArrayRole::Coordinates => vec![count, lengths.len() as i64],
        })
    }

    /// The report about one array.
    fn array_report(&mut self, number: usize) -> Result<ArrayReport> {
        let py = self.components.values.py();
        let ArrayPlan { role, origin } = self.conversion.arrays[number].clone();
        let shape = self.shape(role)?;
        match origin {
            Origin::Given => {
                let array = self.engine.peek_source_array(&self.conversion, role)?;
                self.array_request.options = self.array_options(role, true, &array)?;
                let report = match &array {
                    ResultArray::Source(source) => {
                        let target = self.array_request.target.capabilities(py)?;
                        let description = source.describe_for(target);
                        let plan = plan::decide(&description, target, &self.array_request.options)?;
                        TensorReport::new(&description, target, &plan)
                    }
                    ResultArray::Object(object) => {
                        convert::plan_object(recognise(object)?, &self.array_request)?
                    }
                };
                let cast = match role {
                    ArrayRole::Values => None,
                    _ => Some(self.cast_reason(array_dtype(&array)?)),
                };
                Ok(ArrayReport::for_source_array(report, shape, cast))
            }
            Origin::Made(steps) => {
                let values = role == ArrayRole::Values;
                let dtype = if values { self.placement.source_dtype } else { self.conversion.index_dtype };
                let layout = Layout::dense(dtype.size(), &shape)?;
                let description = fresh_memory(dtype, &layout, self.placement.source_device);
                let target = self.array_request.target.capabilities(py)?;
                let options =
                    self.options_for_dtype(if values { self.options.dtype } else { DTypeRequest::Same });
                let plan = plan::decide(&description, target, &options)?;
                let report = TensorReport::new(&description, target, &plan);
                let steps = steps.iter().map(|step| (step.kind().into(), step.sentence().into_owned()));
                Ok(ArrayReport::for_new_array(report, shape, layout.bytes(), steps.collect()))
            }
        }
    }

    fn cast_reason(&self, from: DType) -> String {
        let (to, title) = (self.conversion.index_dtype, self.target.title);
        Step::Cast { from: smallvec![from], to, title }.sentence().into_owned()
    }

    /// Raises if an array is copied.
    fn check_shares(&mut self) -> Result<()> {
        for number in 0..self.conversion.arrays.len() {
            let report = self.array_report(number)?;
            if !report.is_shared() {
                let role = self.conversion.arrays[number].role;
                let fact = format!(
                    "{} {} to {} {} needs a copy of the {}: {}",
                    self.components.framework.name,
                    self.components.name,
                    self.target.name,
                    self.format_name(),
                    role.name(),
                    report.first_reason()
                );
                let hint = "leave out copy=False to allow the copy, or pass a format that both frameworks store alike";
                return Err(fail(ErrorKind::CopyRequired, fact, hint));
            }
        }
        Ok(())
    }

    /// The report about the conversion.
    pub(super) fn report(&mut self) -> Result<SparseReport> {
        if self.options.copy == Some(false) {
            self.check_shares()?;
        }
        let mut arrays = Vec::new();
        for number in 0..self.conversion.arrays.len() {
            arrays.push((self.conversion.arrays[number].role, self.array_report(number)?));
        }
        let notes = self.notes(&arrays);
        let reports = arrays
            .into_iter()
            .map(|(role, report)| PlanReport::from(report).named(role.name().into_owned()))
            .collect();
        Ok(SparseReport {
            source: self.components.framework.name.to_owned(),
            target: self.target.name.to_owned(),
            source_format: self.components.name.to_string(),
            format: Some(self.format_name()),
            is_itself: false,
            source_dtype: self.placement.source_dtype.name().to_owned(),
            dtype: self.placement.dtype.name().to_owned(),
            shape: self.components.shape.to_vec(),
            source_device: self.placement.source_device.to_string(),
            device: self.placement.device.to_string(),
            nnz: stored_count(&self.values_shape, self.components.dense_axes),
            parts: reports,
            notes,
        })
    }

    fn notes(&self, arrays: &[(ArrayRole, ArrayReport)]) -> Vec<String> {
        let mut notes = Vec::new();
        let (from, to) = (self.components.format, self.conversion.format);
        if from != to {
            notes.push(format!("{} becomes {}", from.name(), to.name()));
        }
        if self.structure.spare > 0 {
            let spare = self.structure.spare;
            notes.push(format!("{spare} stored elements outside the tensor are dropped"));
        }
        notes.push(self.conversion.order_note().to_owned());
        if self.components.is_detached {
            notes.push(DETACHED_NOTE.to_owned());
        }
        if self.falls_back_to_host {
            notes.push(HOST_FALLBACK_NOTE.to_owned());
        }
        for note in arrays.iter().flat_map(|(_, report)| report.notes()) {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        notes
    }
}

/// The note on a tensor that required a gradient.
pub(super) const DETACHED_NOTE: &str = "detached: no gradient flows back through it";

const HOST_FALLBACK_NOTE: &str =
    "the host processes the indices: the GPU needs PyTorch or CuPy for that, and neither is imported";

/// The report about a tensor that is itself the result.
pub(super) fn unchanged_report(
    components: &SparseComponents<'_>,
    placement: &ValuePlacement,
    values_shape: &[i64],
) -> SparseReport {
    SparseReport {
        source: components.framework.name.to_owned(),
        target: components.framework.name.to_owned(),
        source_format: components.name.to_string(),
        format: Some(components.name.to_string()),
        is_itself: true,
        source_dtype: placement.source_dtype.name().to_owned(),
        dtype: placement.source_dtype.name().to_owned(),
        shape: components.shape.to_vec(),
        source_device: placement.source_device.to_string(),
        device: placement.source_device.to_string(),
        nnz: stored_count(values_shape, components.dense_axes),
        parts: Vec::new(),
        notes: Vec::new(),
    }
}

/// The number of stored elements; blocks and batches count by element.
pub(super) fn stored_count(values_shape: &[i64], dense_axes: usize) -> usize {
    let kept = values_shape.len().saturating_sub(dense_axes);
    values_shape[..kept].iter().product::<i64>() as usize
}

fn array_dtype(array: &ResultArray<'_>) -> Result<DType> {
    match array {
        ResultArray::Source(source) => Ok(source.describe().dtype),
        ResultArray::Object(object) => Ok(SourceArray::read(object, false)?.dtype()),
    }
}
