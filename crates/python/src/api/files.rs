//! Files of tensors, as Python opens and writes them.
//!
//! A tensor of a file is a source like any other: its memory is a map of the file, or a block that was filled from it, and
//! the planner decides what becomes of it. So whatever a framework can share it shares with the page cache, and what goes to
//! a GPU is read while it is uploaded.

use crate::api::options;
use crate::api::shape::Lengths;
use crate::conversion::batch;
use crate::conversion::convert;
use crate::conversion::host_copy;
use crate::conversion::recognise::recognise;
use crate::conversion::request::ConversionRequest;
use crate::conversion::source::{Memory, Source};
use crate::errors::{Result, fail};
use crate::interpreter::owner::Owner;
use crate::reports::trace;
use crate::settings;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tensorferry_core::host::HostBlock;
use tensorferry_core::plan::{DeviceRequest, SourceMutability};
use tensorferry_core::{Access, ByteOrder, DType, Device, ErrorKind, Tensor};
use tensorferry_files::{
    Dialect, FileEntry, FileFormat, MapMode, OpenOptions, TensorFile, TensorSpec, WriteOptions,
};

/// A file of tensors whose headers have been read and found right.
///
/// Example:
///     >>> ferry.save(f"{folder}/x.npz", {"a": np.ones(2), "b": np.ones(3)})
///     >>> file = ferry.inspect(f"{folder}/x.npz")
///     >>> [tensor.name for tensor in file.tensors]
///     ['a', 'b']
#[pyclass(frozen, module = "tensorferry", name = "File")]
pub(crate) struct File {
    opened: TensorFile,
}

/// What a file says about one of its tensors.
///
/// Example:
///     >>> ferry.save(f"{folder}/x.npy", np.ones((2, 3)))
///     >>> tensor = ferry.inspect(f"{folder}/x.npy").tensors[0]
///     >>> tensor.dtype, tensor.shape, tensor.bytes
///     ('float64', (2, 3), 48)
#[pyclass(frozen, module = "tensorferry", name = "FileTensor")]
pub(crate) struct FileTensor {
    /// Its name; empty where the format has none.
    #[pyo3(get)]
    name: String,
    /// The element type.
    #[pyo3(get)]
    dtype: &'static str,
    shape: Vec<i64>,
    /// Bytes of its elements.
    #[pyo3(get)]
    bytes: u64,
    /// Where they begin in the file; None where they are compressed or encoded.
    #[pyo3(get)]
    offset: Option<u64>,
    /// Whether they are in this machine's byte order.
    #[pyo3(get)]
    native: bool,
    /// Whether the first index runs fastest.
    #[pyo3(get)]
    fortran: bool,
}

#[pymethods]
impl FileTensor {
    /// The lengths of its dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    fn __repr__(&self) -> String {
        format!("<FileTensor {:?}: {} of shape {:?}>", self.name, self.dtype, self.shape)
    }
}

impl FileTensor {
    fn of(entry: &FileEntry) -> Self {
        Self {
            name: entry.name().to_owned(),
            dtype: entry.dtype().name(),
            shape: entry.shape().to_vec(),
            bytes: entry.bytes(),
            offset: entry.offset(),
            native: entry.order() == ByteOrder::Native,
            fortran: entry.is_fortran(),
        }
    }
}

#[pymethods]
impl File {
    /// Opens the file at a path; raw bytes need `dtype` and `shape`.
    #[new]
    #[pyo3(signature = (path, *, format=None, dtype=None, shape=None, dialect=None, max_decompressed_bytes=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        format: Option<&str>,
        dtype: Option<&Bound<'_, PyAny>>,
        shape: Option<Lengths>,
        dialect: Option<&str>,
        max_decompressed_bytes: Option<u64>,
    ) -> Result<Self> {
        let options = OpenOptions {
            format: format.map(format_of).transpose()?,
            dtype: options::plain_dtype(dtype)?,
            shape: shape.map(Lengths::into_vec),
            dialect: dialect.map(dialect_of).transpose()?,
            max_decompressed_bytes,
            ..OpenOptions::default()
        };
        Ok(Self { opened: py.detach(|| tensorferry_files::open(&path, &options))? })
    }

    /// The file's format.
    #[getter]
    fn format(&self) -> &'static str {
        self.opened.format().name()
    }

    /// Whether such a file holds one tensor, and not several by their names.
    #[getter]
    fn is_single(&self) -> bool {
        self.opened.format().is_single()
    }

    /// The file's path.
    #[getter]
    fn path(&self) -> PathBuf {
        self.opened.path().to_owned()
    }

    /// What the file says about itself.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (key, value) in self.opened.metadata() {
            dict.set_item(key, value)?;
        }
        Ok(dict)
    }

    /// Its tensors.
    #[getter]
    fn tensors(&self) -> Vec<FileTensor> {
        self.opened.entries().iter().map(FileTensor::of).collect()
    }

    /// Names of what cannot be carried, each with the reason.
    #[getter]
    fn skipped(&self) -> Vec<(String, String)> {
        self.opened.skipped().iter().map(|(name, error)| (name.clone(), error.to_string())).collect()
    }

    /// Carries a tensor of the file to a framework.
    #[pyo3(signature = (name, framework, mmap=true, **options))]
    fn load<'py>(
        this: &Bound<'py, Self>,
        name: &str,
        framework: &Bound<'py, PyAny>,
        mmap: bool,
        options: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        carried(this, name, mmap, &ConversionRequest::from_keywords("load", framework, options)?)
    }

    /// Carries several to a framework, as a dict by their names.
    #[pyo3(signature = (names, framework, mmap=true, **options))]
    fn load_several<'py>(
        this: &Bound<'py, Self>,
        names: Vec<String>,
        framework: &Bound<'py, PyAny>,
        mmap: bool,
        options: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyDict>> {
        let request = ConversionRequest::from_keywords("load", framework, options)?;
        batch::batched(this.py(), &request, || {
            let results = PyDict::new(this.py());
            for name in names {
                results.set_item(&name, carried(this, &name, mmap, &request)?)?;
            }
            Ok(results)
        })
    }

    fn __repr__(&self) -> String {
        format!(
            "<File {} ({}, {} tensors)>",
            self.opened.path().display(),
            self.format(),
            self.opened.entries().len()
        )
    }
}

/// Carries the tensor of this name.
fn carried<'py>(
    file: &Bound<'py, File>,
    name: &str,
    mmap: bool,
    request: &ConversionRequest,
) -> Result<Bound<'py, PyAny>> {
    let started = trace::is_on().then(Instant::now);
    let opened = &file.get().opened;
    let entry = opened.entry(name)?;
    let tensor = if mmap && entry.is_stored() {
        // What goes to a GPU does not keep its map, so that one serves all.
        let leaves = matches!(request.options.device, DeviceRequest::At(device) if device.is_cuda());
        mapped(opened, entry, if leaves { MapMode::ReadOnly } else { MapMode::CopyOnWrite })?
    } else {
        read(file.py(), opened, entry)?
    };
    let source =
        Source::here(file.clone().into_any(), "file", tensor).with_mutability(SourceMutability::Temporary);
    convert::convert_by_plan(file.py(), source, request, started)
}

/// A tensor over the file itself. What is written to it stays in this process.
fn mapped(opened: &TensorFile, entry: &FileEntry, kind: MapMode) -> Result<Tensor<Owner>> {
    let map = opened.map(entry, kind)?;
    let data = map.data();
    // SAFETY: the map has as many bytes as the entry says, and the owner is the map.
    unsafe { of_entry(entry, data, kind.access(), Owner::Mapped(map)) }
}

/// A tensor in a block of our own.
fn read(py: Python<'_>, opened: &TensorFile, entry: &FileEntry) -> Result<Tensor<Owner>> {
    let bytes = entry.bytes() as usize;
    let block = HostBlock::new(bytes)?;
    let room = Shown(block.data());
    py.detach(|| {
        let room = { &room }.0.cast::<MaybeUninit<u8>>();
        // SAFETY: the block has so many bytes, and is nobody else's.
        let out = unsafe { std::slice::from_raw_parts_mut(room, bytes) };
        opened.read_into(entry, out, settings::threads())
    })?;
    let data = block.data();
    // SAFETY: the block was filled, and the owner is the block.
    unsafe { of_entry(entry, data, Access::ReadWrite, Owner::Block(block)) }
}

/// # Safety
/// As many bytes as the entry says lie there, for as long as the owner lives.
unsafe fn of_entry(entry: &FileEntry, data: *mut u8, access: Access, owner: Owner) -> Result<Tensor<Owner>> {
    let (dtype, layout, order) = (entry.dtype(), entry.layout()?, entry.order());
    // SAFETY: the caller's contract.
    Ok(unsafe { Tensor::new(data, dtype, layout, Device::CPU, order, access, owner) }?)
}

/// Memory that a thread without the interpreter reads or fills.
struct Shown(*mut u8);

// SAFETY: it crosses the border of `detach` only, and whoever shows it waits there.
unsafe impl Send for Shown {}
// SAFETY: as above.
unsafe impl Sync for Shown {}

fn format_of(name: &str) -> Result<FileFormat> {
    FileFormat::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = FileFormat::ALL.iter().map(|format| format.name()).collect();
        fail(
            ErrorKind::InvalidArgument,
            format!("no format is called {name:?}"),
            format!("write one of {}", known.join(", ")),
        )
    })
}

fn dialect_of(name: &str) -> Result<Dialect> {
    match name {
        "onnx" => Ok(Dialect::Onnx),
        "tensorflow" => Ok(Dialect::TensorFlow),
        other => {
            let fact = format!("no TensorProto is of {other:?}");
            Err(fail(ErrorKind::InvalidArgument, fact, "write \"onnx\" or \"tensorflow\""))
        }
    }
}

fn dtype_of(name: &str) -> Result<DType> {
    DType::from_name(name).ok_or_else(|| {
        fail(
            ErrorKind::InvalidArgument,
            format!("no type is called {name:?}"),
            "write a name such as \"float32\"",
        )
    })
}

/// A file that is being written; it appears under its name when it is finished.
#[pyclass(frozen, module = "tensorferry", name = "Writer")]
pub(crate) struct Writer {
    writer: Mutex<Option<tensorferry_files::FileWriter>>,
}

#[pymethods]
impl Writer {
    /// Begins a file for tensors of these names, types and shapes.
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    #[new]
    #[pyo3(signature = (path, tensors, *, format=None, metadata=Vec::new(), compression=None, dialect="onnx", durable=true))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        tensors: Vec<(String, String, Vec<i64>)>,
        format: Option<&str>,
        metadata: Vec<(String, String)>,
        compression: Option<i64>,
        dialect: &str,
        durable: bool,
    ) -> Result<Self> {
        let format = match format {
            Some(name) => format_of(name)?,
            None => FileFormat::from_path(&path).ok_or_else(|| {
                fail(
                    ErrorKind::InvalidArgument,
                    format!("the name {:?} does not tell the format", path.display().to_string()),
                    "pass format=\"npy\", \"npz\", \"safetensors\", \"tensorproto\" or \"raw\"",
                )
            })?,
        };
        // What would have no effect is a mistake.
        if compression.is_some() && format != FileFormat::Npz {
            let fact = format!("a file of the format {format} is not compressed");
            return Err(fail(ErrorKind::InvalidArgument, fact, "leave compression out, or save as .npz"));
        }
        if !metadata.is_empty() && format != FileFormat::Safetensors {
            let fact = format!("a file of the format {format} says nothing about itself");
            return Err(fail(ErrorKind::InvalidArgument, fact, "leave metadata out, or save as safetensors"));
        }
        let compression = match compression {
            None => None,
            Some(level @ 1..=9) => Some(level as u8),
            Some(other) => {
                let fact = format!("compression is {other}, which is no level");
                return Err(fail(ErrorKind::InvalidArgument, fact, "write a level from 1 to 9"));
            }
        };
        let dialect = dialect_of(dialect)?;
        let specs = tensors
            .iter()
            .map(|(name, dtype, shape)| Ok(TensorSpec::new(name, dtype_of(dtype)?, shape)))
            .collect::<Result<Vec<TensorSpec>>>()?;
        let options = WriteOptions { metadata, compression, dialect, threads: settings::threads(), durable };
        let writer = py.detach(|| tensorferry_files::FileWriter::create(&path, format, &specs, options))?;
        Ok(Self { writer: Mutex::new(Some(writer)) })
    }

    /// Begins the tensor of this number.
    fn begin(&self, py: Python<'_>, number: usize) -> Result<()> {
        self.with(py, |writer| writer.begin(number))
    }

    /// Writes the elements of a host tensor behind what was written of the tensor that is begun.
    fn write(&self, x: &Bound<'_, PyAny>) -> Result<()> {
        let py = x.py();
        let source = crate::conversion::reading::read(x, recognise(x)?)?;
        let Memory::Here(tensor) = source.memory else { return Err(crate::errors::not_a_tensor(x)) };
        if !tensor.device().is_host() {
            return Err(fail(
                ErrorKind::UnsupportedDevice,
                "a writer takes host memory",
                "download it first",
            ));
        }
        let plain = tensor.layout().is_dense() && tensor.order() == ByteOrder::Native;
        let tensor = if plain { tensor } else { host_copy::packed(py, &tensor, tensor.dtype())? };
        let (data, bytes) = (Shown(tensor.data()), tensor.layout().bytes());
        self.with(py, |writer| {
            // SAFETY: dense host memory of so many bytes, which the tensor keeps.
            writer.write(unsafe { std::slice::from_raw_parts({ &data }.0, bytes) })
        })
    }

    /// Puts the file into its place; all bytes must have come.
    fn finish(&self, py: Python<'_>) -> Result<()> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(ended)?;
        Ok(py.detach(|| writer.finish())?)
    }

    /// Gives up; no file is left.
    fn abandon(&self, py: Python<'_>) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(writer));
    }
}

impl Writer {
    fn with(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut tensorferry_files::FileWriter) -> tensorferry_core::Result<()> + Send,
    ) -> Result<()> {
        py.detach(|| {
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(work(writer.as_mut().ok_or_else(ended)?)?)
        })
    }
}

fn ended() -> crate::errors::Failure {
    fail(ErrorKind::InvalidArgument, "the file is finished or given up", "begin another")
}
