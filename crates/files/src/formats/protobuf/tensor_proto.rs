//! Parsing of a TensorProto.
//!
//! The raw bytes (`raw_data`, `tensor_content`) can be mapped. Typed fields (`float_data`, `int_val` and so on) are read
//! packed or unpacked; packed floats are stored as in memory and can be mapped too. TensorFlow omits trailing values that
//! equal the last one. They are restored, up to [`OpenOptions::max_decompressed_bytes`].
//!
//! These messages are rejected:
//!
//! - data in two fields, or in the field of another type;
//! - values out of the range of the type;
//! - a singular field that occurs twice (protobuf would take the last or merge them);
//! - shapes of unknown rank;
//! - with a hint: strings, resources, ONNX's external data (a path to another file) and segments, and types that pack several
//!   elements per byte.

use super::dialect::{Dialect, ValueEncoding};
use super::encode::MAX_NAME_BYTES;
use super::values::{count_values, values_per_element};
use super::wire::{WireReader, WireValue};
use crate::entry::{DataLocation, EncodedValues, FileEntry};
use crate::errors::{invalid_argument, invalid_file, invalid_shape_in_file, unsupported_dtype};
use crate::hints;
use crate::options::OpenOptions;
use crate::reading::file_source::{ByteRange, FileSource};
use crate::spec::{LITTLE_ENDIAN, TensorSpec, check_rank, dimension};
use std::sync::Arc;
use tensorferry_core::{Error, ErrorKind, Result};

/// The parsed fields.
#[derive(Default)]
struct TensorProto {
    type_number: Option<u64>,
    shape: Vec<i64>,
    has_shape: bool,
    raw: Option<ByteRange>,
    typed_fields: Vec<TypedField>,
    name: String,
}

/// A typed field that occurs in a message.
struct TypedField {
    number: u32,
    occurrences: u64,
    /// The bytes of the last occurrence, if it is packed.
    packed: Option<ByteRange>,
}

/// The one tensor of a file, and the dialect of its message.
pub(crate) fn read_entry(source: &Arc<FileSource>, options: &OpenOptions) -> Result<(FileEntry, Dialect)> {
    let whole = ByteRange { start: 0, length: source.size() };
    let dialect = match options.dialect {
        Some(dialect) => dialect,
        None => detect_dialect(source, whole)?,
    };
    let proto = match dialect {
        Dialect::Onnx => parse_onnx(source, whole)?,
        Dialect::TensorFlow => parse_tensorflow(source, whole)?,
    };
    let type_number = proto.type_number.unwrap_or(0);
    let Some(dtype) = dialect.dtype(type_number) else {
        let fact = format!(
            "type number {type_number} of {} is not a tensor type, or packs several elements per byte",
            dialect.name()
        );
        return Err(Error::new(ErrorKind::UnsupportedDType, fact)
            .with_hint_value(hints::LOAD_WITH_LIBRARY, dialect.name()));
    };
    let spec =
        TensorSpec { name: proto.name, dtype, shape: proto.shape, order: LITTLE_ENDIAN, fortran: false };
    let bytes = spec.bytes().map_err(invalid_shape_in_file)?;
    let (field, encoding) = dialect.value_field(dtype);
    let stored = |range: ByteRange| DataLocation::Stored { file: 0, offset: range.start, member: None };
    match (proto.raw, proto.typed_fields.as_slice()) {
        (Some(_), [_, ..]) | (None, [_, _, ..]) => Err(invalid_file("the values are in two fields")),
        (Some(raw), []) => Ok((FileEntry::new(spec, raw.length, stored(raw))?, dialect)),
        (None, [found]) if found.number != field => Err(invalid_file(format!(
            "the values of {dtype} are in field {}, expected field {field}",
            found.number
        ))),
        (None, found) => {
            let is_stored_as_in_memory = encoding != ValueEncoding::Varint;
            if let [TypedField { occurrences: 1, packed: Some(range), .. }] = found
                && is_stored_as_in_memory
                && range.length == bytes
            {
                return Ok((FileEntry::new(spec, bytes, stored(*range))?, dialect));
            }
            let values = EncodedValues { message: whole, field, encoding, count: 0 };
            let count = count_values(&values, source)?;
            let location = DataLocation::Encoded(EncodedValues { count, ..values });
            check_count(count, bytes, &spec, dialect, source.size(), options)?;
            Ok((FileEntry::new(spec, bytes, location)?, dialect))
        }
    }
}

/// Compares the number of values with the shape.
fn check_count(
    count: u64,
    bytes: u64,
    spec: &TensorSpec,
    dialect: Dialect,
    file_bytes: u64,
    options: &OpenOptions,
) -> Result<()> {
    let per_element = values_per_element(spec.dtype);
    let expected = bytes / spec.dtype.size() as u64 * per_element;
    let repeats_last = dialect == Dialect::TensorFlow && count < expected;
    if (count != expected && !repeats_last) || !count.is_multiple_of(per_element) {
        return Err(invalid_file(format!(
            "{} of shape {:?} takes {expected} values, found {count}",
            spec.dtype, spec.shape
        )));
    }
    if repeats_last {
        options.check_decompressed_bytes(u128::from(bytes), file_bytes)?;
    }
    Ok(())
}

fn detect_dialect(source: &Arc<FileSource>, whole: ByteRange) -> Result<Dialect> {
    let mut fields = WireReader::new(source.clone(), whole);
    while let Some((number, value)) = fields.read_field()? {
        match (number, value) {
            (2, WireValue::Varint(_)) => return Ok(Dialect::Onnx),
            (2, WireValue::Bytes(_)) => return Ok(Dialect::TensorFlow),
            _ => {}
        }
    }
    Err(invalid_argument("the TensorProto is valid for both ONNX and TensorFlow", hints::NAME_DIALECT))
}

/// Sets the value of a singular field.
fn set_once<T>(slot: &mut Option<T>, value: T, field: u32) -> Result<()> {
    match slot.replace(value) {
        Some(_) => Err(invalid_file(format!("field {field} occurs twice"))),
        None => Ok(()),
    }
}

fn unexpected_wire_type(field: u32) -> Error {
    invalid_file(format!("field {field} has an unexpected wire type"))
}

impl TensorProto {
    /// Records a data field. Fields of other numbers are ignored, as protobuf requires.
    fn add_data_field(&mut self, dialect: Dialect, number: u32, value: WireValue) -> Result<()> {
        if number == dialect.raw_field() {
            return match value {
                WireValue::Bytes(range) => set_once(&mut self.raw, range, number),
                _ => Err(unexpected_wire_type(number)),
            };
        }
        if dialect.value_fields().contains(&number) {
            let packed = if let WireValue::Bytes(range) = value { Some(range) } else { None };
            if packed.is_some_and(|range| range.length == 0) {
                return Ok(());
            }
            match self.typed_fields.iter_mut().find(|field| field.number == number) {
                Some(field) => (field.occurrences, field.packed) = (field.occurrences + 1, packed),
                None => self.typed_fields.push(TypedField { number, occurrences: 1, packed }),
            }
        }
        Ok(())
    }

    fn add_dimension(&mut self, length: u64) -> Result<()> {
        if (length as i64) < 0 {
            return Err(invalid_file(format!(
                "shape dimension {} is negative: {}",
                self.shape.len(),
                length as i64
            )));
        }
        self.shape.push(dimension(length)?);
        check_rank(self.shape.len())
    }
}

fn parse_onnx(source: &Arc<FileSource>, whole: ByteRange) -> Result<TensorProto> {
    let mut proto = TensorProto::default();
    let mut name = None;
    let mut fields = WireReader::new(source.clone(), whole);
    while let Some((number, value)) = fields.read_field()? {
        match (number, value) {
            (1, WireValue::Varint(length)) => proto.add_dimension(length)?,
            (1, WireValue::Bytes(range)) => {
                let mut lengths = WireReader::new(source.clone(), range);
                while !lengths.is_at_end() {
                    proto.add_dimension(lengths.read_varint()?)?;
                }
            }
            (2, WireValue::Varint(type_number)) => set_once(&mut proto.type_number, type_number, 2)?,
            (8, WireValue::Bytes(range)) if range.length <= MAX_NAME_BYTES => {
                let text = String::from_utf8(source.read_to_vec(range.start, range.length as usize)?);
                set_once(&mut name, text.map_err(|_| invalid_file("the tensor name is not UTF-8"))?, 8)?;
            }
            (8, WireValue::Bytes(range)) => {
                return Err(invalid_file(format!(
                    "the tensor name has {} bytes, over the limit of {MAX_NAME_BYTES}",
                    range.length
                )));
            }
            (13, _) | (14, WireValue::Varint(1..)) => {
                return Err(unsupported_dtype(
                    "the data of the tensor is in another file",
                    hints::EMBED_ONNX_DATA,
                ));
            }
            (3, _) => {
                return Err(unsupported_dtype(
                    "the message is one segment of a tensor",
                    hints::JOIN_ONNX_SEGMENTS,
                ));
            }
            (1 | 2 | 8, _) => return Err(unexpected_wire_type(number)),
            _ => proto.add_data_field(Dialect::Onnx, number, value)?,
        }
    }
    proto.name = name.unwrap_or_default();
    Ok(proto)
}

fn parse_tensorflow(source: &Arc<FileSource>, whole: ByteRange) -> Result<TensorProto> {
    let mut proto = TensorProto::default();
    let mut fields = WireReader::new(source.clone(), whole);
    while let Some((number, value)) = fields.read_field()? {
        match (number, value) {
            (1, WireValue::Varint(type_number)) => set_once(&mut proto.type_number, type_number, 1)?,
            (2, WireValue::Bytes(_)) if proto.has_shape => {
                return Err(invalid_file("field 2 occurs twice"));
            }
            (2, WireValue::Bytes(range)) => {
                proto.has_shape = true;
                parse_tensorflow_shape(source, range, &mut proto)?;
            }
            (1 | 2, _) => return Err(unexpected_wire_type(number)),
            _ => proto.add_data_field(Dialect::TensorFlow, number, value)?,
        }
    }
    Ok(proto)
}

/// Parses TensorFlow's shape, a message with one message per dimension.
fn parse_tensorflow_shape(source: &Arc<FileSource>, range: ByteRange, proto: &mut TensorProto) -> Result<()> {
    let unexpected = || invalid_file("a field of the shape has an unexpected wire type");
    let mut dimensions = WireReader::new(source.clone(), range);
    while let Some((number, value)) = dimensions.read_field()? {
        match (number, value) {
            (2, WireValue::Bytes(range)) => {
                let (mut fields, mut length) = (WireReader::new(source.clone(), range), None);
                while let Some((number, value)) = fields.read_field()? {
                    match (number, value) {
                        (1, WireValue::Varint(size)) => set_once(&mut length, size, 1)?,
                        (1, _) => return Err(unexpected()),
                        _ => {}
                    }
                }
                proto.add_dimension(length.unwrap_or(0))?;
            }
            (3, WireValue::Varint(1..)) => return Err(invalid_file("the rank of the tensor is unknown")),
            (2 | 3, _) => return Err(unexpected()),
            _ => {}
        }
    }
    Ok(())
}
