//! `File`: opens a file of tensors and converts its tensors.
//!
//! A tensor of a file is a source like any other. Its memory is a map of the file, or a block that was read from it, and the
//! planner decides how to convert it. A framework therefore shares memory with the page cache where it can, and a tensor for a
//! GPU is read while it is uploaded.

use crate::api::file_listing::{self, TREE_KEY};
use crate::api::options;
use crate::api::shape::Lengths;
use crate::conversion::batch;
use crate::conversion::convert;
use crate::conversion::request::ConversionRequest;
use crate::conversion::source::Source;
use crate::errors::{Result, fail, full_text};
use crate::interpreter::owner::Owner;
use crate::reports::trace;
use crate::settings;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::time::Instant;
use tensorferry_core::host::HostBlock;
use tensorferry_core::plan::{DeviceRequest, SourceMutability, count_noun};
use tensorferry_core::{Access, ByteOrder, Device, ErrorKind, Tensor};
use tensorferry_files::{Dialect, FileEntry, FileFormat, MapMode, OpenOptions, TensorFile};

/// A file of tensors whose headers have been read and validated.
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

/// The description of one tensor of a file.
///
/// Example:
///     >>> ferry.save(f"{folder}/x.npy", np.ones((2, 3)))
///     >>> tensor = ferry.inspect(f"{folder}/x.npy").tensors[0]
///     >>> tensor.dtype, tensor.shape, tensor.bytes
///     ('float64', (2, 3), 48)
#[expect(rustdoc::broken_intra_doc_links, reason = "a docstring of Python")]
#[pyclass(frozen, module = "tensorferry", name = "FileTensor")]
pub(crate) struct FileTensor {
    /// The name; empty if the format has no names.
    #[pyo3(get)]
    name: String,
    /// The element type.
    #[pyo3(get)]
    dtype: &'static str,
    shape: Vec<i64>,
    /// The number of bytes of the elements.
    #[pyo3(get)]
    bytes: u64,
    /// The offset of the elements in the file; None if they are compressed or encoded.
    #[pyo3(get)]
    offset: Option<u64>,
    /// Whether the elements are in this machine's byte order.
    #[pyo3(get)]
    native: bool,
    /// Whether the elements are in Fortran order.
    #[pyo3(get)]
    fortran: bool,
}

#[pymethods]
impl FileTensor {
    /// The lengths of the axes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    fn __repr__(&self) -> String {
        format!("<FileTensor {:?}: {} of shape {:?}>", self.name, self.dtype, self.shape)
    }
}

impl FileTensor {
    fn from_entry(entry: &FileEntry) -> Self {
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
            dtype: options::parse_concrete_dtype(dtype)?,
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

    /// Whether a file of this format holds one tensor without a name.
    #[getter]
    fn is_single(&self) -> bool {
        self.opened.format().is_single()
    }

    /// The file's path.
    #[getter]
    fn path(&self) -> PathBuf {
        self.opened.path().to_owned()
    }

    /// The metadata of the file, without tensorferry's own keys.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (key, value) in self.opened.metadata().iter().filter(|pair| pair.0 != TREE_KEY) {
            dict.set_item(key, value)?;
        }
        Ok(dict)
    }

    /// The tree that `save` recorded, as JSON; None if the file has none.
    #[getter]
    fn _tree(&self) -> Option<&str> {
        self.opened.metadata().iter().find(|pair| pair.0 == TREE_KEY).map(|pair| pair.1.as_str())
    }

    /// The tensors of the file.
    #[getter]
    fn tensors(&self) -> Vec<FileTensor> {
        self.opened.entries().iter().map(FileTensor::from_entry).collect()
    }

    /// The names of entries that cannot be loaded, each with the reason.
    #[getter]
    fn skipped(&self) -> Vec<(String, String)> {
        self.opened.skipped().iter().map(|(name, error)| (name.clone(), full_text(error))).collect()
    }

    /// Converts a tensor of the file to a framework.
    #[pyo3(signature = (name, framework, mmap=true, **options))]
    fn load<'py>(
        this: &Bound<'py, Self>,
        name: &str,
        framework: &Bound<'py, PyAny>,
        mmap: bool,
        options: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        load_entry(this, name, mmap, &ConversionRequest::from_keywords("load", framework, options)?)
    }

    /// Converts several tensors to a framework. Returns a dict by name.
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
                results.set_item(&name, load_entry(this, &name, mmap, &request)?)?;
            }
            Ok(results)
        })
    }

    fn __str__(&self) -> String {
        file_listing::text(&self.opened)
    }

    fn __repr__(&self) -> String {
        format!(
            "<File {} ({}, {})>",
            self.opened.path().display(),
            self.format(),
            count_noun(self.opened.entries().len(), "tensor")
        )
    }

    fn _repr_html_(&self) -> Result<String> {
        file_listing::html(&self.opened)
    }
}

/// Converts the tensor of this name.
fn load_entry<'py>(
    file: &Bound<'py, File>,
    name: &str,
    mmap: bool,
    request: &ConversionRequest,
) -> Result<Bound<'py, PyAny>> {
    let started = trace::is_tracing().then(Instant::now);
    let opened = &file.get().opened;
    let entry = opened.entry(name)?;
    // Writes to a map are private to this process. Copies to a GPU do not keep the map, so that all of them can use one read-only map.
    let goes_to_gpu = matches!(request.options.device, DeviceRequest::At(device) if device.is_cuda());
    let mode = if goes_to_gpu { MapMode::ReadOnly } else { MapMode::CopyOnWrite };
    let tensor = tensor_of_entry(file.py(), opened, entry, (mmap && entry.is_stored()).then_some(mode))?;
    let source = Source::in_place(file.clone().into_any(), "file", tensor)
        .with_mutability(SourceMutability::Temporary);
    convert::convert_by_plan(file.py(), source, request, started).map_err(|failure| {
        let path = opened.path().display();
        match name {
            "" => failure.within(&path.to_string()),
            _ => failure.within(&format!("{path}: '{name}'")),
        }
    })
}

/// A tensor in the mapped file, or without a mode in a new block that is read from the file.
fn tensor_of_entry(
    py: Python<'_>,
    opened: &TensorFile,
    entry: &FileEntry,
    mode: Option<MapMode>,
) -> Result<Tensor<Owner>> {
    let (data, access, owner) = match mode {
        Some(mode) => {
            let map = opened.map(entry, mode)?;
            (map.data(), mode.access(), Owner::Mapped(map))
        }
        None => {
            let block = read_entry(py, opened, entry)?;
            (block.data(), Access::ReadWrite, Owner::Block(block))
        }
    };
    let (dtype, layout, order) = (entry.dtype(), entry.layout()?, entry.order());
    // SAFETY: `Tensor::new` requires memory of the entry's layout while the owner lives, writable if the access says so. The owner
    // is a map or a block of `entry.bytes()` bytes, which `FileEntry::new` computed from the layout. `mode.access()` is that of the
    // map.
    Ok(unsafe { Tensor::new(data, dtype, layout, Device::CPU, order, access, owner) }?)
}

/// A new block with the elements of an entry.
fn read_entry(py: Python<'_>, opened: &TensorFile, entry: &FileEntry) -> Result<HostBlock> {
    let bytes = entry.bytes() as usize;
    let block = HostBlock::new(bytes)?;
    Ok(py
        .detach(move || {
            // SAFETY: `from_raw_parts_mut` requires `bytes` bytes that nothing else uses: the block is new, has as many, and this closure
            // owns it. Bytes that are not written yet are valid as `MaybeUninit`.
            let out =
                unsafe { std::slice::from_raw_parts_mut(block.data().cast::<MaybeUninit<u8>>(), bytes) };
            opened.read_into(entry, out, settings::threads())?;
            Ok(block)
        })
        .map_err(|error: tensorferry_core::Error| error)?)
}

/// The file format of this name.
pub(super) fn format_of(name: &str) -> Result<FileFormat> {
    FileFormat::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = FileFormat::ALL.iter().map(|format| format.name()).collect();
        fail(
            ErrorKind::InvalidArgument,
            format!("unknown file format {name:?}"),
            format!("pass one of {}", known.join(", ")),
        )
    })
}

/// The dialect of TensorProto of this name.
pub(super) fn dialect_of(name: &str) -> Result<Dialect> {
    match name {
        "onnx" => Ok(Dialect::Onnx),
        "tensorflow" => Ok(Dialect::TensorFlow),
        other => {
            let fact = format!("unknown TensorProto dialect {other:?}");
            Err(fail(ErrorKind::InvalidArgument, fact, "pass \"onnx\" or \"tensorflow\""))
        }
    }
}
