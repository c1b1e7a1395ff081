//! Reading values of ONNX Runtime, through DLPack.
//!
//! A value may hold a tensor, a sparse tensor, a sequence, a map or nothing. Its `data_type()` says so, and tells booleans from bytes,
//! which DLPack exports alike.

use crate::conversion::source::{Source, SourceMemory};
use crate::errors::{Result, fail, type_name};
use crate::protocols::reader;
use pyo3::prelude::*;
use tensorferry_core::{DType, ErrorKind};

/// Reads an `OrtValue`.
pub(crate) fn read<'py>(value: &Bound<'py, PyAny>) -> Result<Source<'py>> {
    // The type of an optional without a value ends the process.
    if !value.call_method0("has_value")?.is_truthy()? {
        let fact = "the OrtValue is an optional without a value";
        return Err(fail(ErrorKind::NotATensor, fact, "leave it out where x.has_value() is False"));
    }
    if type_name(value).starts_with("onnxruntime.capi.onnxruntime_pybind11_state.") {
        let fact = "the inner OrtValue of ONNX Runtime does not own its memory: the onnxruntime.OrtValue around it does";
        return Err(fail(ErrorKind::NotATensor, fact, "pass that value, or x.numpy(), which copies"));
    }
    let data_type: String = value.call_method0("data_type")?.extract()?;
    let hint = match data_type.as_str() {
        "tensor(string)" => "pass numpy.unique(x.numpy(), return_inverse=True)[1], which numbers the strings",
        sparse if sparse.starts_with("sparse_tensor") => {
            "pass x.as_sparse_tensor().values(), and its indices separately"
        }
        narrow if ["float8", "float4", "int4", "int2"].iter().any(|name| narrow.contains(name)) => {
            "add a Cast to the model, for example to float32"
        }
        dense if dense.starts_with("tensor") => "",
        _ => "pass session.run(None, inputs), where sequences are lists and maps are dicts",
    };
    if !hint.is_empty() {
        let fact = format!("ONNX Runtime does not export an OrtValue of type {data_type}");
        return Err(fail(ErrorKind::NotATensor, fact, hint));
    }
    let mut source = reader::from_dlpack(value)?;
    source.memory = match source.memory {
        SourceMemory::InPlace(tensor) if data_type == "tensor(bool)" => {
            SourceMemory::InPlace(tensor.reinterpret(DType::Bool)?)
        }
        memory => memory,
    };
    Ok(source)
}
