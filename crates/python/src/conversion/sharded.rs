//! Conversions to one device, or to the devices of a JAX sharding.
//!
//! Each distinct slice of the tensor is converted once, on the first of its devices. Its other devices get a share of that shard
//! if they are CPU devices, and a copy of it otherwise. JAX assembles the shards.

use crate::conversion::convert::{self, StartedObject};
use crate::conversion::object_kinds::RecognisedObject;
use crate::conversion::reading::{read, read_for_plan};
use crate::conversion::recognise::recognise;
use crate::conversion::request::ConversionRequest;
use crate::conversion::source::{Source, SourceMemory};
use crate::conversion::transfer::{self, PendingTransfer, Started};
use crate::errors::{Result, fail, framework_error, wrap_exception};
use crate::frameworks::{self, Target, jax};
use crate::interpreter::once::interned;
use crate::interpreter::owner::Owner;
use crate::reports::{PlanReport, TensorReport, trace};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tensorferry_core::plan::{ConvertOptions, DTypeRequest};
use tensorferry_core::{Device, ErrorKind, Tensor};

/// Converts one tensor.
pub(crate) fn convert_object<'py>(
    recognised: RecognisedObject<'_, 'py>,
    request: &ConversionRequest,
) -> Result<Bound<'py, PyAny>> {
    let Some(sharding) = &request.sharding else { return convert::convert_object(recognised, request) };
    let (py, started_at) = (recognised.object().py(), Instant::now());
    let sharding = sharding.bind(py);
    let is_traced = trace::is_tracing();
    let StartedObject { started, reports, .. } =
        start_shards(recognised, request, sharding, is_traced, false)?;
    let result = match started {
        Started::Done(result) => result,
        Started::Transfer(pending) => transfer::run(py, pending, request.progress.as_ref())?,
    };
    for report in reports {
        trace::record(py, report, started_at.elapsed())?;
    }
    Ok(result)
}

/// Starts the conversion of one tensor, with reports if they are requested.
pub(crate) fn start_object<'py>(
    recognised: RecognisedObject<'_, 'py>,
    request: &ConversionRequest,
    reported: bool,
) -> Result<StartedObject<'py>> {
    match &request.sharding {
        None => convert::start_object(recognised, request, reported),
        Some(sharding) => {
            let sharding = sharding.bind(recognised.object().py());
            start_shards(recognised, request, sharding, reported, true)
        }
    }
}

/// Plans the conversion of one tensor without moving bytes. A tensor that is split has a plan for each distinct slice.
pub(crate) fn plan_object(
    recognised: RecognisedObject<'_, '_>,
    request: &ConversionRequest,
) -> Result<Vec<PlanReport>> {
    let Some(sharding) = &request.sharding else {
        return Ok(vec![convert::plan_object(recognised, request)?.into()]);
    };
    let sharding = sharding.bind(recognised.object().py());
    let source = read_for_plan(recognised)?;
    let shape = shape_of(&source);
    let shards = shards(sharding, &shape, request)?;
    if has_sharding(&source, sharding, &request.options)? {
        return Ok(vec![TensorReport::unchanged("jax").into()]);
    }
    let is_split = shards.len() > 1;
    let plan_shard = |shard: Shard| -> Result<PlanReport> {
        let report = PlanReport::from(shard.plan(recognised, request, is_split)?);
        Ok(if is_split { report.named(shard.name(&shape)) } else { report })
    };
    shards.into_iter().map(plan_shard).collect()
}

/// The slice of a tensor that some devices get.
struct Shard {
    /// The first index and the length, for each axis.
    bounds: Vec<(usize, usize)>,
    devices: Vec<Device>,
}

impl Shard {
    /// The request for the first device. A slice of a JAX array is always copied: JAX has no array over a part of another.
    fn request(
        &self,
        whole: &ConversionRequest,
        source: &Source<'_>,
        is_split: bool,
    ) -> Result<ConversionRequest> {
        let mut request = whole.for_device(self.devices[0]);
        if is_split && source.framework == "jax" {
            if request.options.copy == Some(false) {
                return Err(fail(
                    ErrorKind::CopyRequired,
                    "the sharding splits a JAX array, and copy is False",
                    "leave out copy=False",
                ));
            }
            request.options.copy = Some(true);
        }
        Ok(request)
    }

    /// Plans the conversion of this slice.
    fn plan(
        &self,
        recognised: RecognisedObject<'_, '_>,
        whole: &ConversionRequest,
        is_split: bool,
    ) -> Result<TensorReport> {
        let source = read_for_plan(recognised)?;
        let request = self.request(whole, &source, is_split)?;
        let source = if is_split { self.slice_of(source)? } else { source };
        convert::plan_source(recognised.object().py(), source, &request)
    }

    /// This slice of a source. Values that must be gathered or unpacked first have a plan, but no slice.
    fn slice_of<'py>(&self, mut source: Source<'py>) -> Result<Source<'py>> {
        source.memory = match source.memory {
            SourceMemory::InPlace(mut tensor) => {
                for (axis, &(start, length)) in self.bounds.iter().enumerate() {
                    tensor = tensor.narrow(axis, start, length)?;
                }
                SourceMemory::InPlace(tensor)
            }
            SourceMemory::Pending { pending, device, dtype, .. } => {
                let lengths: Vec<i64> = self.bounds.iter().map(|&(_, length)| length as i64).collect();
                let layout = tensorferry_core::Layout::dense(dtype.size(), &lengths)?;
                SourceMemory::Pending { pending, device, dtype, layout, reads: None }
            }
        };
        Ok(source)
    }

    /// The slice as a Python expression, with its devices.
    fn name(&self, shape: &[i64]) -> String {
        let mut name = String::from("[");
        for (axis, (&(start, length), &total)) in self.bounds.iter().zip(shape).enumerate() {
            name.push_str(if axis == 0 { "" } else { ", " });
            let _ = match length as i64 == total {
                true => write!(name, ":"),
                false => write!(name, "{start}:{}", start + length),
            };
        }
        let devices: Vec<String> = self.devices.iter().map(Device::to_string).collect();
        format!("{name}] on {}", devices.join(", "))
    }
}

fn shape_of(source: &Source<'_>) -> Vec<i64> {
    source.describe().layout.shape().to_vec()
}

/// The distinct slices of a tensor, in the order of the devices.
fn shards(sharding: &Bound<'_, PyAny>, shape: &[i64], request: &ConversionRequest) -> Result<Vec<Shard>> {
    let py = sharding.py();
    if request.target.capabilities(py)?.framework != "jax" {
        return Err(fail(
            ErrorKind::InvalidArgument,
            format!(
                "device is a sharding of JAX, and the target is {}",
                request.target.capabilities(py)?.title
            ),
            "pass \"jax\" as the framework, or the name of a device",
        ));
    }
    let addressable = sharding.getattr("is_fully_addressable").map_err(|error| {
        let about = "the sharding has no devices";
        let hint = "pass a sharding over a jax.sharding.Mesh of jax.local_devices()";
        wrap_exception(py, error, ErrorKind::InvalidArgument, about, hint)
    })?;
    if !addressable.is_truthy()? {
        return Err(fail(
            ErrorKind::InvalidArgument,
            "the sharding has devices of other processes, to which this process cannot copy",
            "pass the part of this process, and assemble with jax.make_array_from_process_local_data",
        ));
    }
    let kind = sharding.getattr("memory_kind")?;
    if !kind.is_none() && !is_default_memory(sharding, &kind)? {
        return Err(fail(
            ErrorKind::InvalidArgument,
            format!("the sharding is for the memory {kind}, which is not the default memory of its devices"),
            "leave out memory_kind, and move the result with jax.device_put",
        ));
    }
    let shape_tuple = PyTuple::new(py, shape)?;
    let about = || format!("the sharding does not fit shape {shape_tuple}");
    let hint = "pass a tensor whose axes divide evenly, or another PartitionSpec";
    let mismatch = |error| wrap_exception(py, error, ErrorKind::InvalidArgument, &about(), hint);
    if let Some(check) = sharding.getattr_opt("check_compatible_aval")? {
        check.call1((&shape_tuple,)).map_err(mismatch)?;
    }
    sharding.call_method1("shard_shape", (&shape_tuple,)).map_err(mismatch)?;
    let slices =
        sharding.call_method1("addressable_devices_indices_map", (&shape_tuple,)).map_err(mismatch)?;
    let mut found: Vec<Shard> = Vec::new();
    for (device, slices) in slices.cast::<PyDict>().map_err(PyErr::from)? {
        let device = jax::device_named(&device)?.ok_or_else(|| {
            fail(
                ErrorKind::UnsupportedDevice,
                format!("the sharding has the device {device}, which is not a CPU or CUDA device"),
                "pass a mesh of jax.local_devices()",
            )
        })?;
        let bounds = slices.try_iter()?.zip(shape).map(|(slice, &length)| -> PyResult<_> {
            let (start, stop, _): (usize, usize, i64) =
                slice?.call_method1("indices", (length,))?.extract()?;
            Ok((start, stop - start))
        });
        let bounds = bounds.collect::<PyResult<Vec<_>>>()?;
        match found.iter_mut().find(|shard| shard.bounds == bounds) {
            Some(shard) => shard.devices.push(device),
            None => found.push(Shard { bounds, devices: vec![device] }),
        }
    }
    Ok(found)
}

fn is_default_memory(sharding: &Bound<'_, PyAny>, kind: &Bound<'_, PyAny>) -> Result<bool> {
    let device = sharding.getattr("device_set")?.try_iter()?.next();
    let Some(device) = device else { return Ok(true) };
    Ok(device?.call_method0("default_memory")?.getattr("kind")?.eq(kind)?)
}

/// Whether the source is a JAX array whose shards are those of the sharding already, and nothing else is requested.
fn has_sharding(source: &Source<'_>, sharding: &Bound<'_, PyAny>, options: &ConvertOptions) -> Result<bool> {
    let description = source.describe();
    let is_same_dtype = match options.dtype {
        DTypeRequest::Same => true,
        DTypeRequest::Type(dtype) => dtype == description.dtype,
        DTypeRequest::Default => false,
    };
    if source.framework != "jax"
        || !is_same_dtype
        || options.copy == Some(true)
        || options.writable == Some(true)
    {
        return Ok(false);
    }
    let own = source.object.getattr("sharding")?;
    Ok(own.call_method1("is_equivalent_to", (sharding, description.layout.rank()))?.is_truthy()?)
}

/// The array under this sharding, which has the same shards. JAX gives it the sharding without a copy.
fn with_sharding<'py>(array: &Bound<'py, PyAny>, sharding: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let py = array.py();
    if array.getattr("sharding")?.eq(sharding)? {
        return Ok(array.clone());
    }
    let function = py.import("jax")?.getattr("device_put")?;
    function.call1((array, sharding)).map_err(|error| framework_error(py, "JAX", error))
}

/// Starts the conversion of each distinct slice.
fn start_shards<'py>(
    recognised: RecognisedObject<'_, 'py>,
    request: &ConversionRequest,
    sharding: &Bound<'py, PyAny>,
    reported: bool,
    is_deferred: bool,
) -> Result<StartedObject<'py>> {
    let object = recognised.object();
    let py = object.py();
    let source = read(recognised)?;
    let shape = shape_of(&source);
    let shards = shards(sharding, &shape, request)?;
    if has_sharding(&source, sharding, &request.options)? {
        let reports = if reported { vec![TensorReport::unchanged("jax")] } else { Vec::new() };
        return Ok(StartedObject::unchanged(&with_sharding(object, sharding)?, reports));
    }
    let mut devices = Vec::new();
    let mut started = Vec::new();
    let mut reports = Vec::new();
    let whole = match (&source.memory, shards.len()) {
        // Gathering and unpacking are done once for all slices.
        (SourceMemory::Pending { .. }, 2..) => {
            let copy = request.options.copy.filter(|copy| !copy);
            let options = ConvertOptions { copy, ..ConvertOptions::NONE };
            let numpy = frameworks::target_named(py, "numpy")?;
            let _within = trace::WithinTrip::begin();
            convert::convert_source(
                py,
                source,
                &ConversionRequest { options, ..ConversionRequest::new(numpy) },
            )?
        }
        _ => object.clone(),
    };
    let is_split = shards.len() > 1;
    for shard in shards {
        if reported {
            reports.push(shard.plan(recognised, request, is_split)?);
        }
        let source = read(recognise(&whole)?)?;
        let request = shard.request(request, &source, is_split)?;
        let source = if is_split { shard.slice_of(source)? } else { source };
        started.push(convert::start_source(py, source, &request, false, is_deferred)?.started);
        devices.push(shard.devices);
    }
    let assembly = Assembly { shape, sharding: sharding.clone().unbind(), devices, target: request.target };
    Ok(StartedObject { started: assembly.after(py, started)?, reports, device: None, is_gpu_source: false })
}

/// The parts of a sharded array, before they are put together.
struct Assembly {
    shape: Vec<i64>,
    sharding: Py<PyAny>,
    /// The devices of each distinct slice.
    devices: Vec<Vec<Device>>,
    target: Target,
}

impl Assembly {
    /// Puts the shards together, at once if all of them exist, otherwise when their bytes have moved.
    fn after<'py>(self, py: Python<'py>, started: Vec<Started<'py>>) -> Result<Started<'py>> {
        let mut done = Vec::new();
        let mut works = Vec::new();
        let mut total = 0;
        for started in started {
            done.push(match started {
                Started::Done(array) => Ok(array.unbind()),
                Started::Transfer(pending) => {
                    total += pending.total;
                    works.push(pending.work);
                    Err(pending.finish)
                }
            });
        }
        let moved = Arc::new(Mutex::new(Vec::<Option<Tensor<Owner>>>::new()));
        let written = Arc::clone(&moved);
        let finish = move |py: Python<'_>| {
            let mut moved =
                std::mem::take(&mut *moved.lock().unwrap_or_else(PoisonError::into_inner)).into_iter();
            let arrays = done.into_iter().map(|shard| match shard {
                Ok(array) => Ok(array),
                Err(finish) => finish(py, moved.next().flatten()),
            });
            let arrays = arrays.collect::<Result<Vec<_>>>()?;
            self.assemble(py, arrays)
        };
        if works.is_empty() {
            return Ok(Started::Done(finish(py)?.into_bound(py)));
        }
        Ok(Started::Transfer(PendingTransfer {
            total,
            block: None,
            work: Box::new(move |control| {
                for work in works {
                    let tensor = work(control)?;
                    written.lock().unwrap_or_else(PoisonError::into_inner).push(tensor);
                }
                Ok(None)
            }),
            finish: Box::new(move |py, _| finish(py)),
        }))
    }

    /// Gives the other devices of each slice their shard, and has JAX assemble the array.
    fn assemble(self, py: Python<'_>, arrays: Vec<Py<PyAny>>) -> Result<Py<PyAny>> {
        let mut shards = Vec::new();
        for (devices, array) in self.devices.iter().zip(arrays) {
            let array = array.into_bound(py);
            for &device in &devices[1..] {
                // Not recorded in traces: the plan of a slice is that of its first device.
                let request = ConversionRequest::new(self.target).for_device(device);
                let source = read(recognise(&array)?)?;
                shards.push(match convert::start_source(py, source, &request, false, false)?.started {
                    Started::Done(shard) => shard,
                    Started::Transfer(pending) => transfer::run(py, pending, None)?,
                });
            }
            shards.push(array);
        }
        let function = py.import("jax")?.getattr(interned!(py, "make_array_from_single_device_arrays"))?;
        let shape = PyTuple::new(py, &self.shape)?;
        let assembled = function.call1((shape, self.sharding.bind(py), shards));
        Ok(assembled.map_err(|error| framework_error(py, "JAX", error))?.unbind())
    }
}
