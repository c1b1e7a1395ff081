//! The way of one sparse tensor to a framework: decided first, then reported or gone.

use super::arrays::Array;
use super::call_options::Request;
use super::components::{Parts, Shape};
use super::engine::{Arriving, Engine};
use super::gpu::GpuEngine;
use super::host::HostEngine;
use super::validate::{check_arrays, validate};
use super::{capabilities, framework_functions};
use crate::conversion::carry::{self, ConversionRequest};
use crate::conversion::recognise::recognise;
use crate::conversion::source::fresh_memory;
use crate::errors::{Result, fail};
use crate::frameworks::register::Entry;
use crate::reports::{ArrayReport, PlanReport, SparseReport, TensorReport};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use smallvec::{SmallVec, smallvec};
use std::sync::atomic::{AtomicBool, Ordering};
use tensorferry_core::plan::sparse::{
    ArrayPlan, ArrayRole, CoordinateLayout, ElementWork, FormatChoice, Origin, SparseConversion,
    SparseFormat, SparseSource, SparseStructure, Step, choose, convert,
};
use tensorferry_core::plan::{
    self, ConvertOptions, DTypeRequest, DeviceRequest, Route as DenseRoute, TargetMutability,
};
use tensorferry_core::{DType, Device, ErrorKind, Layout};

/// Whether tests have the engine for GPUs work on arrays of the host.
static FRAMEWORK_ENGINE: AtomicBool = AtomicBool::new(false);

/// Has the engine for GPUs work on arrays of the host, for tests.
#[pyfunction]
pub(super) fn _sparse_use_framework_engine(is_on: bool) {
    FRAMEWORK_ENGINE.store(is_on, Ordering::Relaxed);
}

/// What becomes of the values, which says where everything goes.
pub(super) struct ValuePlacement {
    pub(super) source_dtype: DType,
    pub(super) dtype: DType,
    pub(super) source_device: Device,
    pub(super) device: Device,
}

impl ValuePlacement {
    /// Plans the way of the values.
    pub(super) fn of(py: Python<'_>, values: &Array<'_>, array_request: &ConversionRequest) -> Result<Self> {
        let target = array_request.target.facts(py)?;
        let facts = values.source().facts_for(target);
        let options = ConvertOptions { copy: None, writable: None, ..array_request.options };
        let plan = plan::decide(&facts, target, &options)?;
        carry::check_stream(&facts, &plan, array_request)?;
        if plan.device.is_cuda() && !matches!(plan.route, DenseRoute::Itself) {
            carry::gpu_of(target, plan.device)?;
        }
        Ok(Self {
            source_dtype: facts.dtype,
            dtype: plan.dtype,
            source_device: facts.device,
            device: plan.device,
        })
    }
}

/// The way of a sparse tensor that does not stay what it is.
pub(super) struct Route<'py> {
    pub(super) parts: Parts<'py>,
    target: &'static Entry,
    pub(super) placement: ValuePlacement,
    choice: FormatChoice,
    structure: SparseStructure,
    pub(super) conversion: SparseConversion,
    engine: Box<dyn Engine<'py> + 'py>,
    values_shape: Shape,
    array_request: ConversionRequest,
    request: ConvertOptions,
    /// Whether the host works on arrays of a GPU.
    is_on_host_instead: bool,
}

/// The way of a sparse tensor.
pub(super) enum Decided<'py> {
    /// The source itself is the result.
    Itself(Parts<'py>, ValuePlacement, Shape),
    Converted(Box<Route<'py>>),
}

/// Decides the way of a sparse tensor. `is_relaxed` arrays only pass through on their way into a dense tensor.
pub(super) fn decide<'py>(
    x: &Bound<'py, PyAny>,
    source: &'static Entry,
    target: &'static Entry,
    request: &Request<'py>,
    is_relaxed: bool,
) -> Result<Decided<'py>> {
    let py = x.py();
    let parts = Parts::read(x, source)?;
    let block = request.block()?;
    let values = Array::read(&parts.values, parts.is_read_only)?;
    let arrays = parts.index_arrays()?;
    let array_request = ConversionRequest {
        options: request.options,
        stream: request.stream(py),
        ..ConversionRequest::plain(capabilities::arrays_of(target))
    };
    let values_shape = Shape::from_slice(values.shape());
    if !is_relaxed
        && std::ptr::eq(source, target)
        && request.names(&parts.name)?
        && (block.is_none() || block == parts.block)
        && is_itself(py, &values, &arrays, &array_request)?
    {
        let placement = ValuePlacement::of(py, &values, &array_request)?;
        return Ok(Decided::Itself(parts, placement, values_shape));
    }
    let mut index_dtypes: SmallVec<[DType; 2]> = arrays.iter().map(Array::dtype).collect();
    index_dtypes.sort_by_key(|dtype| dtype.name());
    index_dtypes.dedup();
    let facts = SparseSource {
        framework: source.name,
        format: parts.format,
        is_matrix: parts.name.to_str()?.ends_with("matrix"),
        layout: parts.layout,
        shape: &parts.shape,
        batch_axes: parts.batch_axes,
        dense_axes: parts.dense_axes,
        block: parts.block,
        index_dtypes: &index_dtypes,
    };
    let capabilities = capabilities::target_of(py, target)?;
    let mut choice = choose(&facts, &capabilities, &request.sparse(&capabilities, block)?)?;
    if is_relaxed {
        choice = choice.relaxed();
    }
    choice.check_axes(&facts)?;
    let placement = ValuePlacement::of(py, &values, &array_request)?;
    choice.check_dtype(placement.dtype)?;
    check_arrays(&parts, &values, &arrays)?;
    let (mut engine, is_on_host_instead) = engine(&parts, values, arrays, placement.source_device, target)?;
    let structure = validate(&parts, &mut *engine)?;
    let mut conversion = convert(&facts, &structure, &choice, &mut *engine)?;
    conversion
        .pack_strided(&facts, &choice.capabilities, |conversion, role| engine.is_dense(conversion, role))?;
    Ok(Decided::Converted(Box::new(Route {
        parts,
        target,
        placement,
        choice,
        structure,
        conversion,
        engine,
        values_shape,
        request: array_request.options,
        array_request,
        is_on_host_instead,
    })))
}

/// Validates a tensor of which its own framework makes a dense one.
pub(super) fn validate_source<'py>(parts: &Parts<'py>, values: Array<'py>, device: Device) -> Result<()> {
    let arrays = parts.index_arrays()?;
    check_arrays(parts, &values, &arrays)?;
    let (mut engine, _) = engine(parts, values, arrays, device, parts.framework)?;
    validate(parts, &mut *engine).map(drop)
}

/// Whether nothing has to change.
fn is_itself(
    py: Python<'_>,
    values: &Array<'_>,
    arrays: &[Array<'_>],
    array_request: &ConversionRequest,
) -> Result<bool> {
    if array_request.options.copy == Some(true) {
        return Ok(false);
    }
    let target = array_request.target.facts(py)?;
    let stays = |array: &Array<'_>, dtype: DTypeRequest| -> Result<bool> {
        let options = ConvertOptions { dtype, copy: None, ..array_request.options };
        let plan = plan::decide(&array.source().facts_for(target), target, &options)?;
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

/// The engine for arrays of a device, and whether the host has to do what a GPU should.
fn engine<'py>(
    parts: &Parts<'py>,
    values: Array<'py>,
    arrays: SmallVec<[Array<'py>; 2]>,
    device: Device,
    target: &'static Entry,
) -> Result<(Box<dyn Engine<'py> + 'py>, bool)> {
    let py = parts.values.py();
    if device.is_cuda() || FRAMEWORK_ENGINE.load(Ordering::Relaxed) {
        if let Some(framework) = GpuEngine::framework(py, target.name, parts.framework.name)? {
            return Ok((Box::new(GpuEngine::new(parts, framework, device)?), false));
        }
        return Ok((Box::new(HostEngine::new(parts, values, arrays)?), true));
    }
    Ok((Box::new(HostEngine::new(parts, values, arrays)?), false))
}

impl<'py> Route<'py> {
    /// Goes the way, and gives the target's tensor.
    pub(super) fn run(mut self) -> Result<Bound<'py, PyAny>> {
        let py = self.parts.values.py();
        if self.request.copy == Some(false) {
            self.check_shares()?;
        }
        let (values, arrays) = self.arrive()?;
        let format = self.format_name();
        let shape = PyTuple::new(py, &self.parts.shape)?;
        let write = framework_functions::functions(py, self.target)?.write.bind(py);
        let SparseConversion { in_order, unique, .. } = self.conversion;
        Ok(write.call1((format, shape, values, arrays, in_order, unique))?)
    }

    /// Carries the arrays: the values, and those that hold indices.
    pub(super) fn arrive(&mut self) -> Result<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = self.parts.values.py();
        let mut arrived: SmallVec<[Bound<'py, PyAny>; 4]> = SmallVec::new();
        for number in 0..self.conversion.arrays.len() {
            let ArrayPlan { role, origin } = &self.conversion.arrays[number];
            let role = *role;
            let is_given = *origin == Origin::Given;
            let array = match origin {
                Origin::Given => self.engine.give(&self.conversion, role)?,
                Origin::Made(steps) if steps[..] == [Step::Pack] => {
                    self.engine.pack(&self.conversion, role)?
                }
                Origin::Made(_) => self.engine.make(&self.conversion, role)?,
            };
            self.array_request.options = self.options(role, is_given, &array)?;
            arrived.push(match array {
                Arriving::Source(source) => carry::carry_read(py, source, &self.array_request)?,
                Arriving::Object(object) => carry::one(&object, recognise(&object)?, &self.array_request)?,
            });
        }
        let mut arrays = arrived.into_iter();
        let Some(values) = arrays.next() else {
            return Err(fail(ErrorKind::InvalidTensor, "the tensor has no values", "report this"));
        };
        let arrays: SmallVec<[Bound<'py, PyAny>; 3]> = arrays.collect();
        Ok((values, PyTuple::new(py, arrays)?))
    }

    /// What the planner of dense tensors is asked for, for one array; nothing that follows by itself.
    fn options(&self, role: ArrayRole, is_given: bool, array: &Arriving<'py>) -> Result<ConvertOptions> {
        let index = self.conversion.index_dtype;
        let dtype = match role {
            ArrayRole::Values => self.request.dtype,
            _ if own_dtype(array)? == index => DTypeRequest::Same,
            _ => DTypeRequest::Type(index),
        };
        let mut options = self.wishes_for(dtype);
        if is_given {
            // An array of a GPU does not say that nobody may write it, as memory that we have read does.
            let is_object = matches!(array, Arriving::Object(_));
            let facts = self.array_request.target.facts(self.parts.values.py())?;
            let is_lent =
                is_object && self.parts.is_read_only && facts.mutability == TargetMutability::Writable;
            options.copy = if is_lent { Some(true) } else { self.request.copy.filter(|&copy| copy) };
        }
        Ok(options)
    }

    /// The same for an array that is made in this type.
    fn wishes_for(&self, dtype: DTypeRequest) -> ConvertOptions {
        let ValuePlacement { source_device, device, .. } = self.placement;
        let follows =
            self.request.device == DeviceRequest::Nearest && device == Device::CPU && source_device == device;
        ConvertOptions {
            dtype,
            copy: None,
            writable: self.request.writable,
            budget: None,
            device: if follows { DeviceRequest::Nearest } else { DeviceRequest::At(device) },
        }
    }

    /// The format of the result, as its framework calls it.
    fn format_name(&self) -> String {
        let name = self.choice.capabilities.format.name();
        if self.choice.is_matrix { format!("{name}_matrix") } else { name.to_owned() }
    }

    /// The shape of one array of the result.
    fn shape(&mut self, role: ArrayRole) -> Result<Vec<i64>> {
        let (parts, conversion) = (&self.parts, &self.conversion);
        if conversion.work == ElementWork::Keep && self.structure.spare == 0 {
            let number = (0..parts.arrays.len()).find(|&number| parts.role(number) == role);
            return match number {
                Some(number) => Ok(Array::read(&parts.arrays[number], false)?.shape().to_vec()),
                None => Ok(self.values_shape.to_vec()),
            };
        }
        let count = match (conversion.count, conversion.work) {
            (Some(count), _) => count,
            (None, ElementWork::Blocks(block)) => self.engine.block_count(block)?,
            _ => 0,
        } as i64;
        let lengths = self.parts.sparse_shape();
        let block = match (self.conversion.work, self.conversion.format) {
            (ElementWork::Blocks(block), _) => Some(block),
            (ElementWork::Keep, SparseFormat::Bsr) => self.parts.block,
            _ => None,
        };
        Ok(match role {
            ArrayRole::Values => {
                let dense = &self.parts.shape[self.parts.shape.len() - self.parts.dense_axes..];
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

    /// What happens to one array.
    fn array_report(&mut self, number: usize) -> Result<ArrayReport> {
        let py = self.parts.values.py();
        let ArrayPlan { role, origin } = self.conversion.arrays[number].clone();
        let shape = self.shape(role)?;
        match origin {
            Origin::Given => {
                let array = self.engine.peek(&self.conversion, role)?;
                self.array_request.options = self.options(role, true, &array)?;
                let told = match &array {
                    Arriving::Source(source) => {
                        let target = self.array_request.target.facts(py)?;
                        let facts = source.facts_for(target);
                        let plan = plan::decide(&facts, target, &self.array_request.options)?;
                        TensorReport::new(&facts, target, &plan)
                    }
                    Arriving::Object(object) => {
                        carry::plan_one(object, recognise(object)?, &self.array_request)?
                    }
                };
                let cast = match role {
                    ArrayRole::Values => None,
                    _ => Some(self.cast_reason(own_dtype(&array)?)),
                };
                Ok(ArrayReport::given(told, shape, cast))
            }
            Origin::Made(steps) => {
                let values = role == ArrayRole::Values;
                let dtype = if values { self.placement.source_dtype } else { self.conversion.index_dtype };
                let layout = Layout::dense(dtype.size(), &shape)?;
                let facts = fresh_memory(dtype, &layout, self.placement.source_device);
                let target = self.array_request.target.facts(py)?;
                let options = self.wishes_for(if values { self.request.dtype } else { DTypeRequest::Same });
                let plan = plan::decide(&facts, target, &options)?;
                let told = TensorReport::new(&facts, target, &plan);
                let steps = steps.iter().map(|step| (step.kind().into(), step.sentence().into_owned()));
                Ok(ArrayReport::made(told, shape, layout.bytes(), steps.collect()))
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
                    self.parts.framework.name,
                    self.parts.name,
                    self.target.name,
                    self.format_name(),
                    role.name(),
                    report.first_reason()
                );
                let hint = "leave out copy=False to allow the copy, or pass a format that both keep alike";
                return Err(fail(ErrorKind::CopyRequired, fact, hint));
            }
        }
        Ok(())
    }

    /// The way in words.
    pub(super) fn report(mut self) -> Result<SparseReport> {
        if self.request.copy == Some(false) {
            self.check_shares()?;
        }
        let mut arrays = Vec::new();
        for number in 0..self.conversion.arrays.len() {
            arrays.push((self.conversion.arrays[number].role, self.array_report(number)?));
        }
        let notes = self.notes(&arrays);
        let parts = arrays
            .into_iter()
            .map(|(role, report)| PlanReport::from(report).named(role.name().into_owned()))
            .collect();
        Ok(SparseReport {
            source: self.parts.framework.name.to_owned(),
            target: self.target.name.to_owned(),
            source_format: self.parts.name.to_string(),
            format: Some(self.format_name()),
            is_itself: false,
            source_dtype: self.placement.source_dtype.name().to_owned(),
            dtype: self.placement.dtype.name().to_owned(),
            shape: self.parts.shape.to_vec(),
            source_device: self.placement.source_device.to_string(),
            device: self.placement.device.to_string(),
            nnz: stored(&self.values_shape, self.parts.dense_axes),
            parts,
            notes,
        })
    }

    fn notes(&self, arrays: &[(ArrayRole, ArrayReport)]) -> Vec<String> {
        let mut notes = Vec::new();
        let (from, to) = (self.parts.format, self.conversion.format);
        if from != to {
            notes.push(format!("{} becomes {}", from.name(), to.name()));
        }
        if self.structure.spare > 0 {
            let spare = self.structure.spare;
            notes.push(format!("{spare} stored elements beyond the tensor are left behind"));
        }
        notes.push(self.conversion.order_note().to_owned());
        if self.parts.is_detached {
            notes.push(DETACHED.to_owned());
        }
        if self.is_on_host_instead {
            notes.push(ON_HOST_INSTEAD.to_owned());
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
pub(super) const DETACHED: &str = "carried detached: no gradient flows back through it";

const ON_HOST_INSTEAD: &str =
    "the indices are worked on by the host: that takes PyTorch or CuPy on a GPU, and neither is loaded";

/// The report of a tensor that is the result itself.
pub(super) fn itself_report(
    parts: &Parts<'_>,
    placement: &ValuePlacement,
    values_shape: &[i64],
) -> SparseReport {
    SparseReport {
        source: parts.framework.name.to_owned(),
        target: parts.framework.name.to_owned(),
        source_format: parts.name.to_string(),
        format: Some(parts.name.to_string()),
        is_itself: true,
        source_dtype: placement.source_dtype.name().to_owned(),
        dtype: placement.source_dtype.name().to_owned(),
        shape: parts.shape.to_vec(),
        source_device: placement.source_device.to_string(),
        device: placement.source_device.to_string(),
        nnz: stored(values_shape, parts.dense_axes),
        parts: Vec::new(),
        notes: Vec::new(),
    }
}

/// The number of elements that are stored, those of blocks and batches one by one.
pub(super) fn stored(values_shape: &[i64], dense_axes: usize) -> usize {
    let kept = values_shape.len().saturating_sub(dense_axes);
    values_shape[..kept].iter().product::<i64>() as usize
}

fn own_dtype(array: &Arriving<'_>) -> Result<DType> {
    match array {
        Arriving::Source(source) => Ok(source.facts().dtype),
        Arriving::Object(object) => Ok(Array::read(object, false)?.dtype()),
    }
}
