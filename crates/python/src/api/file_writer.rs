//! `Writer`: writes a file of tensors.

use crate::api::files::{dialect_of, format_of};
use crate::arrow;
use crate::arrow::read::Purpose;
use crate::conversion::host_copy;
use crate::conversion::reading;
use crate::conversion::recognise::recognise;
use crate::conversion::source::SourceMemory;
use crate::errors::{Failure, Result, fail, keys, not_a_tensor};
use crate::settings;
use crate::trees::traverse::tensor_of_node;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use tensorferry_core::{ByteOrder, DType, Error, ErrorKind};
use tensorferry_files::{FileFormat, TensorSpec, WriteOptions};

/// The element type of this name.
fn dtype_of(name: &str) -> Result<DType> {
    DType::from_name(name).ok_or_else(|| {
        fail(
            ErrorKind::InvalidArgument,
            format!("unknown element type {name:?}"),
            "pass a name such as \"float32\"",
        )
    })
}

/// What a file stores of an object: the columns of a table, or the tensor of a parameter; None for other objects.
#[pyfunction]
pub(crate) fn _stored<'py>(x: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyAny>>> {
    match arrow::read::resolve(x, Purpose::Conversion)? {
        Some(columns) => Ok(Some(columns)),
        None => tensor_of_node(recognise(x)?),
    }
}

/// A file that is being written. It appears under its name when it is finished.
#[pyclass(frozen, module = "tensorferry", name = "Writer")]
pub(crate) struct Writer {
    writer: Mutex<Option<tensorferry_files::FileWriter>>,
}

#[pymethods]
impl Writer {
    /// Begins a file for tensors of these names, element types and shapes.
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
                let fact = format!("{}: the extension does not name a file format", path.display());
                Error::new(ErrorKind::InvalidArgument, fact).with_hint(keys::NAME_FILE_FORMAT)
            })?,
        };
        // Arguments without effect are errors.
        if compression.is_some() && format != FileFormat::Npz {
            let fact = format!("{}: files of the format {format} cannot be compressed", path.display());
            return Err(fail(ErrorKind::InvalidArgument, fact, "leave compression out, or save as .npz"));
        }
        if !metadata.is_empty() && format != FileFormat::Safetensors {
            let fact = format!("{}: files of the format {format} cannot have metadata", path.display());
            return Err(fail(ErrorKind::InvalidArgument, fact, "leave metadata out, or save as safetensors"));
        }
        let compression = match compression {
            None => None,
            Some(level @ 1..=9) => Some(level as u8),
            Some(other) => {
                let fact = format!("compression is {other}, and the levels are 1 to 9");
                return Err(fail(ErrorKind::InvalidArgument, fact, "pass a level from 1 to 9"));
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

    /// Begins the tensor with this index.
    fn begin(&self, py: Python<'_>, number: usize) -> Result<()> {
        self.with_writer(py, |writer| writer.begin(number))
    }

    /// Appends the elements of a host tensor to the tensor that was begun.
    fn write(&self, x: &Bound<'_, PyAny>) -> Result<()> {
        let py = x.py();
        let source = reading::read(recognise(x)?)?;
        let SourceMemory::InPlace(tensor) = source.memory else { return Err(not_a_tensor(x)) };
        if !tensor.device().is_host() {
            return Err(fail(
                ErrorKind::UnsupportedDevice,
                format!("the tensor is on {}, and a writer accepts host memory only", tensor.device()),
                "convert the tensor with device=\"cpu\" first",
            ));
        }
        let is_writable_as_is = tensor.layout().is_dense() && tensor.order() == ByteOrder::Native;
        let tensor =
            if is_writable_as_is { tensor } else { host_copy::copy_packed(py, &tensor, tensor.dtype())? };
        let bytes = match tensor.layout().bytes() {
            // The address of an empty tensor may be null, which that of a slice may not.
            0 => &[],
            // SAFETY: `from_raw_parts` requires as many readable bytes as the layout has. The tensor is dense host memory, as was
            // checked or made above, and lives longer than the slice. A Python thread that writes the memory during the call
            // races, as with `numpy.ndarray.tofile`.
            bytes => unsafe { std::slice::from_raw_parts(tensor.data(), bytes) },
        };
        self.with_writer(py, |writer| writer.write(bytes))
    }

    /// Finishes the file, which appears under its name. All elements must have been written.
    fn finish(&self, py: Python<'_>) -> Result<()> {
        let writer =
            self.writer.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(no_longer_open)?;
        Ok(py.detach(|| writer.finish())?)
    }

    /// Abandons the file, which is removed.
    fn abandon(&self, py: Python<'_>) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(writer));
    }
}

impl Writer {
    fn with_writer(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut tensorferry_files::FileWriter) -> tensorferry_core::Result<()> + Send,
    ) -> Result<()> {
        py.detach(|| {
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(work(writer.as_mut().ok_or_else(no_longer_open)?)?)
        })
    }
}

fn no_longer_open() -> Failure {
    fail(ErrorKind::InvalidArgument, "the file is already finished or abandoned", "open another writer")
}
