//! safetensors: the length of a header, the header (JSON), the bytes of all tensors without holes.
//!
//! # What is checked
//!
//! In this order: the length (100 MB at most, as the format says, and within the file); that the header is one JSON object
//! in which no name stands twice; each tensor's type and offsets, by the `safetensors` crate's own types; that the tensors
//! lie one after the other without overlap or hole; that each has as many bytes as its shape asks for; and that the file
//! ends where the last one does. The crate itself is not asked to check the whole, because it keeps the last of two equal
//! names, in whatever order its hash map likes.
//!
//! Types of less than a byte (`F4`, `F6_E2M3`, `F6_E3M2`) are packed, which tensorferry does not unpack: such tensors are
//! listed as skipped, and the rest of the file can be read.
//!
//! # Types that the format lacks
//!
//! complex128 is written as float64 with one more dimension of two, real and imaginary part, which is how everybody's bytes
//! of complex numbers are (`torch.view_as_complex` takes it as it is). Types of one byte that the format has no name for
//! (int4, float8_e3m4 and the like) are written as `U8`. Which tensors these are stands in the metadata, under
//! `tensorferry.dtypes`, as a JSON object from names to types. Other readers see the carrier. Nothing is degraded.
//!
//! # What is written
//!
//! The header is padded with spaces, so that the data begins at a multiple of 64 bytes. Holes are not allowed in the format,
//! so the tensors whose size is a multiple of 64 come first, which aligns all of them to 64 bytes; the others follow by the
//! size of their elements, which keeps them aligned to that. The header lists them in the caller's order.

use crate::entry::{FileEntry, LITTLE, Place, TensorSpec, check_plain, dimension};
use crate::fault::{bad, quoted, unsupported, wrong};
use crate::json::{Pairs, broken, twice};
use crate::open::{Found, OpenOptions};
use crate::source::FileSource;
use safetensors::tensor::TensorInfo;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use std::fmt;
use tensorferry_core::{DType, Result};

/// The longest header that the format allows.
pub(crate) const MOST_HEADER: u64 = 100_000_000;
/// Where the metadata says which tensors are carried by another type.
const CARRIED: &str = "tensorferry.dtypes";
const METADATA: &str = "__metadata__";
const ALIGN: u64 = 64;

/// The members of a header.
struct Header {
    metadata: Option<Vec<(String, String)>>,
    tensors: Vec<(String, TensorInfo)>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header { metadata: None, tensors: Vec::new() };
                while let Some(name) = map.next_key::<String>()? {
                    if name != METADATA {
                        header.tensors.push((name, map.next_value()?));
                    } else if header.metadata.replace(map.next_value::<Pairs<String>>()?.0).is_some() {
                        return Err(A::Error::custom("the metadata stands there twice"));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Reads the header of the file with this number.
pub(crate) fn open(source: &FileSource, file: usize, options: &OpenOptions) -> Result<Found> {
    let length = source.length();
    if length < 8 {
        return Err(bad(format!("a file of {length} bytes has no room for a safetensors header")));
    }
    let size = source.bytes(0, 8)?.try_into().map(u64::from_le_bytes).unwrap_or(u64::MAX);
    if size > MOST_HEADER {
        return Err(bad(format!("its header has {size} bytes; safetensors allows {MOST_HEADER}")));
    }
    if size > length - 8 {
        return Err(bad(format!("its header has {size} bytes, and {} follow", length - 8))
            .with_advice("fetch it again: it was cut off"));
    }
    let text = source.bytes(8, size as usize)?;
    if text.first() != Some(&b'{') {
        return Err(bad("its header does not begin with a brace"));
    }
    let header: Header = serde_json::from_slice(&text).map_err(|error| broken("its header", &error))?;
    drop(text);
    if let Some(name) = twice(header.tensors.iter().map(|tensor| tensor.0.as_str())) {
        return Err(bad(format!("the tensor {} is in it twice", quoted(name))));
    }
    check_offsets(&header.tensors, length - 8 - size)?;
    let mut metadata = header.metadata.unwrap_or_default();
    let mut carried = Vec::new();
    if !options.as_stored
        && let Some(at) = metadata.iter().position(|pair| pair.0 == CARRIED)
    {
        let text = metadata.remove(at).1;
        carried = serde_json::from_str::<Pairs<String>>(&text).map_err(|error| broken(CARRIED, &error))?.0;
        carried.sort_unstable();
    }
    let mut found = Found { metadata, ..Found::default() };
    for (name, info) in header.tensors {
        let said =
            carried.binary_search_by(|pair| pair.0.as_str().cmp(&name)).ok().map(|at| carried[at].1.as_str());
        let offset = 8 + size + info.data_offsets.0 as u64;
        match entry(&name, &info, said, Place::Stored { file, offset, member: None }) {
            Ok(entry) => found.entries.push(entry),
            Err(error) if error.kind() == tensorferry_core::ErrorKind::UnsupportedDType => {
                found.skipped.push((name, error));
            }
            Err(error) => return Err(error.at(format_args!("tensor {}", quoted(&name)))),
        }
    }
    Ok(found)
}

/// Checks that the tensors follow each other from the first byte to the last.
fn check_offsets(tensors: &[(String, TensorInfo)], available: u64) -> Result<()> {
    let mut order: Vec<&(String, TensorInfo)> = tensors.iter().collect();
    order.sort_unstable_by_key(|tensor| tensor.1.data_offsets);
    let mut last = 0;
    for (name, info) in order {
        let (start, end) = info.data_offsets;
        let name = quoted(name);
        if end < start {
            return Err(bad(format!("the tensor {name} ends at byte {end}, before it begins at {start}")));
        }
        if start < last {
            return Err(bad(format!("the tensor {name} begins at byte {start}, within the one before")));
        }
        if start > last {
            return Err(bad(format!("before the tensor {name} there is a hole of {} bytes", start - last)));
        }
        last = end;
    }
    match (last as u64).cmp(&available) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => {
            Err(bad(format!("its tensors take {last} bytes, and it has {available}"))
                .with_advice("fetch it again: it was cut off"))
        }
        std::cmp::Ordering::Less => {
            Err(bad(format!("behind its tensors there are {} bytes that are none", available - last as u64)))
        }
    }
}

/// One tensor, with the type that it is said to carry.
fn entry(name: &str, info: &TensorInfo, carries: Option<&str>, place: Place) -> Result<FileEntry> {
    let bytes = (info.data_offsets.1 - info.data_offsets.0) as u64;
    crate::entry::check_rank(info.shape.len())?;
    let mut shape =
        info.shape.iter().map(|&length| dimension(length as u64)).collect::<Result<Vec<i64>>>()?;
    let word = info.dtype.to_string();
    let Some(stored) = DType::from_safetensors_name(&word) else {
        let count = info.shape.iter().try_fold(1usize, |count, &length| count.checked_mul(length));
        let bits = count.and_then(|count| count.checked_mul(info.dtype.bitsize()));
        if bits.is_none_or(|bits| !bits.is_multiple_of(8) || bits as u64 / 8 != bytes) {
            return Err(bad(format!("{word} of shape {:?} does not take {bytes} bytes", info.shape)));
        }
        return Err(unsupported(
            format!("the tensor {} is {word}, whose elements share bytes", quoted(name)),
            "read it with the safetensors package",
        ));
    };
    let mut dtype = stored;
    if let Some(word) = carries {
        let unfit = || {
            bad(format!("{CARRIED} calls it {}, and it is {stored} of shape {:?}", quoted(word), info.shape))
                .with_advice("open it as it is stored")
        };
        dtype = DType::from_name(word).ok_or_else(unfit)?;
        match carrier(dtype) {
            Some(DType::Float64) if stored == DType::Float64 && shape.last() == Some(&2) => {
                shape.pop();
            }
            Some(DType::UInt8) if stored == DType::UInt8 => {}
            _ => return Err(unfit()),
        }
    }
    FileEntry::new(
        TensorSpec { name: name.to_owned(), dtype, shape, order: LITTLE, fortran: false },
        bytes,
        place,
    )
}

/// The type that stands in for one that the format has no name for.
fn carrier(dtype: DType) -> Option<DType> {
    match dtype.safetensors_name() {
        Some(_) => None,
        None if dtype == DType::Complex128 => Some(DType::Float64),
        None => dtype.bits_type(),
    }
}

/// A header, and where each tensor's bytes begin in the file, in the order of `specs`.
pub(crate) fn write(specs: &[TensorSpec], metadata: &[(String, String)]) -> Result<(Vec<u8>, Vec<u64>)> {
    check_names(specs, metadata)?;
    let sizes = specs.iter().map(TensorSpec::bytes).collect::<Result<Vec<u64>>>()?;
    let mut order: Vec<usize> = (0..specs.len()).collect();
    order.sort_by_key(|&at| (sizes[at] % ALIGN != 0, std::cmp::Reverse(specs[at].dtype.size())));
    let (mut offsets, mut end) = (vec![0; specs.len()], 0u64);
    for at in order {
        offsets[at] = end;
        end = end
            .checked_add(sizes[at])
            .ok_or_else(|| wrong("the sizes of the tensors overflow", "save fewer"))?;
    }
    let mut text = String::from("{");
    let carried: Vec<(&str, &str)> = specs
        .iter()
        .filter(|spec| carrier(spec.dtype).is_some())
        .map(|spec| (spec.name.as_str(), spec.dtype.name()))
        .collect();
    if !metadata.is_empty() || !carried.is_empty() {
        let mut pairs: Vec<(&str, String)> =
            metadata.iter().map(|pair| (pair.0.as_str(), pair.1.clone())).collect();
        if !carried.is_empty() {
            pairs.push((CARRIED, object(carried.iter().map(|&(name, dtype)| (name, string(dtype))))));
        }
        let pairs = pairs.iter().map(|(key, value)| (*key, string(value)));
        text += &format!("\"{METADATA}\":{}", object(pairs));
    }
    for (at, spec) in specs.iter().enumerate() {
        let stored = carrier(spec.dtype).unwrap_or(spec.dtype);
        let mut shape = spec.shape.clone();
        if stored != spec.dtype && spec.dtype == DType::Complex128 {
            shape.push(2);
        }
        let word = stored.safetensors_name().unwrap_or_default();
        let (start, end) = (offsets[at], offsets[at] + sizes[at]);
        let comma = if text.len() > 1 { "," } else { "" };
        let name = string(&spec.name);
        text += &format!(
            "{comma}{name}:{{\"dtype\":\"{word}\",\"shape\":{shape:?},\"data_offsets\":[{start},{end}]}}"
        );
    }
    text.push('}');
    let size = (8 + text.len() as u64).next_multiple_of(ALIGN) - 8;
    if size > MOST_HEADER {
        return Err(wrong(
            format!("a header of {size} bytes is longer than safetensors allows"),
            "save fewer tensors, or with shorter names",
        ));
    }
    let mut bytes = size.to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(8 + size as usize, b' ');
    offsets.iter_mut().for_each(|offset| *offset += 8 + size);
    Ok((bytes, offsets))
}

fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A JSON object from values that are JSON already.
fn object<'a>(pairs: impl Iterator<Item = (&'a str, String)>) -> String {
    let members: Vec<String> = pairs.map(|(key, value)| format!("{}:{value}", string(key))).collect();
    format!("{{{}}}", members.join(","))
}

fn check_names(specs: &[TensorSpec], metadata: &[(String, String)]) -> Result<()> {
    check_plain(specs, "safetensors")?;
    if specs.iter().any(|spec| spec.name == METADATA) {
        return Err(wrong(
            format!("a tensor cannot be called {METADATA} in safetensors"),
            "choose another name",
        ));
    }
    if let Some(name) = twice(specs.iter().map(|spec| spec.name.as_str())) {
        return Err(wrong(format!("two tensors are called {}", quoted(name)), "choose another name"));
    }
    if let Some(key) = twice(metadata.iter().map(|pair| pair.0.as_str()).chain([CARRIED])) {
        return Err(wrong(format!("the metadata has {} twice", quoted(key)), "leave one out"));
    }
    Ok(())
}
