//! Parses the keyword arguments of `to`, `plan` and their relatives.

use crate::conversion::progress::{self, Progress};
use crate::conversion::streams::{NamedStream, stream_of};
use crate::errors::{Failure, Result, describe_argument, fail, keys, type_name};
use crate::frameworks;
use crate::interpreter::once::interned;
use crate::text::{closest_name, only_closest_name};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyDict, PyFloat, PyInt, PyString, PyType};
use tensorferry_core::device::DeviceKind;
use tensorferry_core::plan::{ConvertOptions, DTypeRequest, DeviceRequest};
use tensorferry_core::{DType, Device, Error, ErrorKind};

/// The keyword arguments of `to` and `plan`.
pub(crate) struct ParsedKeywords<'py> {
    /// The options of the conversion.
    pub(crate) options: ConvertOptions,
    /// The `jax.sharding.Sharding` that `device=` names.
    pub(crate) sharding: Option<Py<PyAny>>,
    /// The stream on which the result will be used.
    pub(crate) stream: Option<NamedStream>,
    /// The array or tensor to fill.
    pub(crate) out: Option<Bound<'py, PyAny>>,
    /// The receiver of progress reports.
    pub(crate) progress: Option<Progress>,
}

impl ParsedKeywords<'_> {
    /// The defaults.
    pub(crate) fn none() -> Self {
        Self { options: ConvertOptions::NONE, sharding: None, stream: None, out: None, progress: None }
    }
}

/// Parses the keyword arguments of `function`. `out` and `progress` need a function that `moves` bytes.
pub(crate) fn parse<'py>(
    function: &str,
    given: &Bound<'py, PyDict>,
    moves: bool,
) -> Result<ParsedKeywords<'py>> {
    let mut keywords = ParsedKeywords::none();
    let options = &mut keywords.options;
    for (name, value) in given {
        let name = name.cast_into::<PyString>().map_err(PyErr::from)?;
        let value = if value.is_none() { None } else { Some(&value) };
        match name.to_str()? {
            "device" => match value.filter(|_| SHARDING_FUNCTIONS.contains(&function)) {
                Some(given) if is_sharding(given)? => keywords.sharding = Some(given.clone().unbind()),
                _ => options.device = device(value)?,
            },
            "dtype" => options.dtype = dtype(value)?,
            "copy" => options.copy = flag("copy", value)?,
            "writable" => options.writable = flag("writable", value)?,
            "stream" => keywords.stream = stream(value)?,
            "budget" => options.budget = budget(value)?,
            "out" if moves => keywords.out = value.cloned(),
            "progress" if moves => keywords.progress = value.map_or(Ok(None), progress::parse)?,
            other => {
                let mut text = format!("{function}() got an unexpected keyword argument '{other}'");
                if ["format", "blocksize", "dense"].contains(&other) {
                    text.push_str("\nhint: ferry.sparse.to and ferry.sparse.to_dense are for sparse tensors");
                } else if let Some(known) = closest_name(other, known_keywords(function, moves)) {
                    text.push_str(&format!("\nhint: did you mean '{known}'?"));
                }
                return Err(PyTypeError::new_err(text).into());
            }
        }
    }
    if keywords.sharding.is_some() && keywords.out.is_some() {
        return Err(fail(
            ErrorKind::InvalidArgument,
            "device is a sharding, and out= has its own devices",
            "leave out device= or out=",
        ));
    }
    Ok(keywords)
}

/// The functions whose `device=` accepts a sharding of JAX.
const SHARDING_FUNCTIONS: [&str; 4] = ["to", "to_async", "plan", "feed"];

/// Whether the object is a `jax.sharding.Sharding`.
fn is_sharding(given: &Bound<'_, PyAny>) -> Result<bool> {
    let name = interned!(given.py(), "addressable_devices_indices_map");
    Ok(!given.is_instance_of::<PyType>() && given.hasattr(name)?)
}

/// The keywords of `function` that a misspelt one can mean.
fn known_keywords(function: &str, moves: bool) -> impl Iterator<Item = &'static str> {
    let has_stream = function != "publish";
    [
        ("device", true),
        ("dtype", true),
        ("copy", true),
        ("writable", true),
        ("budget", true),
        ("stream", has_stream),
        ("out", moves),
        ("progress", moves),
    ]
    .into_iter()
    .filter_map(|(name, is_known)| is_known.then_some(name))
}

/// Parses the keyword arguments that functions for sparse tensors accept too.
pub(crate) fn parse_common<'py>(
    device_option: Option<&Bound<'py, PyAny>>,
    dtype_option: Option<&Bound<'py, PyAny>>,
    copy: Option<&Bound<'py, PyAny>>,
    writable: Option<&Bound<'py, PyAny>>,
    stream_option: Option<&Bound<'py, PyAny>>,
) -> Result<ParsedKeywords<'py>> {
    let mut keywords = ParsedKeywords::none();
    keywords.options.device = device(device_option)?;
    keywords.options.dtype = dtype(dtype_option)?;
    keywords.options.copy = flag("copy", copy)?;
    keywords.options.writable = flag("writable", writable)?;
    keywords.stream = stream(stream_option)?;
    Ok(keywords)
}

/// Parses an element type that must not be `"default"`.
pub(crate) fn parse_concrete_dtype(given: Option<&Bound<'_, PyAny>>) -> Result<Option<DType>> {
    match (dtype(given)?, given) {
        (DTypeRequest::Type(dtype), _) => Ok(Some(dtype)),
        (DTypeRequest::Default, Some(given)) => Err(unknown_dtype(given)),
        _ => Ok(None),
    }
}

/// Parses `dtype=`: a string, or a framework's own object.
fn dtype(given: Option<&Bound<'_, PyAny>>) -> Result<DTypeRequest> {
    let Some(given) = given else { return Ok(DTypeRequest::Same) };
    if let Ok(text) = given.cast::<PyString>() {
        let text = text.to_string();
        return match text.as_str() {
            "default" => Ok(DTypeRequest::Default),
            name => DType::from_name(name).map(DTypeRequest::Type).ok_or_else(|| unknown_dtype(given)),
        };
    }
    if let Ok(class) = given.cast::<PyType>()
        && let Some(dtype) = builtin_number(class)
    {
        return Ok(DTypeRequest::Type(dtype));
    }
    dtype_of_object(given).map(DTypeRequest::Type)
}

/// The element type that `dtype=` names; `None` if it is left out or "default".
pub(crate) fn requested_dtype(given: Option<&Bound<'_, PyAny>>) -> Result<Option<DType>> {
    match dtype(given)? {
        DTypeRequest::Type(dtype) => Ok(Some(dtype)),
        _ => Ok(None),
    }
}

fn unknown_dtype(given: &Bound<'_, PyAny>) -> Failure {
    let fact = format!("dtype is {}, which is not an element type", describe_argument(given));
    let error = Error::new(ErrorKind::InvalidArgument, fact);
    let text = given.cast::<PyString>().map(|text| text.to_string()).unwrap_or_default();
    match likely_dtype(&text) {
        Some(dtype) => error.with_hint_value(keys::SUGGEST_DTYPE, dtype.name()).into(),
        None => error.with_hint(keys::NAME_DTYPE).into(),
    }
}

/// The element type that a name means which is not one: a code of NumPy, a short name, or a name with a typing error.
fn likely_dtype(name: &str) -> Option<DType> {
    if let Some((kind, bytes)) = name.split_at_checked(1)
        && let Ok(bytes @ 1..=16) = bytes.parse::<usize>()
    {
        let kind = match kind {
            "f" => "float",
            "i" => "int",
            "u" => "uint",
            "c" => "complex",
            _ => return None,
        };
        return DType::from_name(&format!("{kind}{}", bytes * 8));
    }
    match name {
        "half" | "fp16" => Some(DType::Float16),
        "bf16" => Some(DType::BFloat16),
        "single" | "fp32" => Some(DType::Float32),
        "double" | "fp64" => Some(DType::Float64),
        _ => {
            // The names are short: without the first letter, too many are close.
            let alike =
                DType::all().map(DType::name).filter(|known| known.chars().next() == name.chars().next());
            only_closest_name(name, alike).and_then(DType::from_name)
        }
    }
}

/// The element type of `bool`, `int`, `float` or `complex`, as in NumPy.
fn builtin_number(class: &Bound<'_, PyType>) -> Option<DType> {
    let py = class.py();
    [
        (py.get_type::<PyBool>(), DType::Bool),
        (py.get_type::<PyInt>(), DType::Int64),
        (py.get_type::<PyFloat>(), DType::Float64),
        (py.get_type::<PyComplex>(), DType::Complex128),
    ]
    .into_iter()
    .find_map(|(number, dtype)| class.is(&number).then_some(dtype))
}

/// The element type of an object such as `np.float16`, `np.dtype("float16")`, `torch.float16`, `tf.float16`, `jnp.float16` or
/// `mx.float16`.
fn dtype_of_object(given: &Bound<'_, PyAny>) -> Result<DType> {
    let py = given.py();
    if let Ok(order) = given.getattr(interned!(py, "byteorder"))
        && order
            .extract::<String>()
            .is_ok_and(|order| order == if cfg!(target_endian = "little") { ">" } else { "<" })
    {
        return Err(fail(
            ErrorKind::InvalidArgument,
            format!("{given} is not in this machine's byte order"),
            "pass the type in native order; the bytes of the source are swapped for you",
        ));
    }
    for attribute in [interned!(py, "name"), interned!(py, "__name__")] {
        if let Some(name) = given.getattr_opt(attribute)?
            && let Ok(name) = name.extract::<String>()
            && let Some(dtype) = DType::from_name(name.strip_suffix('_').unwrap_or(&name))
        {
            return Ok(dtype);
        }
    }
    let text = given.to_string();
    let last = text.rsplit('.').next().unwrap_or_default();
    if let Some(dtype) = DType::from_name(last.strip_suffix('_').unwrap_or(last)) {
        return Ok(dtype);
    }
    if !given.is_instance_of::<PyType>() {
        return Err(unknown_dtype(given));
    }
    // `np.longlong` and similar types have C names, whose width only NumPy knows.
    let numpy = py.import("numpy").and_then(|numpy| numpy.getattr("dtype")?.call1((given,)));
    let name = numpy.and_then(|dtype| dtype.getattr(interned!(py, "name"))?.extract::<String>());
    name.ok().and_then(|name| DType::from_name(&name)).ok_or_else(|| unknown_dtype(given))
}

/// Parses True, False or None.
fn flag(name: &str, given: Option<&Bound<'_, PyAny>>) -> Result<Option<bool>> {
    let Some(given) = given else { return Ok(None) };
    match given.extract::<bool>() {
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(fail(
            ErrorKind::InvalidArgument,
            format!("{name} must be True, False or None, not {}", describe_argument(given)),
            format!("leave {name} out for None"),
        )),
    }
}

/// Parses a number of bytes.
fn budget(given: Option<&Bound<'_, PyAny>>) -> Result<Option<usize>> {
    let Some(given) = given else { return Ok(None) };
    match given.extract::<usize>() {
        Ok(bytes) => Ok(Some(bytes)),
        Err(_) => Err(fail(
            ErrorKind::InvalidArgument,
            match given.cast::<PyInt>() {
                Ok(number) => {
                    format!("budget must be from 0 to {} bytes, not {number}", usize::MAX)
                }
                Err(_) => format!("budget must be a number of bytes, not {}", describe_argument(given)),
            },
            "leave budget out for no limit",
        )),
    }
}

/// Parses `device=`: a name, or a framework's own object for a device.
fn device(given: Option<&Bound<'_, PyAny>>) -> Result<DeviceRequest> {
    let Some(given) = given else { return Ok(DeviceRequest::Nearest) };
    if let Some(device) = jax_device(given)? {
        return Ok(DeviceRequest::At(device));
    }
    let text = device_name(given)?;
    if text == "default" {
        return Ok(DeviceRequest::Default);
    }
    match Device::parse(&short_name(&text)) {
        Some(device) if matches!(device.kind, DeviceKind::Cpu | DeviceKind::Cuda) => {
            Ok(DeviceRequest::At(device))
        }
        Some(device) => Err(fail(
            ErrorKind::UnsupportedDevice,
            format!("device {device} is not supported: only host memory and CUDA GPUs are"),
            "leave device out, or pass device=\"cpu\" or \"cuda:0\"",
        )),
        None => {
            let fact = format!("device is {}, which is not a device", describe_argument(given));
            let error = Error::new(ErrorKind::InvalidArgument, fact);
            Err(match given.hasattr("device_set")? {
                true => error.with_advice("pass a single device, such as one of jax.local_devices()"),
                false => error.with_hint(keys::NAME_DEVICE),
            }
            .into())
        }
    }
}

/// The device of a JAX device object, found by identity, because JAX numbers the devices of all processes together. `None` for
/// objects of other frameworks.
fn jax_device(given: &Bound<'_, PyAny>) -> Result<Option<Device>> {
    let py = given.py();
    if !type_name(given).starts_with("jaxlib.") || !given.hasattr(interned!(py, "platform"))? {
        return Ok(None);
    }
    let found = frameworks::jax::device_named(given)?;
    found.map(Some).ok_or_else(|| {
        fail(
            ErrorKind::UnsupportedDevice,
            format!("device is {given}, which is not a CPU or CUDA device of this process"),
            "pass one of jax.local_devices()",
        )
    })
}

/// The name that a framework gives its device.
fn device_name(given: &Bound<'_, PyAny>) -> Result<String> {
    let py = given.py();
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(text.to_string());
    }
    // TensorFlow: `LogicalDevice` has an attribute `name`, and `DeviceSpec` has a method `to_string`.
    if type_name(given).starts_with("tensorflow.") {
        if type_name(given).ends_with(".LogicalDevice") {
            return Ok(given.getattr(interned!(py, "name"))?.to_string());
        }
        if let Some(to_string) = given.getattr_opt(interned!(py, "to_string"))? {
            return Ok(to_string.call0()?.to_string());
        }
    }
    // CuPy: a number.
    if type_name(given).starts_with("cupy.") {
        return Ok(format!("cuda:{}", given.getattr(interned!(py, "id"))?));
    }
    Ok(given.to_string())
}

/// The device name without a framework's decoration: TensorFlow `/job:localhost/replica:0/task:0/device:CPU:0`, MLX
/// `Device(cpu, 0)`, Paddle `Place(cpu)`.
fn short_name(text: &str) -> String {
    if let Some((_, inner)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        return inner.replace(", ", ":");
    }
    text.rsplit_once("device:").map_or(text, |(_, device)| device).trim_start_matches('/').to_owned()
}

/// Parses `stream=`: a handle, or a framework's own object. The driver cannot check that a handle belongs to a live stream, so
/// the caller must guarantee it, as the documentation of `stream=` says.
fn stream(given: Option<&Bound<'_, PyAny>>) -> Result<Option<NamedStream>> {
    let Some(given) = given else { return Ok(None) };
    let py = given.py();
    let handle = |value: &Bound<'_, PyAny>| value.extract::<usize>().ok();
    // `__cuda_stream__` is the protocol of the CUDA libraries; PyTorch has `cuda_stream`, and CuPy `ptr`.
    let found = match given.getattr_opt(interned!(py, "__cuda_stream__"))? {
        Some(protocol) => protocol.call0().and_then(|pair| pair.get_item(1)).ok().as_ref().and_then(handle),
        None => {
            let named = ["cuda_stream", "ptr"].into_iter().find_map(|name| given.getattr(name).ok());
            named.as_ref().map_or_else(|| handle(given), handle)
        }
    };
    // SAFETY: `stream_of` requires a stream that outlives the result. Nothing can check that: the documentation of `stream=` asks
    // the user for it. `NamedStream` keeps a framework's object, which may own the stream.
    match found.and_then(|handle| unsafe { stream_of(handle) }) {
        Some(stream) => Ok(Some(NamedStream { stream, object: given.clone().unbind() })),
        None => Err(fail(
            ErrorKind::InvalidArgument,
            match found {
                Some(handle) => format!("stream is {handle}, which is not the handle of a CUDA stream"),
                None => format!("stream is {}, which is not a CUDA stream", describe_argument(given)),
            },
            "pass torch.cuda.current_stream(), cupy.cuda.get_current_stream() or a handle",
        )),
    }
}
