//! The types of columns: checked schemas.

use crate::abi::ArrowSchema;
use crate::errors::invalid_struct;
use crate::hints;
use crate::owned::Owned;
use std::ffi::{CStr, c_char};
use tensorferry_core::{DType, Error, ErrorKind, Result};

/// The limit of nesting.
pub const MAX_DEPTH: usize = 64;

/// The limit of the pairs of metadata of one column.
const MAX_METADATA_PAIRS: i32 = 1 << 16;

/// A column: its name and its type.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The name; empty if it has none.
    pub name: String,
    /// The type.
    pub column: Column,
}

/// The type of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Numbers, or booleans of one byte each.
    Numbers(DType),
    /// Booleans, as bits.
    Bits,
    /// Integers that count days, or a unit of time.
    Temporal {
        /// The type of the integers.
        dtype: DType,
        /// The type and its unit, such as `timestamp[us, UTC]`.
        unit: String,
    },
    /// Tensors of one shape, one after another.
    Tensors {
        /// The elements.
        child: Box<Field>,
        /// The number of elements of each tensor.
        count: usize,
        /// The shape of each tensor.
        shape: Vec<i64>,
        /// The steps between elements along each axis, in elements.
        strides: Vec<i64>,
    },
    /// Lists of different lengths.
    Lists {
        /// The elements.
        child: Box<Field>,
        /// Whether the offsets are 64-bit integers.
        is_large: bool,
    },
    /// Structs. A table is a column of structs.
    Structs(Vec<Field>),
    /// Codes, each the index of a value in a dictionary.
    Dictionary {
        /// The type of the codes.
        codes: DType,
        /// The values.
        values: Box<Field>,
    },
    /// Only nulls.
    Nulls,
    /// A type that has no tensor.
    Unsupported {
        /// The type.
        name: &'static str,
        /// What to do about it.
        advice: &'static str,
    },
}

/// Metadata of the extension type of tensors.
struct TensorMetadata {
    shape: Vec<i64>,
    permutation: Option<Vec<i64>>,
}

impl TensorMetadata {
    /// Parses JSON; `None` if it is not such metadata.
    fn parse(text: &[u8]) -> Option<Self> {
        let parsed: serde_json::Value = serde_json::from_slice(text).ok()?;
        let integers = |key: &str| -> Option<Vec<i64>> {
            parsed.get(key)?.as_array()?.iter().map(serde_json::Value::as_i64).collect()
        };
        let has_permutation = parsed.get("permutation").is_some_and(|found| !found.is_null());
        let permutation = if has_permutation { Some(integers("permutation")?) } else { None };
        Some(Self { shape: integers("shape")?, permutation })
    }
}

impl Column {
    /// Whether two columns have the same type. The names of the columns of a struct are part of it, those of the elements of lists
    /// are not: producers disagree about them.
    pub fn is_same_type(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Structs(fields), Self::Structs(others)) => {
                let is_same = |(one, two): (&Field, &Field)| {
                    one.name == two.name && one.column.is_same_type(&two.column)
                };
                fields.len() == others.len() && fields.iter().zip(others).all(is_same)
            }
            (Self::Lists { child, is_large }, Self::Lists { child: other, is_large: other_is_large }) => {
                is_large == other_is_large && child.column.is_same_type(&other.column)
            }
            (
                Self::Tensors { child, count, shape, strides },
                Self::Tensors {
                    child: other,
                    count: other_count,
                    shape: other_shape,
                    strides: other_strides,
                },
            ) => {
                (count, shape, strides) == (other_count, other_shape, other_strides)
                    && child.column.is_same_type(&other.column)
            }
            (Self::Dictionary { codes, values }, Self::Dictionary { codes: other_codes, values: other }) => {
                codes == other_codes && values.column.is_same_type(&other.column)
            }
            _ => self == other,
        }
    }
}

impl Field {
    /// Reads and checks a schema, which is released afterwards.
    ///
    /// # Errors
    /// When the schema violates the interface.
    ///
    /// # Safety
    /// The strings, children and dictionaries of the schema are null, or as the specification requires.
    pub unsafe fn from_schema(schema: &Owned<ArrowSchema>) -> Result<Self> {
        // SAFETY: `read` requires what this function requires.
        unsafe { read(schema.get(), 0) }
    }
}

impl Field {
    /// The field at the bottom of tensors; the field itself for other types.
    pub fn base(&self) -> &Self {
        if let Column::Tensors { child, .. } = &self.column { child.base() } else { self }
    }

    /// The same field with another type at the bottom of its tensors.
    #[must_use]
    pub fn with_base(&self, base: Column) -> Self {
        let column = match &self.column {
            Column::Tensors { child, count, shape, strides } => Column::Tensors {
                child: Box::new(child.with_base(base)),
                count: *count,
                shape: shape.clone(),
                strides: strides.clone(),
            },
            _ => base,
        };
        Self { name: self.name.clone(), column }
    }

    /// The type and the unit of dates and times, in tensors and dictionaries too; `None` for other types.
    pub fn time_unit(&self) -> Option<&str> {
        match &self.base().column {
            Column::Temporal { unit, .. } => Some(unit),
            Column::Dictionary { values, .. } => values.time_unit(),
            _ => None,
        }
    }
}

/// # Safety
/// The strings, children and dictionaries of the schema are null, or as the specification requires.
unsafe fn read(schema: &ArrowSchema, depth: usize) -> Result<Field> {
    if depth > MAX_DEPTH {
        return Err(invalid_struct(format!("the schema is nested more than {MAX_DEPTH} levels deep")));
    }
    // SAFETY: the strings are null, or end with a zero byte (the contract of `read`).
    let (format, name) = unsafe { (text(schema.format)?, text(schema.name)?) };
    let Some(format) = format else {
        return Err(invalid_struct("the format of the schema is a null pointer"));
    };
    let name = name.unwrap_or_default().to_owned();
    let read_column = || -> Result<Column> {
        // SAFETY: the pointers of the schema are as the contract of `read` requires.
        let (children, extension) =
            unsafe { (children(schema, depth)?, Extension::from_metadata(schema.metadata)?) };
        let column = parse(format, children)?;
        if schema.dictionary.is_null() {
            return extension.map_or(Ok(column.clone()), |extension| extension.apply(column));
        }
        let codes = match column {
            Column::Numbers(codes) if codes.integer_range().is_some() => codes,
            _ => return Err(invalid_struct(format!("the codes of a dictionary have the format {format:?}"))),
        };
        // SAFETY: the dictionary is not null, so that it is a schema (the contract of `read`).
        let values = Box::new(unsafe { read(&*schema.dictionary, depth + 1)? });
        Ok(Column::Dictionary { codes, values })
    };
    let column = read_column().map_err(|error| match (depth, name.as_str()) {
        (_, "") => error,
        _ => error.at(format_args!("column '{name}'")),
    })?;
    Ok(Field { name, column })
}

/// Text that ends with a zero byte; `None` for a null pointer.
///
/// # Safety
/// The pointer is null, or points to text that ends with a zero byte and lives as long as `'a`.
unsafe fn text<'a>(pointer: *const c_char) -> Result<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the pointer is not null, so that the text ends with a zero byte and lives long enough (the contract of `text`).
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| invalid_struct("a string of the schema is not UTF-8"))
}

/// # Safety
/// As [`read`].
unsafe fn children(schema: &ArrowSchema, depth: usize) -> Result<Vec<Field>> {
    let count = schema.n_children;
    let Ok(count) = usize::try_from(count) else {
        return Err(invalid_struct(format!("the schema has {count} children")));
    };
    if count > 0 && schema.children.is_null() {
        return Err(invalid_struct("the children of the schema are a null pointer"));
    }
    let mut fields = Vec::new();
    for index in 0..count {
        // SAFETY: there are `count` pointers (the contract of `read`), each null or a schema.
        let child = unsafe { *schema.children.add(index) };
        if child.is_null() {
            return Err(invalid_struct(format!("child {index} of the schema is a null pointer")));
        }
        // SAFETY: the child is not null, so that it is a schema (the contract of `read`).
        fields.push(unsafe { read(&*child, depth + 1)? });
    }
    Ok(fields)
}

/// The column of a format string, without its extension type.
fn parse(format: &str, children: Vec<Field>) -> Result<Column> {
    let count = children.len();
    let wrong_children = || invalid_struct(format!("a schema of the format {format:?} has {count} children"));
    if let Some(column) = parse_nested(format, children)? {
        return Ok(column);
    }
    match parse_number(format).or_else(|| parse_temporal(format)) {
        Some(_) if count != 0 => Err(wrong_children()),
        Some(column) => Ok(column),
        None => Ok(parse_unsupported(format)),
    }
}

fn parse_number(format: &str) -> Option<Column> {
    let dtype = match format {
        "n" => return Some(Column::Nulls),
        "b" => return Some(Column::Bits),
        "c" => DType::Int8,
        "C" => DType::UInt8,
        "s" => DType::Int16,
        "S" => DType::UInt16,
        "i" => DType::Int32,
        "I" => DType::UInt32,
        "l" => DType::Int64,
        "L" => DType::UInt64,
        "e" => DType::Float16,
        "f" => DType::Float32,
        "g" => DType::Float64,
        _ => return None,
    };
    Some(Column::Numbers(dtype))
}

fn parse_temporal(format: &str) -> Option<Column> {
    let unit = |letter: &str| match letter {
        "s" => Some("s"),
        "m" => Some("ms"),
        "u" => Some("us"),
        "n" => Some("ns"),
        _ => None,
    };
    let (dtype, unit) = match format.get(..2)? {
        "td" if format == "tdD" => (DType::Int32, "date[days]".to_owned()),
        "td" if format == "tdm" => (DType::Int64, "date[ms]".to_owned()),
        "tt" => {
            let unit = unit(&format[2..])?;
            let dtype = if matches!(unit, "s" | "ms") { DType::Int32 } else { DType::Int64 };
            (dtype, format!("time[{unit}]"))
        }
        "tD" => (DType::Int64, format!("duration[{}]", unit(&format[2..])?)),
        "ts" => {
            let (letter, zone) = format[2..].split_once(':')?;
            let zone = if zone.is_empty() { String::new() } else { format!(", {zone}") };
            (DType::Int64, format!("timestamp[{}{zone}]", unit(letter)?))
        }
        _ => return None,
    };
    Some(Column::Temporal { dtype, unit })
}

/// The column of a format that begins with a plus sign; `None` for other formats.
fn parse_nested(format: &str, mut children: Vec<Field>) -> Result<Option<Column>> {
    let Some(nested) = format.strip_prefix('+') else { return Ok(None) };
    let count = children.len();
    let wrong_children = || invalid_struct(format!("a schema of the format {format:?} has {count} children"));
    let mut only_child = || -> Result<Box<Field>> {
        match (count, children.pop()) {
            (1, Some(child)) => Ok(Box::new(child)),
            _ => Err(wrong_children()),
        }
    };
    let column = match nested {
        "l" => Column::Lists { child: only_child()?, is_large: false },
        "L" => Column::Lists { child: only_child()?, is_large: true },
        "s" => Column::Structs(children),
        "vl" | "vL" => Column::Unsupported { name: "list view", advice: "cast the column to a list type" },
        "m" => Column::Unsupported { name: "map", advice: "take the keys or the values of the column" },
        "r" => Column::Unsupported { name: "run-end encoded", advice: "decode the runs first" },
        _ if nested.starts_with('u') => {
            Column::Unsupported { name: "union", advice: "take one child of the union" }
        }
        _ => {
            let count = nested.strip_prefix("w:").and_then(|count| count.parse::<i32>().ok());
            let Some(count) = count.and_then(|count| usize::try_from(count).ok()) else {
                return Ok(Some(parse_unsupported(format)));
            };
            Column::Tensors { child: only_child()?, count, shape: vec![count as i64], strides: vec![1] }
        }
    };
    Ok(Some(column))
}

/// The column of a format that has no tensor. Producers have formats of their own, too.
fn parse_unsupported(format: &str) -> Column {
    const AS_NUMBERS: &str = "cast the column to numbers, or leave it out";
    let (name, advice) = match format {
        "u" | "U" | "vu" => ("string", "encode the text as numbers, or leave the column out"),
        "z" | "Z" | "vz" => ("binary", "decode the bytes to numbers, or leave the column out"),
        _ if format.starts_with("w:") => {
            ("fixed-size binary", "decode the bytes to numbers, or leave the column out")
        }
        _ if format.starts_with("d:") => ("decimal", "cast the column to float64 or int64"),
        _ if format.starts_with("ti") => ("interval", AS_NUMBERS),
        _ => ("unknown", AS_NUMBERS),
    };
    Column::Unsupported { name, advice }
}

/// An extension type: its name and its own metadata.
struct Extension {
    name: String,
    metadata: Vec<u8>,
}

impl Extension {
    /// The extension type in the metadata of a schema, if it has one.
    ///
    /// # Safety
    /// The pointer is null, or points to metadata in the format of the specification.
    unsafe fn from_metadata(pointer: *const c_char) -> Result<Option<Self>> {
        if pointer.is_null() {
            return Ok(None);
        }
        let mut at = pointer.cast::<u8>();
        // SAFETY: the specification puts the number of pairs here, a 32-bit number that may be unaligned.
        let count = unsafe {
            let count = at.cast::<i32>().read_unaligned();
            at = at.add(4);
            count
        };
        if !(0..=MAX_METADATA_PAIRS).contains(&count) {
            return Err(invalid_struct(format!("the schema has metadata of {count} pairs")));
        }
        let (mut name, mut metadata) = (None, Vec::new());
        for _ in 0..count {
            let mut pair = [&[][..], &[][..]];
            for bytes in &mut pair {
                // SAFETY: the specification puts the length, a 32-bit number, and as many bytes here, which live as long as the
                // schema.
                unsafe {
                    let length = at.cast::<i32>().read_unaligned();
                    let Ok(length) = usize::try_from(length) else {
                        return Err(invalid_struct(format!("a string of metadata has {length} bytes")));
                    };
                    at = at.add(4);
                    *bytes = std::slice::from_raw_parts(at, length);
                    at = at.add(length);
                }
            }
            match pair[0] {
                b"ARROW:extension:name" => name = String::from_utf8(pair[1].to_vec()).ok(),
                b"ARROW:extension:metadata" => metadata = pair[1].to_vec(),
                _ => {}
            }
        }
        Ok(name.map(|name| Self { name, metadata }))
    }

    /// The column that the extension type makes of its storage. Unknown extension types are their storage.
    fn apply(&self, storage: Column) -> Result<Column> {
        let invalid = |what: &str| invalid_struct(format!("the extension type {}: {what}", self.name));
        if self.name == "arrow.bool8" {
            return match storage {
                Column::Numbers(DType::Int8) => Ok(Column::Numbers(DType::Bool)),
                _ => Err(invalid("its storage is not int8")),
            };
        }
        if let Some(dtype) = self.name.strip_prefix("tensorferry.").and_then(DType::from_name) {
            return match storage {
                Column::Numbers(stored) if stored.size() == dtype.size() => Ok(Column::Numbers(dtype)),
                _ => Err(invalid("its storage has another size")),
            };
        }
        if self.name != "arrow.fixed_shape_tensor" {
            return Ok(storage);
        }
        let Column::Tensors { child, count, .. } = storage else {
            return Err(invalid("its storage is not a fixed-size list"));
        };
        let metadata =
            TensorMetadata::parse(&self.metadata).ok_or_else(|| invalid("its metadata cannot be parsed"))?;
        let (shape, strides) = tensor_axes(&metadata, count).ok_or_else(|| {
            invalid(&format!(
                "shape {:?} and permutation {:?} do not describe {count} elements",
                metadata.shape, metadata.permutation
            ))
        })?;
        Ok(Column::Tensors { child, count, shape, strides })
    }
}

/// The shape and the strides, in elements, of tensors with this metadata; `None` if it is invalid.
fn tensor_axes(metadata: &TensorMetadata, count: usize) -> Option<(Vec<i64>, Vec<i64>)> {
    let mut elements = 1i64;
    let mut strides = vec![0; metadata.shape.len()];
    for (length, stride) in metadata.shape.iter().zip(&mut strides).rev() {
        *stride = elements;
        elements = elements.checked_mul(*length).filter(|&product| *length >= 0 && product >= 0)?;
    }
    if usize::try_from(elements) != Ok(count) {
        return None;
    }
    let Some(permutation) = &metadata.permutation else { return Some((metadata.shape.clone(), strides)) };
    let mut sorted = permutation.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..metadata.shape.len() as i64) {
        return None;
    }
    Some(permutation.iter().map(|&axis| (metadata.shape[axis as usize], strides[axis as usize])).unzip())
}

impl Column {
    /// The error for a column that has no tensor.
    pub fn unsupported(name: &str, advice: &str) -> Error {
        Error::new(ErrorKind::UnsupportedDType, format!("a column of type {name} has no tensor"))
            .with_hint_value(hints::CONVERT_COLUMN, advice)
    }
}
