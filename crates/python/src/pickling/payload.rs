//! [`Payload`]: the bytes and the description of one tensor in a pickle.
//!
//! A payload that is written shares the memory of its tensor. If the memory has gaps or is on a GPU, `__reduce_ex__` copies it
//! each time, so that a pickler never writes values that were copied for another pickler. A payload that is read shares the
//! buffer that the unpickler passed, and its call makes the tensor, by the same planner as `to`.

use super::description::{dimension_order, type_name};
use super::load_errors::{name_device_option, name_framework_option, name_other_types};
use super::load_options::{self, Options};
use super::stream_format::{FORMAT_VERSION, rebuild_function};
use super::{framework_state, payload_plans, shared_payloads};
use crate::api::options;
use crate::conversion::convert;
use crate::conversion::fast_path::{self, Outcome};
use crate::conversion::host_copy::{DETACH_THRESHOLD_BYTES, SendPtr, copy_into};
use crate::conversion::object_kinds::Builtin;
use crate::conversion::read_only::record_loan;
use crate::conversion::reading::read;
use crate::conversion::recognise::recognise;
use crate::conversion::request::ConversionRequest;
use crate::conversion::source::{OWN_FRAMEWORK, Source, SourceMemory};
use crate::conversion::to_host::{self, Copied};
use crate::errors::{Failure, Result};
use crate::frameworks::{self, Target};
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::owned_tensor::HeldOwner;
use crate::interpreter::owner::Owner;
use crate::reports::TensorReport;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyInt, PyTuple, PyType};
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tensorferry_core::dtype::DTypes;
use tensorferry_core::plan::{
    self, ConvertOptions, DeviceRequest, Plan, SourceMutability, Strides, SupportedDevices,
    TargetCapabilities, TargetMutability,
};
use tensorferry_core::{Access, ByteOrder, DType, Device, ErrorKind, Layout, Tensor, read_only_loans};
use tensorferry_cuda::{Gpu, TransferControl};

/// What a stream can hold: host memory of every element type without gaps, in any order of the dimensions.
static CAPABILITIES: TargetCapabilities = TargetCapabilities {
    framework: payload_plans::TARGET,
    title: "a pickle",
    dtypes: DTypes::ALL,
    repacked: DTypes::NONE,
    host_only: DTypes::NONE,
    own_memory: None,
    keeps_64_bit: true,
    narrow_by_default: false,
    accepts_swapped_bytes: true,
    strides: Strides::Permuted,
    alignment: 1,
    max_rank: usize::MAX,
    mutability: TargetMutability::Flagged,
    devices: SupportedDevices::Host,
    default_device: Device::CPU,
    cpu_count: i32::MAX,
    default_cpu: 0,
    drops_on_own_threads: false,
};

/// Tensors of immutable frameworks that are not larger are copied: a share needs a read-only loan and a deferred drop, which take
/// longer than the copy.
const CHEAP_COPY_BYTES: usize = 1024;

/// The first protocol with out-of-band buffers.
const FIRST_PROTOCOL_WITH_BUFFERS: u32 = 5;

/// One tensor's bytes and description, in a pickle that is being written or read.
#[pyclass(frozen, module = "tensorferry._native", name = "_Payload")]
pub(crate) struct Payload {
    data: SendPtr<u8>,
    dtype: DType,
    layout: Layout,
    device: Device,
    order: ByteOrder,
    access: Access,
    mutability: SourceMutability,
    /// The framework of the tensor that is written.
    framework: &'static str,
    /// The built-in framework that tells the streams of GPU memory.
    builtin: Option<Builtin>,
    /// The tensor that a call has made in memory of its own. Later calls share that memory.
    copied: Mutex<Option<Py<PyAny>>>,
    /// The address of this object in the table of payloads that are written; zero if it is not in the table.
    listed_as: AtomicUsize,
    #[expect(dead_code, reason = "held for its drop")]
    owner: HeldOwner,
}

impl Drop for Payload {
    fn drop(&mut self) {
        let object = *self.listed_as.get_mut();
        if object != 0 {
            shared_payloads::remove(self.data.get() as usize, object);
        }
    }
}

impl Payload {
    fn new(
        tensor: Tensor<Owner>,
        framework: &'static str,
        builtin: Option<Builtin>,
        mutability: SourceMutability,
    ) -> Self {
        Self {
            data: SendPtr::of(&tensor),
            dtype: tensor.dtype(),
            layout: tensor.layout().clone(),
            device: tensor.device(),
            order: tensor.order(),
            access: tensor.access(),
            mutability,
            framework,
            builtin,
            copied: Mutex::new(None),
            listed_as: AtomicUsize::new(0),
            owner: HeldOwner::new(tensor.into_owner()),
        }
    }

    /// The payload of a tensor that is written: the one of an equal view of the same memory, or a new one.
    pub(super) fn of_tensor<'py>(
        py: Python<'py>,
        tensor: Tensor<Owner>,
        framework: &'static str,
        builtin: Option<Builtin>,
        mutability: SourceMutability,
    ) -> Result<Bound<'py, Self>> {
        let is_listed = mutability != SourceMutability::Temporary && !tensor.layout().is_empty();
        let address = tensor.data() as usize;
        let new = Self::new(tensor, framework, builtin, mutability);
        if !is_listed {
            return Ok(Bound::new(py, new)?);
        }
        let is_same = |known: &Bound<'py, PyAny>| {
            known.cast::<Self>().is_ok_and(|known| known.get().is_same_view(&new))
        };
        if let Some(known) = shared_payloads::find(py, address, is_same) {
            return Ok(known.cast_into().map_err(PyErr::from)?);
        }
        let payload = Bound::new(py, new)?;
        // SAFETY: `add` requires that the drop of the object removes it first: `Payload::drop` does, with the address that is stored
        // here.
        unsafe { shared_payloads::add(address, payload.as_any()) };
        payload.get().listed_as.store(payload.as_ptr() as usize, Ordering::Relaxed);
        Ok(payload)
    }

    /// The payload of a buffer that was read.
    pub(super) fn of_buffer(py: Python<'_>, tensor: Tensor<Owner>) -> Result<Bound<'_, Self>> {
        Ok(Bound::new(py, Self::new(tensor, OWN_FRAMEWORK, None, SourceMutability::Mutable))?)
    }

    fn is_same_view(&self, other: &Self) -> bool {
        self.data.get() == other.data.get()
            && self.dtype == other.dtype
            && self.layout == other.layout
            && self.device == other.device
            && self.order == other.order
            && self.is_read_only() == other.is_read_only()
    }

    /// Whether the bytes must not be written.
    fn is_read_only(&self) -> bool {
        self.access == Access::ReadOnly || !self.mutability.allows_writing()
    }

    /// Whether the memory can be written to a stream as it is.
    fn is_contiguous(&self) -> bool {
        self.device.is_host()
            && self.mutability != SourceMutability::Cached
            && (self.layout.is_dense() || self.layout.is_dense_permuted())
    }

    /// A tensor over the memory, which the payload keeps alive.
    fn tensor(slf: &Bound<'_, Self>, order: ByteOrder) -> Result<Tensor<Owner>> {
        let this = slf.get();
        let owner = Owner::object(slf.clone().into_any().unbind());
        // SAFETY: `Tensor::new` requires memory of the layout while the owner lives: the fields are those of a tensor whose owner this
        // object keeps. The byte order does not matter for the extent of the memory.
        let tensor = unsafe {
            Tensor::new(
                this.data.get(),
                this.dtype,
                this.layout.clone(),
                this.device,
                order,
                this.access,
                owner,
            )
        };
        Ok(tensor?)
    }

    /// The source for a planner.
    fn source<'py>(slf: &Bound<'py, Self>, order: ByteOrder) -> Result<Source<'py>> {
        let this = slf.get();
        let source = Source::in_place(slf.clone().into_any(), this.framework, Self::tensor(slf, order)?)
            .with_mutability(this.mutability);
        match this.builtin.filter(|_| this.device.is_cuda()) {
            Some(builtin) => {
                let gpu = Gpu::get(this.device.index)?;
                Ok(source.with_streams(builtin.framework().streams(slf.py(), gpu)?))
            }
            None => Ok(source),
        }
    }

    /// The plan of writing the payload.
    pub(super) fn plan(source: &Source<'_>) -> Result<(Plan, TensorReport)> {
        let description = source.describe();
        let plan = plan::decide(&description, &CAPABILITIES, &ConvertOptions::NONE)?;
        let report = TensorReport::new(&description, &CAPABILITIES, &plan);
        Ok((plan, report))
    }

    /// A payload with the same values in host memory without gaps.
    fn copied_to_host<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, Self>> {
        let (py, this) = (slf.py(), slf.get());
        // The bytes keep their order: a copy from the native to the native order changes none.
        let source = Self::source(slf, ByteOrder::Native)?;
        let (plan, _) = Self::plan(&source)?;
        let copy = match to_host::copy(py, source, &CAPABILITIES, &plan, false)? {
            Copied::Done(tensor) => tensor,
            Copied::Pending(_, work) => py.detach(|| work(&TransferControl::default()))?,
        };
        let mut copy = Self::new(copy, this.framework, None, SourceMutability::Temporary);
        copy.order = this.order;
        Ok(Bound::new(py, copy)?)
    }

    /// The arguments of the rebuild function, with the bytes of `contiguous`.
    fn rebuild_arguments<'py>(
        slf: &Bound<'py, Self>,
        contiguous: &Bound<'py, Self>,
        protocol: u32,
    ) -> Result<Bound<'py, PyTuple>> {
        let (py, this) = (slf.py(), contiguous.get());
        let bytes = contiguous.as_any();
        let buffer = if protocol >= FIRST_PROTOCOL_WITH_BUFFERS {
            static PICKLE_BUFFER: ForkSafeOnce<Py<PyType>> = ForkSafeOnce::new();
            PICKLE_BUFFER.import(py, "pickle", "PickleBuffer")?.call1((bytes,))?
        } else if slf.get().is_read_only() {
            py.get_type::<PyBytes>().call1((bytes,))?
        } else {
            py.get_type::<PyByteArray>().call1((bytes,))?
        };
        let shape = PyTuple::new(py, this.layout.shape())?;
        let dtype = type_name(py, this.dtype, this.order);
        let arguments = match dimension_order(py, &this.layout)? {
            None => (FORMAT_VERSION, buffer, dtype, shape).into_pyobject(py)?,
            Some(order) => (FORMAT_VERSION, buffer, dtype, shape, order).into_pyobject(py)?,
        };
        Ok(arguments)
    }

    /// The tensor of a framework over the memory of the payload, or over a copy of it.
    fn convert<'py>(
        slf: &Bound<'py, Self>,
        target: Target,
        options: ConvertOptions,
    ) -> Result<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let capabilities = target.capabilities(py)?;
        let is_lent =
            options.writable == Some(false) && capabilities.mutability == TargetMutability::Writable;
        // The framework has no read-only tensors: the caller has promised not to write.
        let options = if is_lent { ConvertOptions { writable: None, ..options } } else { options };
        let request = ConversionRequest { options, ..ConversionRequest::new(target) };
        let copied = this.copied().as_ref().map(|tensor| tensor.clone_ref(py));
        if let Some(copied) = copied {
            let mut source = read(recognise(copied.bind(py))?)?;
            // Another tensor over the same memory, as in the pickle, and not the same tensor.
            source.framework = OWN_FRAMEWORK;
            source.mutability = SourceMutability::Mutable;
            return convert::convert_source(py, source, &request);
        }
        let source = if is_lent {
            Self::lent_source(slf)?
        } else if this.gets_own_memory(capabilities, &options) {
            Self::copied_from_buffer(slf)?
        } else {
            Self::source(slf, this.order)?
        };
        let owns_memory = |tensor: &Tensor<Owner>| matches!(tensor.owner(), Owner::Block(_));
        let shares_buffer = !matches!(&source.memory, SourceMemory::InPlace(tensor) if owns_memory(tensor));
        let source = if options == ConvertOptions::NONE {
            match fast_path::convert_source(py, source, target, capabilities) {
                Outcome::Done(result) if shares_buffer => return Ok(result),
                Outcome::Done(result) => return Ok(this.remember(result, capabilities)),
                Outcome::NeedsPlan(source) => source,
                Outcome::Failed(failure) => return Err(failure),
                Outcome::NotApplicable => Self::source(slf, this.order)?,
            }
        } else {
            source
        };
        let plan = plan::decide(&source.describe_for(capabilities), capabilities, &options)?;
        let result = convert::convert_by_plan(py, source, &request, None)?;
        if shares_buffer && plan.shares() { Ok(result) } else { Ok(this.remember(result, capabilities)) }
    }

    /// Whether the tensor gets memory of its own: its users may write it and the buffer must not be written, or a copy of read-only
    /// memory is cheaper than a share.
    fn gets_own_memory(&self, target: &TargetCapabilities, options: &ConvertOptions) -> bool {
        let should_copy = match options.writable {
            _ if target.mutability == TargetMutability::Immutable => self.layout.bytes() <= CHEAP_COPY_BYTES,
            None => target.mutability == TargetMutability::Writable,
            Some(writable) => writable,
        };
        let stays_on_host = match options.device {
            DeviceRequest::Nearest => true,
            DeviceRequest::At(device) => device.is_host(),
            _ => false,
        };
        (self.access == Access::ReadOnly || options.writable == Some(true)) && should_copy && stays_on_host
    }

    /// A source over the buffer for a framework without read-only tensors, whatever the access to the buffer is.
    fn lent_source<'py>(slf: &Bound<'py, Self>) -> Result<Source<'py>> {
        let mut tensor = Self::tensor(slf, slf.get().order)?;
        // SAFETY: `set_writable` requires memory that is writable while the owner lives. With `writable=False` the caller has promised
        // not to write the tensor, and tensorferry writes no source. The loan makes later conversions treat it as read-only.
        unsafe { tensor.set_writable() };
        let tensor = record_loan(tensor, read_only_loans::lend_promised);
        Ok(Source::in_place(slf.clone().into_any(), OWN_FRAMEWORK, tensor))
    }

    /// A source with the values of the buffer, in the same layout, in new memory.
    fn copied_from_buffer<'py>(slf: &Bound<'py, Self>) -> Result<Source<'py>> {
        let (py, this) = (slf.py(), slf.get());
        let bytes = this.layout.bytes();
        let block = load_options::memory_for_copy(bytes)?;
        let data = block.data();
        let flat = |data, access, owner| -> Result<Tensor<Owner>> {
            let layout = Layout::dense(1, &[bytes as i64])?;
            // SAFETY: `Tensor::new` requires memory of the layout while the owner lives, writable where the access says so. Both callers
            // pass an address with `bytes` bytes and the owner of that memory.
            Ok(unsafe {
                Tensor::new(data, DType::UInt8, layout, Device::CPU, ByteOrder::Native, access, owner)
            }?)
        };
        let owner = if bytes < DETACH_THRESHOLD_BYTES {
            // SAFETY: `copy_nonoverlapping` requires `bytes` readable and writable bytes. The payload keeps as many, contiguous, because
            // it was read from a buffer, and so has the block, which is new and cannot overlap them.
            unsafe { std::ptr::copy_nonoverlapping(this.data.get(), data, bytes) };
            Owner::Block(block)
        } else {
            let payload = Owner::object(slf.clone().into_any().unbind());
            let from = flat(this.data.get(), Access::ReadOnly, payload)?;
            let to = flat(data, Access::ReadWrite, Owner::Block(block))?;
            copy_into(Some(py), &from, &to)?;
            to.into_owner()
        };
        let layout = this.layout.clone();
        // SAFETY: `Tensor::new` requires memory of the layout while the owner lives: the layout has no gaps and `bytes` bytes, which the
        // block has, all written.
        let tensor = unsafe {
            Tensor::new(data, this.dtype, layout, Device::CPU, this.order, Access::ReadWrite, owner)
        }?;
        let source = Source::in_place(slf.clone().into_any(), OWN_FRAMEWORK, tensor);
        Ok(source.with_mutability(SourceMutability::Temporary))
    }

    fn copied(&self) -> std::sync::MutexGuard<'_, Option<Py<PyAny>>> {
        self.copied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a tensor with memory of its own for later calls. Immutable tensors cannot show whether they share memory.
    fn remember<'py>(&self, tensor: Bound<'py, PyAny>, target: &TargetCapabilities) -> Bound<'py, PyAny> {
        if target.mutability != TargetMutability::Immutable {
            *self.copied() = Some(tensor.clone().unbind());
        }
        tensor
    }
}

#[pymethods]
impl Payload {
    /// The bytes, without a copy.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        if !this.is_contiguous() {
            return Err(PyBufferError::new_err("the memory of the payload has gaps or is on a GPU"));
        }
        let bytes = this.layout.bytes();
        let data = if bytes == 0 { std::ptr::NonNull::dangling().as_ptr() } else { this.data.get() };
        // SAFETY: `PyBuffer_FillInfo` requires a struct to fill, which Python passes, and memory of `bytes` bytes while the exporter
        // lives: `is_contiguous` has shown that the memory starts at `data` and has no gaps, and this object keeps it.
        let status = unsafe {
            let (data, read_only) = (data.cast(), c_int::from(this.is_read_only()));
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), data, bytes as ffi::Py_ssize_t, read_only, flags)
        };
        if status == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    fn __reduce_ex__<'py>(
        slf: &Bound<'py, Self>,
        protocol: u32,
    ) -> Result<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (py, this) = (slf.py(), slf.get());
        if payload_plans::are_collected() {
            payload_plans::add(Self::plan(&Self::source(slf, this.order)?)?.1)?;
            return Ok((py.get_type::<PyInt>().into_any(), PyTuple::empty(py)));
        }
        let rebuild = rebuild_function(py)?;
        let copied = if this.is_contiguous() { None } else { Some(Self::copied_to_host(slf)?) };
        let arguments = Self::rebuild_arguments(slf, copied.as_ref().unwrap_or(slf), protocol)?;
        Ok((rebuild.clone(), arguments))
    }

    /// The tensor of the framework that the stream names, or of the one that the reader asked for.
    #[pyo3(signature = (framework, device=None, flags=0, attributes=None))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        framework: &str,
        device: Option<&Bound<'py, PyAny>>,
        flags: u8,
        attributes: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        let py = slf.py();
        let chosen: Options = load_options::current();
        let target = match chosen.target {
            Some(target) => target,
            None => frameworks::target_named(py, framework).map_err(name_framework_option)?,
        };
        let capabilities = target.capabilities(py).map_err(|failure| match chosen.target {
            Some(_) => failure,
            None => name_framework_option(failure),
        })?;
        let is_same_framework = capabilities.framework == framework;
        let mut options = ConvertOptions { writable: chosen.writable, ..ConvertOptions::NONE };
        let mut is_device_of_stream = false;
        match (chosen.device, device) {
            (Some(device), _) => options.device = device,
            (None, Some(device)) => {
                let parsed = options::parse_common(Some(device), None, None, None, None)?.options.device;
                is_device_of_stream = match parsed {
                    DeviceRequest::At(device) if device.is_cuda() => {
                        capabilities.devices != SupportedDevices::Host
                    }
                    _ => is_same_framework,
                };
                if is_device_of_stream {
                    options.device = parsed;
                }
            }
            (None, None) => {}
        }
        let tensor = Self::convert(slf, target, options).map_err(|failure| match failure {
            Failure::Ferry(error) if error.kind() == ErrorKind::UnsupportedDType => {
                name_other_types(&error, capabilities)
            }
            failure if is_device_of_stream => name_device_option(failure),
            failure => failure,
        })?;
        if flags == 0 && attributes.is_none() || !is_same_framework {
            return Ok(tensor);
        }
        framework_state::restore(tensor, framework, flags, attributes)
    }
}
