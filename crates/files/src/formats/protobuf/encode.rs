//! Encoding of a TensorProto.
//!
//! The message holds the type, the shape, the name (ONNX only) and the raw bytes, which both libraries read fastest.
//! Protobuf limits a message to 2 GiB, and larger tensors are rejected.

use super::dialect::Dialect;
use super::wire::{write_bytes_key, write_varint_field};
use crate::errors::{invalid_argument, quoted, unsupported_dtype};
use crate::hints;
use crate::spec::{TensorSpec, check_little_endian_row_major};
use tensorferry_core::Result;

/// Protobuf's limit on the size of a message.
const MAX_PROTO_BYTES: u64 = (1 << 31) - 1;
/// The limit on the length of a tensor's name, for reading and writing.
pub(super) const MAX_NAME_BYTES: u64 = 1 << 16;

/// The bytes of the message before the data.
pub(crate) fn write_header(spec: &TensorSpec, dialect: Dialect) -> Result<Vec<u8>> {
    check_little_endian_row_major(std::slice::from_ref(spec), "TensorProto")?;
    let Some(type_number) = dialect.type_number(spec.dtype) else {
        return Err(unsupported_dtype(
            format!("the TensorProto of {} has no {} with one element per byte", dialect.name(), spec.dtype),
            hints::SAVE_AS_NPY_OR_SAFETENSORS,
        ));
    };
    let mut bytes = Vec::new();
    match dialect {
        Dialect::Onnx => {
            spec.shape.iter().for_each(|&length| write_varint_field(&mut bytes, 1, length as u64));
            write_varint_field(&mut bytes, 2, type_number);
            if !spec.name.is_empty() {
                write_bytes_key(&mut bytes, 8, spec.name.len() as u64);
                bytes.extend_from_slice(spec.name.as_bytes());
            }
        }
        Dialect::TensorFlow => {
            write_varint_field(&mut bytes, 1, type_number);
            let mut shape = Vec::new();
            for &length in &spec.shape {
                let mut dimension = Vec::new();
                write_varint_field(&mut dimension, 1, length as u64);
                write_bytes_key(&mut shape, 2, dimension.len() as u64);
                shape.extend_from_slice(&dimension);
            }
            write_bytes_key(&mut bytes, 2, shape.len() as u64);
            bytes.extend_from_slice(&shape);
        }
    }
    let data_bytes = spec.bytes()?;
    write_bytes_key(&mut bytes, dialect.raw_field(), data_bytes);
    if spec.name.len() as u64 > MAX_NAME_BYTES || bytes.len() as u64 + data_bytes > MAX_PROTO_BYTES {
        return Err(invalid_argument(
            format!(
                "tensor {} of {data_bytes} bytes with a name of {} bytes exceeds the limits of a TensorProto, \
                 {MAX_PROTO_BYTES} and {MAX_NAME_BYTES} bytes",
                quoted(&spec.name),
                spec.name.len()
            ),
            hints::SAVE_AS_NPY_OR_SAFETENSORS,
        ));
    }
    Ok(bytes)
}
