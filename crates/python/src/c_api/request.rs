//! The request of an extension: what it accepts, checked against a source.

use crate::conversion::source::Source;
use crate::conversion::streams::stream_of;
use crate::errors::{Failure, Result, fail};
use tensorferry_core::c_api::{ANY_RANK, NO_STREAM, ORDER_ANY, ORDER_F, Request};
use tensorferry_core::device::DeviceKind;
use tensorferry_core::dlpack::abi::RawDType;
use tensorferry_core::dtype::DTypes;
use tensorferry_core::plan::{
    ConvertOptions, SourceDescription, SourceMutability, Strides, SupportedDevices, TargetCapabilities,
    TargetMutability,
};
use tensorferry_core::{Access, Device, Error, ErrorKind};
use tensorferry_cuda::Stream;

/// The number of dimensions that an extension can get: more than any framework has.
const MAX_RANK: usize = 1024;

/// An extension that accepts any strides that DLPack can express.
static ANY_STRIDES: TargetCapabilities = TargetCapabilities {
    framework: "an extension",
    title: "the extension",
    dtypes: DTypes::ALL,
    repacked: DTypes::NONE,
    host_only: DTypes::NONE,
    own_memory: None,
    keeps_64_bit: true,
    narrow_by_default: false,
    accepts_swapped_bytes: false,
    strides: Strides::Elements,
    alignment: 1,
    max_rank: MAX_RANK,
    mutability: TargetMutability::Flagged,
    devices: SupportedDevices::Both,
    default_device: Device::CPU,
    cpu_count: 1,
    default_cpu: 0,
    // The owners of Paddle's tensors move to a thread that may drop them.
    drops_on_own_threads: false,
};

/// An extension that accepts dense memory only.
static DENSE: TargetCapabilities = TargetCapabilities { strides: Strides::Dense, ..ANY_STRIDES };

/// A request whose size and fields were checked.
#[derive(Clone, Copy)]
pub(super) struct CheckedRequest<'a> {
    request: &'a Request,
    /// The accepted element types; empty if every type is accepted.
    dtypes: &'a [RawDType],
}

impl<'a> CheckedRequest<'a> {
    /// Reads the struct of an extension. Null is the default request.
    ///
    /// # Safety
    /// `given` is null, or points to a struct with as many bytes as its first field says. Its `dtypes` is null, or points to
    /// `dtype_count` element types. Nothing writes either as long as the result is used.
    #[inline(always)]
    pub(super) unsafe fn read(given: *const Request) -> Result<Self> {
        if given.is_null() {
            return Ok(Self { request: &Request::INIT, dtypes: &[] });
        }
        // SAFETY: the contract of this function: the struct begins with its size.
        let size = unsafe { (&raw const (*given).size).read() };
        if size != size_of::<Request>() {
            // SAFETY: the contract of this function.
            unsafe { check_size(given, size) }?;
        }
        // SAFETY: the contract of this function: the struct has `size` bytes, which are at least those of `Request`, and nothing
        // writes it.
        let request = unsafe { &*given };
        let has_types = !request.dtypes.is_null() || request.dtype_count == 0;
        let is_known = (ORDER_ANY..=ORDER_F).contains(&request.order) && request.rank >= ANY_RANK;
        if !has_types || !is_known || request.reserved != 0 {
            return Err(invalid_request(request));
        }
        let dtypes = match request.dtype_count {
            0 => &[],
            // SAFETY: `from_raw_parts` requires `count` valid elements: the contract of this function, for a pointer that is not
            // null, as was checked.
            count => unsafe { std::slice::from_raw_parts(request.dtypes, count) },
        };
        Ok(Self { request, dtypes })
    }

    /// The capabilities for the planner. With [`Self::is_transposed`] they are those of the transposed tensor.
    #[inline(always)]
    pub(super) fn capabilities(&self) -> &'static TargetCapabilities {
        if self.request.order == ORDER_ANY { &ANY_STRIDES } else { &DENSE }
    }

    /// Whether the transposed tensor has to be dense.
    #[inline(always)]
    pub(super) fn is_transposed(&self) -> bool {
        self.request.order == ORDER_F
    }

    #[inline(always)]
    pub(super) fn is_writable(&self) -> bool {
        self.request.writable != 0
    }

    /// Whether the memory is borrowed until the deleter runs.
    #[inline(always)]
    pub(super) fn is_borrowed(&self) -> bool {
        self.request.borrow != 0
    }

    /// The options for the planner.
    pub(super) fn options(&self) -> ConvertOptions {
        let is_share = self.is_writable() || self.request.copy_allowed == 0;
        ConvertOptions { copy: is_share.then_some(false), ..ConvertOptions::NONE }
    }

    /// The same error with advice for the caller of the extension, who has no options of tensorferry.
    pub(super) fn explain(&self, error: Error) -> Failure {
        if error.kind() != ErrorKind::CopyRequired {
            return error.into();
        }
        // The planner sees the transposed tensor.
        let fact = match self.is_transposed() {
            true => error.fact().replace("row-major", "column-major"),
            false => error.fact().to_owned(),
        };
        let advice = match self.is_writable() {
            true => {
                "pass a tensor that the extension can write in place, and copy the values back afterwards"
            }
            false if self.is_transposed() => "pass a column-major copy, such as numpy.asfortranarray(x)",
            false => "pass a dense copy in native byte order, such as ferry.to(x, \"numpy\", copy=True)",
        };
        fail(ErrorKind::CopyRequired, fact, advice)
    }

    /// The stream on which the extension uses GPU memory; `None` if nothing is to be ordered.
    ///
    /// # Safety
    /// The stream of the request is alive as long as the result is used.
    pub(super) unsafe fn stream(&self) -> Result<Option<Stream>> {
        let given = self.request.stream;
        if given == NO_STREAM {
            return Ok(None);
        }
        // SAFETY: the contract of this function.
        let stream = usize::try_from(given).ok().and_then(|handle| unsafe { stream_of(handle) });
        let fact =
            || format!("the stream of the request is {given}, which is not the handle of a CUDA stream");
        let hint = "pass a cudaStream_t, or TENSORFERRY_NO_STREAM";
        stream.map(Some).ok_or_else(|| fail(ErrorKind::InvalidArgument, fact(), hint))
    }

    /// Whether a source has an accepted element type, device and rank, and can be written if it must.
    #[inline(always)]
    pub(super) fn accepts(&self, source: &SourceDescription<'_>) -> bool {
        self.accepts_dtype(source)
            && self.accepts_device(source.device)
            && (self.request.rank == ANY_RANK || self.request.rank as usize == source.layout.rank())
            && (!self.is_writable() || is_writable(source))
    }

    /// The error of a source that is not accepted.
    #[cold]
    pub(super) fn check(&self, source: &Source<'_>) -> Result<()> {
        let source = &source.describe();
        if self.accepts(source) {
            return Ok(());
        }
        let library = example_library(source.framework);
        if !self.accepts_dtype(source) {
            let accepted: Vec<_> = self.dtypes.iter().map(dtype_name).collect();
            let fact =
                format!("the extension accepts {}, and the tensor is {}", accepted.join(", "), source.dtype);
            let first = accepted.first().map_or("float32", String::as_str);
            let hint = format!("pass ferry.to(x, \"{library}\", dtype=\"{first}\")");
            return Err(fail(ErrorKind::UnsupportedDType, fact, hint));
        }
        if !self.accepts_device(source.device) {
            let (accepted, hint) = self.accepted_device(library);
            let fact = format!(
                "the extension accepts tensors on {accepted}, and the tensor is on {}",
                source.device
            );
            return Err(fail(ErrorKind::UnsupportedDevice, fact, hint));
        }
        if self.is_writable() && !is_writable(source) {
            return Err(not_writable(source));
        }
        let (rank, given) = (self.request.rank, source.layout.rank());
        let fact = format!(
            "the extension accepts tensors of rank {rank}, and the tensor has rank {given}: shape {:?}",
            source.layout.shape()
        );
        Err(fail(ErrorKind::UnsupportedLayout, fact, "reshape the tensor first: x.reshape(...)"))
    }

    /// The name of the accepted device, and how to move a tensor of this library there.
    fn accepted_device(&self, library: &str) -> (String, String) {
        let raw = self.request.device;
        let Some(kind) = DeviceKind::from_code(raw.device_type) else {
            let name = format!("a device of the unknown type {}", raw.device_type);
            return (name, "report this to the author of the extension".to_owned());
        };
        let device = Device { kind, index: raw.device_id };
        let library = if device.is_cuda() && library == "numpy" { "torch" } else { library };
        let hint = match kind {
            DeviceKind::Cpu | DeviceKind::Cuda => {
                format!("pass ferry.to(x, \"{library}\", device=\"{device}\")")
            }
            _ => "move the tensor to that device with its own framework".to_owned(),
        };
        (device.to_string(), hint)
    }

    #[inline(always)]
    fn accepts_dtype(&self, source: &SourceDescription<'_>) -> bool {
        let (code, bits) = source.dtype.dlpack_code();
        self.dtypes.is_empty() || self.dtypes.contains(&RawDType { code, bits, lanes: 1 })
    }

    #[inline(always)]
    fn accepts_device(&self, device: Device) -> bool {
        let accepted = self.request.device;
        match accepted.device_type {
            0 => true,
            code if code == DeviceKind::Cpu as i32 => device.is_host(),
            code => {
                let is_accepted =
                    |device: Device| device.kind as i32 == code && device.index == accepted.device_id;
                is_accepted(device) || is_accepted(device.base_device())
            }
        }
    }
}

/// Whether an extension may write the memory.
#[inline(always)]
fn is_writable(source: &SourceDescription<'_>) -> bool {
    source.allows_writing() && source.mutability.may_change() && !source.layout.may_overlap()
}

fn not_writable(source: &SourceDescription<'_>) -> Failure {
    let framework = source.framework;
    let (fact, hint) = if source.mutability == SourceMutability::Temporary {
        (
            format!("the extension writes its argument, and a {framework} has no memory of its own"),
            "pass an array, such as numpy.asarray(x)",
        )
    } else if !source.mutability.may_change() {
        (
            format!("the extension writes its argument, and tensors of {framework} are immutable"),
            "pass a writable copy, such as ferry.to(x, \"numpy\", writable=True)",
        )
    } else if source.access == Access::ReadOnly && framework == "torch" {
        (
            "the extension writes its argument, and the tensor is read-only or saved for a gradient"
                .to_owned(),
            "pass x.detach().clone()",
        )
    } else if !source.allows_writing() {
        (
            "the extension writes its argument, and the tensor is read-only, or over the memory of an immutable one"
                .to_owned(),
            "pass a writable copy, such as ferry.to(x, \"numpy\", copy=True)",
        )
    } else {
        (
            format!(
                "the extension writes its argument, and elements of the tensor overlap: shape {:?} with strides of {:?} bytes",
                source.layout.shape(),
                source.layout.strides()
            ),
            "pass a dense copy",
        )
    };
    fail(ErrorKind::InvalidArgument, fact, hint)
}

/// The framework for an example in a hint.
fn example_library(framework: &str) -> &str {
    match crate::frameworks::builtin_frameworks::find(framework) {
        Some(entry) if entry.dense.is_some() => entry.name,
        _ => "numpy",
    }
}

/// The name of an element type of DLPack.
fn dtype_name(raw: &RawDType) -> String {
    let known = tensorferry_core::DType::all().find(|dtype| dtype.dlpack_code() == (raw.code, raw.bits));
    match known {
        Some(dtype) if raw.lanes == 1 => dtype.to_string(),
        _ => format!("the DLPack type (code {}, {} bits, {} lanes)", raw.code, raw.bits, raw.lanes),
    }
}

/// Accepts a later struct whose further fields are zero, which is their default.
///
/// # Safety
/// `given` points to `size` bytes.
#[cold]
unsafe fn check_size(given: *const Request, size: usize) -> Result<()> {
    let known = size_of::<Request>();
    if size < known {
        return Err(size_error(size));
    }
    // SAFETY: the contract of this function: the bytes from `known` to `size` belong to the struct.
    let further = unsafe { std::slice::from_raw_parts(given.cast::<u8>().add(known), size - known) };
    if further.iter().any(|&byte| byte != 0) { Err(size_error(size)) } else { Ok(()) }
}

fn size_error(size: usize) -> Failure {
    let known = size_of::<Request>();
    fail(
        ErrorKind::InvalidArgument,
        format!("the request of the extension has {size} bytes, and this tensorferry knows {known}"),
        "pip install -U tensorferry, or set the first field to sizeof(TfRequest)",
    )
}

#[cold]
fn invalid_request(request: &Request) -> Failure {
    let fact = format!(
        "the request of the extension is invalid: {} element types, rank {}, order {}, reserved {}",
        request.dtype_count, request.rank, request.order, request.reserved
    );
    fail(ErrorKind::InvalidArgument, fact, "start from TENSORFERRY_REQUEST_INIT of tensorferry.h")
}
