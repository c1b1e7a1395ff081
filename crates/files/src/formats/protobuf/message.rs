//! TensorProto: one tensor as a protobuf message, in ONNX's or TensorFlow's dialect.
//!
//! # What is read
//!
//! The bytes as they are (`raw_data`, `tensor_content`), which can be mapped, and the typed fields (`float_data`, `int_val`
//! and so on), packed or not. Packed floats too lie in the file as they are in memory, and can be mapped. TensorFlow leaves
//! out values at the end that repeat the last one; they are filled in, up to [`OpenOptions::max_decompressed_bytes`].
//!
//! Refused: data in two fields at once or in the field of another type, values that do not fit the type, a field of which
//! there is one written twice (protobuf would take the last, or merge), shapes that are not known; and with a hint: strings,
//! resources, ONNX's external data (a path to another file) and segments, and types whose elements share bytes.
//!
//! # What is written
//!
//! Type, shape, name (ONNX) and the bytes as they are, which is what both frameworks read quickest. Protobuf ends at 2 GiB,
//! and larger tensors are refused.

use crate::dialect::{Dialect, Written};
use crate::entry::{FileEntry, LITTLE, Place, TensorSpec, check_plain, check_rank, dimension};
use crate::fault::{bad, quoted, unsupported, wrong};
use crate::open::OpenOptions;
use crate::source::FileSource;
use crate::wire::{Range, Walker, Wire, put_length, put_number};
use std::mem::MaybeUninit;
use std::sync::Arc;
use tensorferry_core::dtype::DTypeKind;
use tensorferry_core::{DType, Result};

/// The largest message that protobuf's parsers take.
const MOST_BYTES: u64 = (1 << 31) - 1;
/// The longest name that is read.
const MOST_NAME: u64 = 1 << 16;

/// Values to be decoded.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    message: Range,
    field: u32,
    written: Written,
    /// How many there are; fewer than the elements ask for where the last repeats.
    count: u64,
}

/// What a message says.
#[derive(Default)]
struct Message {
    code: Option<u64>,
    dims: Vec<i64>,
    shaped: bool,
    raw: Option<Range>,
    /// For each field of values: its number, how many pieces it is in, and the last of them if it is bytes.
    values: Vec<(u32, u64, Option<Range>)>,
    name: String,
}

/// The one tensor of a file, and whose it is.
pub(crate) fn open(source: &Arc<FileSource>, options: &OpenOptions) -> Result<(FileEntry, Dialect)> {
    let whole = Range { start: 0, length: source.length() };
    let dialect = match options.dialect {
        Some(dialect) => dialect,
        None => recognise(source, whole)?,
    };
    let message = match dialect {
        Dialect::Onnx => onnx(source, whole)?,
        Dialect::TensorFlow => tensorflow(source, whole)?,
    };
    let name = dialect.name();
    let code = message.code.unwrap_or(0);
    let Some(dtype) = dialect.dtype(code) else {
        return Err(unsupported(
            format!(
                "its type has the number {code} in {name}, which is no tensor type or one whose elements share bytes"
            ),
            format!("read it with {name}"),
        ));
    };
    let spec = TensorSpec { name: message.name, dtype, shape: message.dims, order: LITTLE, fortran: false };
    let bytes = spec.bytes().map_err(crate::fault::of_file)?;
    let (field, written) = dialect.values(dtype);
    let stored = |range: Range| Place::Stored { file: 0, offset: range.start, member: None };
    match (message.raw, message.values.as_slice()) {
        (Some(_), [_, ..]) | (None, [_, _, ..]) => Err(bad("it has its values in two fields")),
        (Some(raw), []) => Ok((FileEntry::new(spec, raw.length, stored(raw))?, dialect)),
        (None, [(found, ..)]) if *found != field => {
            Err(bad(format!("it has the values of {dtype} in field {found}")))
        }
        (None, found) => {
            let (pieces, last) = found.first().map_or((0, None), |found| (found.1, found.2));
            if let (1, Some(range), Written::Four | Written::Eight | Written::One) = (pieces, last, written)
                && range.length == bytes
            {
                return Ok((FileEntry::new(spec, bytes, stored(range))?, dialect));
            }
            let values = Values { message: whole, field, written, count: 0 };
            let count = values.count(source)?;
            let place = Place::Values(Values { count, ..values });
            check_count(count, bytes, &spec, dialect, source.length(), options)?;
            Ok((FileEntry::new(spec, bytes, place)?, dialect))
        }
    }
}

/// How many values make an element.
fn parts(dtype: DType) -> u64 {
    if dtype.kind() == DTypeKind::Complex { 2 } else { 1 }
}

fn check_count(
    count: u64,
    bytes: u64,
    spec: &TensorSpec,
    dialect: Dialect,
    length: u64,
    options: &OpenOptions,
) -> Result<()> {
    let parts = parts(spec.dtype);
    let wanted = bytes / spec.dtype.size() as u64 * parts;
    let repeats = dialect == Dialect::TensorFlow && count < wanted;
    if (count != wanted && !repeats) || !count.is_multiple_of(parts) {
        return Err(bad(format!(
            "{} of shape {:?} takes {wanted} values, and there are {count}",
            spec.dtype, spec.shape
        )));
    }
    if repeats {
        options.check_inflated(u128::from(bytes), length)?;
    }
    Ok(())
}

/// Whose message it is.
fn recognise(source: &Arc<FileSource>, whole: Range) -> Result<Dialect> {
    let mut walker = Walker::new(source.clone(), whole);
    while let Some((number, value)) = walker.field()? {
        match (number, value) {
            (2, Wire::Varint(_)) => return Ok(Dialect::Onnx),
            (2, Wire::Bytes(_)) => return Ok(Dialect::TensorFlow),
            _ => {}
        }
    }
    Err(wrong(
        "nothing in it tells whose TensorProto it is",
        "pass dialect=\"onnx\" or dialect=\"tensorflow\"",
    ))
}

/// Puts a value where there may be one.
fn once<T>(slot: &mut Option<T>, value: T, field: u32) -> Result<()> {
    match slot.replace(value) {
        Some(_) => Err(bad(format!("field {field} of the message is there twice"))),
        None => Ok(()),
    }
}

impl Message {
    /// Counts a field of values, and refuses fields of another wire type under a known number.
    fn other(&mut self, dialect: Dialect, number: u32, value: Wire) -> Result<()> {
        if number == dialect.raw() {
            return match value {
                Wire::Bytes(range) => once(&mut self.raw, range, number),
                _ => Err(bad(format!("field {number} of the message is no bytes"))),
            };
        }
        if dialect.value_fields().contains(&number) {
            let range = if let Wire::Bytes(range) = value { Some(range) } else { None };
            if range.is_some_and(|range| range.length == 0) {
                return Ok(());
            }
            match self.values.iter_mut().find(|found| found.0 == number) {
                Some(found) => (found.1, found.2) = (found.1 + 1, range),
                None => self.values.push((number, 1, range)),
            }
        }
        Ok(())
    }

    fn dim(&mut self, length: u64) -> Result<()> {
        if (length as i64) < 0 {
            return Err(bad(format!("shape dimension {} is negative: {}", self.dims.len(), length as i64)));
        }
        self.dims.push(dimension(length)?);
        check_rank(self.dims.len())
    }
}

fn onnx(source: &Arc<FileSource>, whole: Range) -> Result<Message> {
    let mut message = Message::default();
    let mut named = None;
    let mut walker = Walker::new(source.clone(), whole);
    while let Some((number, value)) = walker.field()? {
        match (number, value) {
            (1, Wire::Varint(length)) => message.dim(length)?,
            (1, Wire::Bytes(range)) => {
                let mut lengths = Walker::new(source.clone(), range);
                while !lengths.is_done() {
                    message.dim(lengths.varint()?)?;
                }
            }
            (2, Wire::Varint(code)) => once(&mut message.code, code, 2)?,
            (8, Wire::Bytes(range)) if range.length <= MOST_NAME => {
                let name = String::from_utf8(source.bytes(range.start, range.length as usize)?);
                once(&mut named, name.map_err(|_| bad("its name is not UTF-8"))?, 8)?;
            }
            (8, Wire::Bytes(range)) => return Err(bad(format!("its name has {} bytes", range.length))),
            (13, _) | (14, Wire::Varint(1..)) => {
                return Err(unsupported(
                    "its data is in another file",
                    "load it with onnx, and save it with its data inside",
                ));
            }
            (3, _) => {
                return Err(unsupported(
                    "it is one segment of a tensor",
                    "put the segments together with onnx",
                ));
            }
            (1 | 2 | 8, _) => {
                return Err(bad(format!("field {number} of the message is not what ONNX has there")));
            }
            _ => message.other(Dialect::Onnx, number, value)?,
        }
    }
    message.name = named.unwrap_or_default();
    Ok(message)
}

fn tensorflow(source: &Arc<FileSource>, whole: Range) -> Result<Message> {
    let mut message = Message::default();
    let mut walker = Walker::new(source.clone(), whole);
    while let Some((number, value)) = walker.field()? {
        match (number, value) {
            (1, Wire::Varint(code)) => once(&mut message.code, code, 1)?,
            (2, Wire::Bytes(_)) if message.shaped => {
                return Err(bad("field 2 of the message is there twice"));
            }
            (2, Wire::Bytes(range)) => {
                message.shaped = true;
                shape(source, range, &mut message)?;
            }
            (1 | 2, _) => {
                return Err(bad(format!("field {number} of the message is not what TensorFlow has there")));
            }
            _ => message.other(Dialect::TensorFlow, number, value)?,
        }
    }
    Ok(message)
}

/// TensorFlow's shape: a message of messages.
fn shape(source: &Arc<FileSource>, range: Range, message: &mut Message) -> Result<()> {
    let mut dims = Walker::new(source.clone(), range);
    while let Some((number, value)) = dims.field()? {
        match (number, value) {
            (2, Wire::Bytes(range)) => {
                let (mut fields, mut length) = (Walker::new(source.clone(), range), None);
                while let Some((number, value)) = fields.field()? {
                    match (number, value) {
                        (1, Wire::Varint(size)) => once(&mut length, size, 1)?,
                        (1, _) => return Err(bad("a dimension of the shape is no number")),
                        _ => {}
                    }
                }
                message.dim(length.unwrap_or(0))?;
            }
            (3, Wire::Varint(1..)) => return Err(bad("the number of its dimensions is not known")),
            (2 | 3, _) => return Err(bad("its shape is not what TensorFlow has there")),
            _ => {}
        }
    }
    Ok(())
}

impl Values {
    /// How many values there are.
    fn count(&self, source: &Arc<FileSource>) -> Result<u64> {
        let mut walker = Walker::new(source.clone(), self.message);
        let mut count = 0;
        while let Some((number, value)) = walker.field()? {
            if number != self.field {
                continue;
            }
            count += match (self.written, value) {
                (Written::Varint, Wire::Varint(_))
                | (Written::Four, Wire::Fixed32(_))
                | (Written::Eight, Wire::Fixed64(_)) => 1,
                (Written::One, Wire::Bytes(range)) => range.length,
                (Written::Four, Wire::Bytes(range)) if range.length.is_multiple_of(4) => range.length / 4,
                (Written::Eight, Wire::Bytes(range)) if range.length.is_multiple_of(8) => range.length / 8,
                (Written::Varint, Wire::Bytes(range)) => {
                    let mut numbers = Walker::new(source.clone(), range);
                    let mut count = 0;
                    while !numbers.is_done() {
                        numbers.varint()?;
                        count += 1;
                    }
                    count
                }
                _ => return Err(bad(format!("field {number} of the message is not what belongs there"))),
            };
        }
        Ok(count)
    }
}

/// Decodes values, in order, to the bytes of elements.
pub(crate) struct Decoder {
    source: Arc<FileSource>,
    values: Values,
    dtype: DType,
    fields: Walker,
    packed: Option<Walker>,
    taken: u64,
    /// The last element, and how much of it is still to be handed out.
    element: [u8; 16],
    left: usize,
}

impl Decoder {
    pub(crate) fn new(source: Arc<FileSource>, values: Values, dtype: DType) -> Self {
        let fields = Walker::new(source.clone(), values.message);
        Self { source, values, dtype, fields, packed: None, taken: 0, element: [0; 16], left: 0 }
    }

    pub(crate) fn fill(&mut self, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        let size = self.dtype.size();
        for byte in out {
            if self.left == 0 {
                self.next_element()?;
                self.left = size;
            }
            byte.write(self.element[size - self.left]);
            self.left -= 1;
        }
        Ok(())
    }

    /// The next element; past the last value, the last one again.
    fn next_element(&mut self) -> Result<()> {
        if self.taken == self.values.count {
            return Ok(());
        }
        let parts = parts(self.dtype) as usize;
        let size = self.dtype.size() / parts;
        for part in 0..parts {
            let value = self.next_value()?;
            self.element[part * size..][..size].copy_from_slice(&value[..size]);
            self.taken += 1;
        }
        Ok(())
    }

    fn next_value(&mut self) -> Result<[u8; 8]> {
        loop {
            if let Some(packed) = &mut self.packed {
                if !packed.is_done() {
                    let mut value = [0; 8];
                    match self.values.written {
                        Written::Varint => return narrow(packed.varint()?, self.dtype),
                        Written::Four => value[..4].copy_from_slice(&packed.fixed::<4>()?),
                        Written::Eight => value = packed.fixed()?,
                        Written::One => value[..1].copy_from_slice(&packed.fixed::<1>()?),
                    }
                    return Ok(value);
                }
                self.packed = None;
            }
            match self.fields.field()? {
                Some((number, _)) if number != self.values.field => {}
                Some((_, Wire::Bytes(range))) => self.packed = Some(Walker::new(self.source.clone(), range)),
                Some((_, Wire::Varint(value))) => return narrow(value, self.dtype),
                Some((_, Wire::Fixed32(value))) => return Ok(u64::from(value).to_le_bytes()),
                Some((_, Wire::Fixed64(value))) => return Ok(value.to_le_bytes()),
                None => return Err(bad("the message ends before its values do")),
            }
        }
    }
}

/// A varint as a value of the type, if it is one.
fn narrow(value: u64, dtype: DType) -> Result<[u8; 8]> {
    let bits = u32::from(dtype.bits());
    let fits = match dtype.kind() {
        DTypeKind::Bool => value <= 1,
        DTypeKind::Signed if bits < 64 => {
            let (value, most) = (value as i64, 1i64 << (bits - 1));
            (-most..most).contains(&value)
        }
        DTypeKind::Signed => true,
        _ => bits >= 64 || value >> bits == 0,
    };
    if !fits {
        return Err(bad(format!("the value {} is none of {dtype}", value as i64)));
    }
    Ok(value.to_le_bytes())
}

/// The bytes before the data.
pub(crate) fn write(spec: &TensorSpec, dialect: Dialect) -> Result<Vec<u8>> {
    check_plain(std::slice::from_ref(spec), "TensorProto")?;
    let Some(code) = dialect.code(spec.dtype) else {
        return Err(unsupported(
            format!("{}'s TensorProto has no {} with one element to a byte", dialect.name(), spec.dtype),
            "save it as .npy or safetensors",
        ));
    };
    let mut bytes = Vec::new();
    match dialect {
        Dialect::Onnx => {
            spec.shape.iter().for_each(|&length| put_number(&mut bytes, 1, length as u64));
            put_number(&mut bytes, 2, code);
            if !spec.name.is_empty() {
                put_length(&mut bytes, 8, spec.name.len() as u64);
                bytes.extend_from_slice(spec.name.as_bytes());
            }
        }
        Dialect::TensorFlow => {
            put_number(&mut bytes, 1, code);
            let mut shape = Vec::new();
            for &length in &spec.shape {
                let mut dim = Vec::new();
                put_number(&mut dim, 1, length as u64);
                put_length(&mut shape, 2, dim.len() as u64);
                shape.extend_from_slice(&dim);
            }
            put_length(&mut bytes, 2, shape.len() as u64);
            bytes.extend_from_slice(&shape);
        }
    }
    let data = spec.bytes()?;
    put_length(&mut bytes, dialect.raw(), data);
    if spec.name.len() as u64 > MOST_NAME || bytes.len() as u64 + data > MOST_BYTES {
        return Err(wrong(
            format!("the tensor {} of {data} bytes is larger than protobuf can hold", quoted(&spec.name)),
            "save it as .npy or safetensors",
        ));
    }
    Ok(bytes)
}
