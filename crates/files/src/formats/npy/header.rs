//! .npy: one array, with a header that is a line of Python.
//!
//! # What is read
//!
//! Versions 1.0, 2.0 and 3.0; C and Fortran order; either byte order; every type of NumPy that tensorferry knows. The header
//! is read by [`crate::literal`], which executes nothing and accepts little. Refused with a hint: object arrays (pickles,
//! which run code when they are loaded), structured types, strings, dates, and floats wider than 64 bits. The data must end
//! where the file ends: NumPy ignores what follows, we do not know what it is.
//!
//! # Types that NumPy has no name for
//!
//! NumPy writes the types of `ml_dtypes` as void, `'<V2'` for bfloat16 and `'<V1'` for all that have one byte, and so forgets
//! which type it was. We write the same, so that `numpy.load(path).view(ml_dtypes.bfloat16)` and `jax.numpy.load` work as
//! with NumPy's own files, and add which type it is as a comment behind the dict:
//!
//! ```text
//! {'descr': '<V1', 'fortran_order': False, 'shape': (3,), } # tensorferry: float8_e4m3fn
//! ```
//!
//! Python's parser, which is NumPy's, skips comments. Rejected: `uint16` and `uint8` bits, with which a reader who does not
//! look computes nonsense instead of failing; a structured type with the name as a field, which JAX does not take and which
//! has to be unpacked; a fourth key, which NumPy refuses.
//!
//! Without the comment, `'<V2'` is bfloat16: plain void is `'|V2'`, and among the types that are written so only bfloat16 has
//! two bytes. A nameless type of one byte is read when the caller says which it is ([`OpenOptions::dtype`]).
//!
//! # What is written
//!
//! Version 1.0 always: 64 dimensions fit into a header of 64 KiB many times over, and no type that we write has a name
//! outside of ASCII, which is what 2.0 and 3.0 are for. The data begins at a multiple of 64 bytes, as NumPy's does.

use crate::entry::{BIG, FileEntry, LITTLE, Place, TensorSpec};
use crate::fault::{bad, quoted, unsupported};
use crate::literal::{self, Descr, NOTE};
use crate::open::OpenOptions;
use crate::source::{FileSource, Part};
use crate::stream::from_io;
use std::io::Read;
use tensorferry_core::{ByteOrder, DType, Result};

pub(crate) const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The longest header that is read. Those of plain types have some 100 bytes; only structured types have long ones.
const MOST: u32 = 1 << 20;
/// What the data's beginning is a multiple of.
const ALIGN: usize = 64;

/// What a header says, checked.
pub(crate) struct Header {
    pub(crate) spec: TensorSpec,
    /// Bytes before the data.
    pub(crate) length: u64,
}

/// Reads the header at the beginning of `reader`, which has `available` bytes.
pub(crate) fn header(reader: &mut impl Read, available: u64, options: &OpenOptions) -> Result<Header> {
    let mut start = [0; 12];
    let short = || bad("it ends within the header of a .npy");
    if available < 10 {
        return Err(short());
    }
    reader.read_exact(&mut start[..10]).map_err(from_io)?;
    if start[..6] != *MAGIC {
        return Err(bad("it does not begin as a .npy does"));
    }
    let (prefix, length) = match (start[6], start[7]) {
        (1, 0) => (10, u32::from(u16::from_le_bytes([start[8], start[9]]))),
        (2 | 3, 0) if available >= 12 => {
            reader.read_exact(&mut start[10..]).map_err(from_io)?;
            (12, u32::from_le_bytes([start[8], start[9], start[10], start[11]]))
        }
        (2 | 3, 0) => return Err(short()),
        (major, minor) => {
            return Err(bad(format!("it is a .npy of version {major}.{minor}; there are 1.0, 2.0 and 3.0")));
        }
    };
    if length > MOST {
        return Err(bad(format!("its header has {length} bytes; {MOST} is the most that is read")));
    }
    if u64::from(length) > available - prefix {
        return Err(short());
    }
    let mut text = vec![0; length as usize];
    reader.read_exact(&mut text).map_err(from_io)?;
    if start[6] == 3 && std::str::from_utf8(&text).is_err() {
        return Err(bad("its header is not UTF-8, as version 3.0 has to be"));
    }
    let said = literal::parse(&text, start[6] < 3)?;
    let Descr::Plain(descr) = said.descr else {
        return Err(unsupported(
            "it holds a structured type, which is no tensor",
            "load it with NumPy and save the fields one by one",
        ));
    };
    let (dtype, order) = type_of(&descr, said.note.as_deref(), options)?;
    let spec = TensorSpec { name: String::new(), dtype, shape: said.shape, order, fortran: said.fortran };
    Ok(Header { spec, length: prefix + u64::from(length) })
}

/// The one tensor of a file.
pub(crate) fn open(source: &FileSource, options: &OpenOptions) -> Result<FileEntry> {
    let length = source.length();
    let header = header(&mut Part::new(source, 0, length), length, options)?;
    let rest = length - header.length;
    let entry =
        FileEntry::new(header.spec, rest, Place::Stored { file: 0, offset: header.length, member: None });
    entry.map_err(|error| match error.hint() {
        Some(_) => error,
        None => {
            error.with_advice("write it again: it was cut off, or something was written behind the array")
        }
    })
}

/// The type and byte order that a type string stands for.
fn type_of(descr: &str, note: Option<&str>, options: &OpenOptions) -> Result<(DType, ByteOrder)> {
    let strange = || bad(format!("its type is {}, which is no type of NumPy's", quoted(descr)));
    let mut chars = descr.bytes();
    let (Some(order), Some(kind)) = (chars.next(), chars.next()) else {
        return Err(strange());
    };
    let order = match order {
        b'<' => Some(LITTLE),
        b'>' => Some(BIG),
        b'|' => None,
        _ => return Err(strange()),
    };
    if kind == b'O' {
        return Err(unsupported(
            "it holds Python objects, which only a pickle can bring back, and a pickle can run any code",
            "load it with numpy.load(allow_pickle=True) if you trust it, and save it with a numeric dtype",
        ));
    }
    let digits = descr.get(2..).unwrap_or_default();
    let date = matches!(kind, b'M' | b'm');
    let number = if date { digits.split('[').next().unwrap_or_default() } else { digits };
    let size = match number.parse::<usize>() {
        Ok(size) if number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0') => size,
        // Strings of length zero exist, and are refused below for being strings.
        Ok(0) if number == "0" => 0,
        _ => return Err(strange()),
    };
    if note.is_some() && kind != b'V' {
        return Err(bad(format!("a note names its type, and so does {}", quoted(descr))));
    }
    let dtype = match kind {
        b'V' => nameless(size, order == Some(LITTLE) && size == 2, note, options)?,
        b'b' | b'i' | b'u' | b'f' | b'c' => match DType::from_typestr(kind, size) {
            Some(dtype) => dtype,
            None if matches!((kind, size), (b'f', 12 | 16) | (b'c', 24 | 32)) => {
                return Err(unsupported(
                    format!(
                        "its type {} is wider than 64 bits and differs from machine to machine",
                        quoted(descr)
                    ),
                    "convert it to float64 or complex128 with NumPy",
                ));
            }
            None => return Err(strange()),
        },
        b'M' | b'm' => {
            return Err(unsupported(
                format!("its type {} is a date or a time", quoted(descr)),
                "save .view(\"int64\") of it",
            ));
        }
        b'S' | b'U' | b'a' | b'T' => {
            return Err(unsupported("it holds strings, which are no tensor", "load it with NumPy"));
        }
        _ => return Err(strange()),
    };
    match order {
        Some(order) => Ok((dtype, order)),
        None if dtype.swap_unit() == 1 || kind == b'V' => Ok((dtype, LITTLE)),
        None => Err(bad(format!("its type {} does not say which byte comes first", quoted(descr)))),
    }
}

/// The type of what NumPy calls void.
fn nameless(size: usize, bfloat: bool, note: Option<&str>, options: &OpenOptions) -> Result<DType> {
    if let Some(note) = note {
        return match DType::from_name(note).filter(|dtype| dtype.typestr().is_none()) {
            Some(dtype) if dtype.size() == size => Ok(dtype),
            _ => Err(bad(format!(
                "its note names the type {}, and its elements have {size} bytes",
                quoted(note)
            ))),
        };
    }
    match options.dtype {
        Some(dtype) if dtype.size() == size && dtype.typestr().is_none() => Ok(dtype),
        None if bfloat => Ok(DType::BFloat16),
        _ => Err(unsupported(
            format!(
                "its type is void of {size} bytes, which is how NumPy writes types of ml_dtypes, without their name"
            ),
            "say which it is: dtype=\"float8_e4m3fn\", for example",
        )),
    }
}

/// The bytes before the data.
pub(crate) fn write(spec: &TensorSpec) -> Vec<u8> {
    let size = spec.dtype.size();
    let (kind, note) = match spec.dtype.typestr() {
        Some(kind) => (kind.to_owned(), String::new()),
        None => (format!("V{size}"), format!(" {NOTE}{}", spec.dtype)),
    };
    let order = match (spec.dtype.swap_unit(), spec.dtype.typestr()) {
        (1, Some(_)) => '|',
        _ if spec.order == LITTLE => '<',
        _ => '>',
    };
    let fortran = if spec.fortran { "True" } else { "False" };
    let lengths: Vec<String> = spec.shape.iter().map(i64::to_string).collect();
    let comma = if lengths.len() == 1 { "," } else { "" };
    let shape = format!("({}{comma})", lengths.join(", "));
    let mut text =
        format!("{{'descr': '{order}{kind}', 'fortran_order': {fortran}, 'shape': {shape}, }}{note}");
    let length = (10 + text.len() + 1).next_multiple_of(ALIGN) - 10;
    text.extend(std::iter::repeat_n(' ', length - 1 - text.len()));
    text.push('\n');
    let mut bytes = Vec::with_capacity(10 + length);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[1, 0]);
    bytes.extend_from_slice(&(length as u16).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensorferry_core::ErrorKind;

    /// A file of this version with this text as its header.
    fn file(version: u8, text: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([version, 0]);
        match version {
            1 => bytes.extend((text.len() as u16).to_le_bytes()),
            _ => bytes.extend((text.len() as u32).to_le_bytes()),
        }
        bytes.extend(text.as_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Header> {
        header(&mut &*bytes, bytes.len() as u64, &OpenOptions::default())
    }

    fn of_type(descr: &str) -> Result<(DType, ByteOrder)> {
        type_of(descr, None, &OpenOptions::default())
    }

    #[test]
    fn three_versions() {
        for version in 1..=3 {
            let text = "{'descr': '>i4', 'fortran_order': True, 'shape': (2, 3)}";
            let header = read(&file(version, text)).ok().unwrap();
            assert_eq!((header.spec.dtype, header.spec.order), (DType::Int32, BIG));
            assert_eq!((header.spec.fortran, header.spec.shape.as_slice()), (true, &[2, 3][..]));
        }
    }

    #[test]
    fn versions_that_do_not_exist_are_refused() {
        for (major, minor) in [(0, 0), (1, 1), (4, 0), (255, 255)] {
            let mut bytes = file(1, "{}");
            (bytes[6], bytes[7]) = (major, minor);
            assert!(read(&bytes).err().unwrap().fact().contains(&format!("version {major}.{minor}")));
        }
    }

    #[test]
    fn a_header_past_the_end_is_refused() {
        let mut bytes = file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': ()}");
        bytes[9] = 0xff;
        assert!(read(&bytes).err().unwrap().fact().contains("ends within"));
        for length in 0..10 {
            assert!(read(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn a_huge_header_is_refused_before_memory_is_taken() {
        let mut bytes = file(2, "{}");
        bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        let error = header(&mut &*bytes, u64::MAX, &OpenOptions::default()).err().unwrap();
        assert!(error.fact().contains("4294967295"));
    }

    #[test]
    fn every_type_is_written_and_read_back() {
        for dtype in DType::all() {
            for order in [LITTLE, BIG] {
                let mut spec = TensorSpec::new("", dtype, &[3, 0, 5]);
                (spec.order, spec.fortran) = (order, true);
                let bytes = write(&spec);
                assert_eq!(bytes.len() % 64, 0);
                let header = read(&bytes).ok().unwrap();
                assert_eq!((header.spec.dtype, header.length), (dtype, bytes.len() as u64));
                if dtype.swap_unit() > 1 {
                    assert_eq!(header.spec.order, order);
                }
            }
        }
    }

    #[test]
    fn objects_are_refused_with_a_hint() {
        let error = of_type("|O").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedDType);
        assert!(error.to_string().contains("if you trust it"));
        assert_eq!(of_type("|O8").unwrap_err().kind(), ErrorKind::UnsupportedDType);
    }

    #[test]
    fn structured_types_are_refused_with_a_hint() {
        let error =
            read(&file(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}")).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::UnsupportedDType);
        assert!(error.to_string().contains("fields"));
    }

    #[test]
    fn other_types_of_numpy_are_refused_by_name() {
        for descr in ["<f16", "<c32", "<M8[ns]", "<m8", "|S5", "<U3", "|S0", "|V7", "|V2", "|V1", "<V1"] {
            assert_eq!(of_type(descr).unwrap_err().kind(), ErrorKind::UnsupportedDType, "{descr}");
        }
    }

    #[test]
    fn what_is_no_type_is_a_bad_file() {
        for descr in [
            "",
            "<",
            "f4",
            "=f4",
            "<f",
            "<f3",
            "<f04",
            "<f+4",
            "<f4 ",
            "|f4",
            "<x4",
            "<i99999999999999999999",
        ] {
            assert_eq!(of_type(descr).unwrap_err().kind(), ErrorKind::InvalidFile, "{descr:?}");
        }
    }

    #[test]
    fn bfloat16_without_a_note() {
        assert_eq!(of_type("<V2").unwrap(), (DType::BFloat16, LITTLE));
        let options = OpenOptions { dtype: Some(DType::Float8E5M2), ..OpenOptions::default() };
        assert_eq!(type_of("<V1", None, &options).unwrap().0, DType::Float8E5M2);
        assert!(type_of("<V2", None, &options).is_err());
    }

    #[test]
    fn notes_that_do_not_fit_are_refused() {
        let options = OpenOptions::default();
        assert!(type_of("<V1", Some("bfloat16"), &options).is_err());
        assert!(type_of("<V4", Some("float32"), &options).is_err());
        assert!(type_of("<f2", Some("bfloat16"), &options).is_err());
        assert!(type_of("<V2", Some("nonsense"), &options).is_err());
    }

    #[test]
    fn version_3_has_to_be_utf_8() {
        let mut bytes = file(3, "{'descr': [('?', '<f4')], 'fortran_order': False, 'shape': ()}");
        let at = bytes.iter().position(|&byte| byte == b'?').unwrap();
        bytes[at] = 0xff;
        assert!(read(&bytes).err().unwrap().fact().contains("UTF-8"));
    }
}
