//! safetensors: the length of a header, the header (JSON), then the bytes of all tensors without gaps.
//!
//! # Validation
//!
//! The checks run in this order: the header's length (within the file, and at most the format's 100 MB); the header is one
//! JSON object without duplicate names; each tensor's type and offsets parse as the `safetensors` crate's own types; the
//! tensors lie one after the other without overlap or gap; each has the bytes that its shape takes; the file ends where the
//! last tensor does.
//!
//! The crate's own validation of the whole header is not used: it keeps one of two equal names, in the order of a hash map.
//!
//! Types of less than a byte (`F4`, `F6_E2M3`, `F6_E3M2`) are packed, and tensorferry does not unpack them. Such tensors are
//! listed as skipped, and the rest of the file can be read.
//!
//! # Types that the format lacks
//!
//! complex128 is stored as float64 with an additional last dimension of two, real and imaginary part. This is the common
//! memory layout of complex numbers, and `torch.view_as_complex` accepts it. One-byte types without a name in the format
//! (int4, float8_e3m4 and others) are stored as `U8`. The metadata key `tensorferry.dtypes` lists these tensors as a JSON
//! object from names to types. Other readers see the stored type, and no bits are lost.
//!
//! # Writing
//!
//! The header is padded with spaces, so that the data begins at a multiple of 64 bytes. The format forbids gaps, so tensors
//! whose size is a multiple of 64 come first, which aligns all of them to 64 bytes. The others follow in descending order of
//! element size, which aligns them to that size. The header lists the tensors in the caller's order.

use super::json::{Members, invalid_json};
use super::names::find_duplicate;
use crate::entry::{DataLocation, FileContents, FileEntry};
use crate::errors::{invalid_argument, invalid_file, quoted, unsupported_dtype};
use crate::hints;
use crate::options::OpenOptions;
use crate::reading::file_source::FileSource;
use crate::spec::{LITTLE_ENDIAN, TensorSpec, check_little_endian_row_major, check_rank, dimension};
use safetensors::tensor::TensorInfo;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use std::cmp::{Ordering, Reverse};
use std::fmt;
use tensorferry_core::plan::count_noun;
use tensorferry_core::{DType, ErrorKind, Result};

/// The format's limit on the length of a header.
pub(crate) const MAX_HEADER_BYTES: u64 = 100_000_000;
/// The size of the header's length.
const PREFIX_BYTES: u64 = 8;
/// The alignment of the data.
const ALIGNMENT_BYTES: u64 = 64;
/// The metadata key under which tensors of types that the format lacks are listed.
const DTYPES_KEY: &str = "tensorferry.dtypes";
const METADATA_KEY: &str = "__metadata__";

/// The members of a header.
struct Header {
    metadata: Option<Vec<(String, String)>>,
    tensors: Vec<(String, TensorInfo)>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;
        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header { metadata: None, tensors: Vec::new() };
                while let Some(name) = map.next_key::<String>()? {
                    if name != METADATA_KEY {
                        header.tensors.push((name, map.next_value()?));
                    } else if header.metadata.replace(map.next_value::<Members<String>>()?.0).is_some() {
                        return Err(A::Error::custom(format!("duplicate name {METADATA_KEY:?}")));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(HeaderVisitor)
    }
}

/// The tensors of a file. `file` is the file's index among the files of an index.
pub(crate) fn read_contents(source: &FileSource, file: usize, options: &OpenOptions) -> Result<FileContents> {
    let size = source.size();
    if size < PREFIX_BYTES {
        return Err(invalid_file(format!("a file of {size} bytes is too short for a safetensors header")));
    }
    let prefix = source.read_to_vec(0, PREFIX_BYTES as usize)?;
    let header_bytes = prefix.try_into().map(u64::from_le_bytes).unwrap_or(u64::MAX);
    if header_bytes > MAX_HEADER_BYTES {
        return Err(invalid_file(format!(
            "the header has {header_bytes} bytes, over the safetensors limit of {MAX_HEADER_BYTES}"
        )));
    }
    if header_bytes > size - PREFIX_BYTES {
        return Err(invalid_file(format!(
            "the header has {header_bytes} bytes, and {} follow",
            size - PREFIX_BYTES
        ))
        .with_hint(hints::FETCH_TRUNCATED_FILE));
    }
    let text = source.read_to_vec(PREFIX_BYTES, header_bytes as usize)?;
    if text.first() != Some(&b'{') {
        return Err(invalid_file("the header does not begin with '{'"));
    }
    let header: Header = serde_json::from_slice(&text).map_err(|error| invalid_json("the header", &error))?;
    drop(text);
    if let Some(name) = find_duplicate(header.tensors.iter().map(|tensor| tensor.0.as_str())) {
        return Err(invalid_file(format!("two tensors are named {}", quoted(name))));
    }
    let data_offset = PREFIX_BYTES + header_bytes;
    check_offsets(&header.tensors, size - data_offset)?;
    let mut metadata = header.metadata.unwrap_or_default();
    let mut carried_types = Vec::new();
    if !options.as_stored
        && let Some(at) = metadata.iter().position(|pair| pair.0 == DTYPES_KEY)
    {
        let text = metadata.remove(at).1;
        let members = serde_json::from_str::<Members<String>>(&text);
        carried_types = members.map_err(|error| invalid_json(DTYPES_KEY, &error))?.0;
        carried_types.sort_unstable();
    }
    let mut contents = FileContents { metadata, ..FileContents::default() };
    for (name, info) in header.tensors {
        let carried_type = carried_types
            .binary_search_by(|pair| pair.0.as_str().cmp(&name))
            .ok()
            .map(|at| carried_types[at].1.as_str());
        let offset = data_offset + info.data_offsets.0 as u64;
        let location = DataLocation::Stored { file, offset, member: None };
        match new_entry(&name, &info, carried_type, location) {
            Ok(entry) => contents.entries.push(entry),
            Err(error) if error.kind() == ErrorKind::UnsupportedDType => {
                contents.skipped.push((name, error));
            }
            Err(error) => return Err(error.at(format_args!("tensor {}", quoted(&name)))),
        }
    }
    Ok(contents)
}

/// Checks that the tensors cover the data from the first byte to the last.
fn check_offsets(tensors: &[(String, TensorInfo)], available: u64) -> Result<()> {
    let mut in_file_order: Vec<&(String, TensorInfo)> = tensors.iter().collect();
    in_file_order.sort_unstable_by_key(|tensor| tensor.1.data_offsets);
    let mut last = 0;
    for (name, info) in in_file_order {
        let (start, end) = info.data_offsets;
        let name = quoted(name);
        if end < start {
            return Err(invalid_file(format!(
                "tensor {name} ends at byte {end}, before its start at byte {start}"
            )));
        }
        if start < last {
            return Err(invalid_file(format!(
                "tensor {name} starts at byte {start}, inside the previous tensor, which ends at byte {last}"
            )));
        }
        if start > last {
            return Err(invalid_file(format!("{} unused bytes before tensor {name}", start - last)));
        }
        last = end;
    }
    match (last as u64).cmp(&available) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => {
            Err(invalid_file(format!("the tensors take {last} bytes, and the file has {available}"))
                .with_hint(hints::FETCH_TRUNCATED_FILE))
        }
        Ordering::Less => {
            let count = (available - last as u64) as usize;
            Err(invalid_file(format!("{} after the last tensor", count_noun(count, "trailing byte"))))
        }
    }
}

/// One tensor. `carried_type` is the type that [`DTYPES_KEY`] lists for it.
fn new_entry(
    name: &str,
    info: &TensorInfo,
    carried_type: Option<&str>,
    location: DataLocation,
) -> Result<FileEntry> {
    let bytes = (info.data_offsets.1 - info.data_offsets.0) as u64;
    check_rank(info.shape.len())?;
    let mut shape =
        info.shape.iter().map(|&length| dimension(length as u64)).collect::<Result<Vec<i64>>>()?;
    let type_name = info.dtype.to_string();
    let Some(stored) = DType::from_safetensors_name(&type_name) else {
        let count = info.shape.iter().try_fold(1usize, |count, &length| count.checked_mul(length));
        let bits = count.and_then(|count| count.checked_mul(info.dtype.bitsize()));
        if bits.is_none_or(|bits| !bits.is_multiple_of(8) || bits as u64 / 8 != bytes) {
            return Err(invalid_file(format!(
                "{type_name} of shape {:?} does not take {bytes} bytes",
                info.shape
            )));
        }
        return Err(unsupported_dtype(
            format!("tensor {} has type {type_name}, which packs several elements per byte", quoted(name)),
            hints::LOAD_WITH_SAFETENSORS,
        ));
    };
    let mut dtype = stored;
    if let Some(type_name) = carried_type {
        let contradiction = || {
            invalid_file(format!(
                "{DTYPES_KEY} names {}, which {stored} of shape {:?} cannot carry",
                quoted(type_name),
                info.shape
            ))
            .with_hint(hints::OPEN_AS_STORED)
        };
        dtype = DType::from_name(type_name).ok_or_else(contradiction)?;
        match carrier_type(dtype) {
            Some(DType::Float64) if stored == DType::Float64 && shape.last() == Some(&2) => {
                shape.pop();
            }
            Some(DType::UInt8) if stored == DType::UInt8 => {}
            _ => return Err(contradiction()),
        }
    }
    let spec = TensorSpec { name: name.to_owned(), dtype, shape, order: LITTLE_ENDIAN, fortran: false };
    FileEntry::new(spec, bytes, location)
}

/// The type that carries a type without a name in the format.
fn carrier_type(dtype: DType) -> Option<DType> {
    match dtype.safetensors_name() {
        Some(_) => None,
        None if dtype == DType::Complex128 => Some(DType::Float64),
        None => dtype.bits_type(),
    }
}

/// A header, and the file offset of each tensor's bytes, in the order of `specs`.
pub(crate) fn write_header(
    specs: &[TensorSpec],
    metadata: &[(String, String)],
) -> Result<(Vec<u8>, Vec<u64>)> {
    check_written_names(specs, metadata)?;
    let sizes = specs.iter().map(TensorSpec::bytes).collect::<Result<Vec<u64>>>()?;
    let mut offsets = assign_offsets(specs, &sizes)?;
    let text = header_text(specs, &sizes, &offsets, metadata);
    let header_bytes = (PREFIX_BYTES + text.len() as u64).next_multiple_of(ALIGNMENT_BYTES) - PREFIX_BYTES;
    if header_bytes > MAX_HEADER_BYTES {
        return Err(invalid_argument(
            format!(
                "the header takes {header_bytes} bytes, over the safetensors limit of {MAX_HEADER_BYTES}"
            ),
            hints::SAVE_FEWER_TENSORS,
        ));
    }
    let mut bytes = header_bytes.to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize((PREFIX_BYTES + header_bytes) as usize, b' ');
    offsets.iter_mut().for_each(|offset| *offset += PREFIX_BYTES + header_bytes);
    Ok((bytes, offsets))
}

/// The offset of each tensor in the data.
fn assign_offsets(specs: &[TensorSpec], sizes: &[u64]) -> Result<Vec<u64>> {
    let mut order: Vec<usize> = (0..specs.len()).collect();
    order.sort_by_key(|&at| (!sizes[at].is_multiple_of(ALIGNMENT_BYTES), Reverse(specs[at].dtype.size())));
    let (mut offsets, mut end) = (vec![0; specs.len()], 0u64);
    for at in order {
        offsets[at] = end;
        end = end.checked_add(sizes[at]).ok_or_else(|| {
            invalid_argument("the total size of the tensors overflows", hints::SAVE_FEWER_TENSORS)
        })?;
    }
    Ok(offsets)
}

fn header_text(
    specs: &[TensorSpec],
    sizes: &[u64],
    offsets: &[u64],
    metadata: &[(String, String)],
) -> String {
    let mut text = String::from("{");
    let carried: Vec<(&str, &str)> = specs
        .iter()
        .filter(|spec| carrier_type(spec.dtype).is_some())
        .map(|spec| (spec.name.as_str(), spec.dtype.name()))
        .collect();
    if !metadata.is_empty() || !carried.is_empty() {
        let mut pairs: Vec<(&str, String)> =
            metadata.iter().map(|pair| (pair.0.as_str(), pair.1.clone())).collect();
        if !carried.is_empty() {
            let types = carried.iter().map(|&(name, dtype)| (name, json_string(dtype)));
            pairs.push((DTYPES_KEY, json_object(types)));
        }
        let pairs = pairs.iter().map(|(key, value)| (*key, json_string(value)));
        text += &format!("\"{METADATA_KEY}\":{}", json_object(pairs));
    }
    for (at, spec) in specs.iter().enumerate() {
        let stored = carrier_type(spec.dtype).unwrap_or(spec.dtype);
        let mut shape = spec.shape.clone();
        if stored != spec.dtype && spec.dtype == DType::Complex128 {
            shape.push(2);
        }
        let type_name = stored.safetensors_name().unwrap_or_default();
        let (start, end) = (offsets[at], offsets[at] + sizes[at]);
        let comma = if text.len() > 1 { "," } else { "" };
        let name = json_string(&spec.name);
        text += &format!(
            "{comma}{name}:{{\"dtype\":\"{type_name}\",\"shape\":{shape:?},\"data_offsets\":[{start},{end}]}}"
        );
    }
    text.push('}');
    text
}

fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A JSON object whose values are JSON already.
fn json_object<'a>(pairs: impl Iterator<Item = (&'a str, String)>) -> String {
    let members: Vec<String> = pairs.map(|(key, value)| format!("{}:{value}", json_string(key))).collect();
    format!("{{{}}}", members.join(","))
}

fn check_written_names(specs: &[TensorSpec], metadata: &[(String, String)]) -> Result<()> {
    check_little_endian_row_major(specs, "safetensors")?;
    if specs.iter().any(|spec| spec.name == METADATA_KEY) {
        return Err(invalid_argument(
            format!("the name {METADATA_KEY} is reserved in safetensors"),
            hints::RENAME_TENSOR,
        ));
    }
    if let Some(name) = find_duplicate(specs.iter().map(|spec| spec.name.as_str())) {
        return Err(invalid_argument(
            format!("two tensors are named {}", quoted(name)),
            hints::RENAME_TENSOR,
        ));
    }
    if let Some(key) = find_duplicate(metadata.iter().map(|pair| pair.0.as_str()).chain([DTYPES_KEY])) {
        return Err(invalid_argument(
            format!("the metadata key {} is duplicated or reserved", quoted(key)),
            hints::REMOVE_METADATA_KEY,
        ));
    }
    Ok(())
}
