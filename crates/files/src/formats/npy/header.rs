//! The header of a .npy file: reading and writing it.
//!
//! # Reading
//!
//! Versions 1.0, 2.0 and 3.0, both orders of dimensions, both byte orders, and every NumPy type that tensorferry knows are
//! supported. [`super::dict_literal`] parses the text and executes nothing. Object arrays (pickles, which run code when they
//! are loaded), structured types, strings, dates and floats wider than 64 bits are rejected with a hint.
//!
//! The data must end where the file ends. NumPy ignores trailing bytes; tensorferry rejects them, because their meaning is
//! unknown.
//!
//! # Types without a NumPy name
//!
//! NumPy writes the types of `ml_dtypes` as void, `'<V2'` for bfloat16 and `'<V1'` for all one-byte types, which loses the
//! type. tensorferry writes the same type strings, so that `numpy.load(path).view(ml_dtypes.bfloat16)` and `jax.numpy.load`
//! work as with NumPy's own files. It appends the type as a comment after the dict:
//!
//! ```text
//! {'descr': '<V1', 'fortran_order': False, 'shape': (3,), } # tensorferry: float8_e4m3fn
//! ```
//!
//! NumPy uses Python's parser, which skips comments. Rejected alternatives:
//!
//! - `uint16` and `uint8` bits: a reader that does not check computes nonsense instead of failing.
//! - A structured type with the name as a field: JAX does not load it, and it has to be unpacked.
//! - A fourth key: NumPy rejects it.
//!
//! Without the comment, `'<V2'` is bfloat16: plain void is `'|V2'`, and only bfloat16 has two bytes among these types. A
//! one-byte type without a comment is read if the caller names it ([`OpenOptions::dtype`]).
//!
//! # Writing
//!
//! The version is always 1.0. Its limit of 64 KiB is far above a header with 64 dimensions, and no written type has a name
//! outside ASCII, which is what 2.0 and 3.0 are for. The data begins at a multiple of 64 bytes, as in NumPy's files.

use super::dict_literal::{self, Descr, TYPE_COMMENT_PREFIX};
use super::type_string::parse_type_string;
use crate::entry::{DataLocation, FileEntry};
use crate::errors::{from_library_io, invalid_file, unsupported_dtype};
use crate::hints;
use crate::options::OpenOptions;
use crate::reading::file_source::{FileSource, RangeReader};
use crate::spec::{LITTLE_ENDIAN, TensorSpec};
use std::io::Read;
use tensorferry_core::{Result, fallible};

pub(crate) const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The limit on the length of a header. Headers of plain types have about 100 bytes; only structured types have long ones.
const MAX_HEADER_BYTES: u32 = 1 << 20;
/// The data begins at a multiple of this.
const DATA_ALIGNMENT_BYTES: usize = 64;

/// A validated header.
pub(crate) struct Header {
    pub(crate) spec: TensorSpec,
    /// The number of bytes before the data.
    pub(crate) bytes: u64,
}

/// Reads the header at the start of `reader`, which has `available` bytes.
pub(crate) fn read_header(reader: &mut impl Read, available: u64, options: &OpenOptions) -> Result<Header> {
    let mut start = [0; 12];
    let truncated = || invalid_file("the file ends inside the .npy header");
    if available < 10 {
        return Err(truncated());
    }
    reader.read_exact(&mut start[..10]).map_err(from_library_io)?;
    if start[..6] != *MAGIC {
        return Err(invalid_file("the .npy signature is missing"));
    }
    let (prefix, length) = match (start[6], start[7]) {
        (1, 0) => (10, u32::from(u16::from_le_bytes([start[8], start[9]]))),
        (2 | 3, 0) if available >= 12 => {
            reader.read_exact(&mut start[10..]).map_err(from_library_io)?;
            (12, u32::from_le_bytes([start[8], start[9], start[10], start[11]]))
        }
        (2 | 3, 0) => return Err(truncated()),
        (major, minor) => {
            return Err(invalid_file(format!(
                ".npy version {major}.{minor} is unknown; 1.0, 2.0 and 3.0 are supported"
            )));
        }
    };
    if length > MAX_HEADER_BYTES {
        return Err(invalid_file(format!(
            "the .npy header has {length} bytes, over the limit of {MAX_HEADER_BYTES}"
        )));
    }
    if u64::from(length) > available - prefix {
        return Err(truncated());
    }
    let mut text = Vec::new();
    fallible::try_reserve(&mut text, length as usize)?;
    text.resize(length as usize, 0);
    reader.read_exact(&mut text).map_err(from_library_io)?;
    if start[6] == 3 && std::str::from_utf8(&text).is_err() {
        return Err(invalid_file("the .npy header is not UTF-8, which version 3.0 requires"));
    }
    let fields = dict_literal::parse(&text, start[6] < 3)?;
    let Descr::TypeString(descr) = fields.descr else {
        return Err(unsupported_dtype(
            "the array has a structured type, which is not a tensor type",
            hints::SAVE_FIELDS_SEPARATELY,
        ));
    };
    let (dtype, order) = parse_type_string(&descr, fields.type_comment.as_deref(), options)?;
    let spec = TensorSpec { name: String::new(), dtype, shape: fields.shape, order, fortran: fields.fortran };
    Ok(Header { spec, bytes: prefix + u64::from(length) })
}

/// The one tensor of a file.
pub(crate) fn read_entry(source: &FileSource, options: &OpenOptions) -> Result<FileEntry> {
    let file_bytes = source.size();
    let header = read_header(&mut RangeReader::new(source, 0, file_bytes), file_bytes, options)?;
    let location = DataLocation::Stored { file: 0, offset: header.bytes, member: None };
    FileEntry::new(header.spec, file_bytes - header.bytes, location)
        .map_err(|error| error.with_hint(hints::REWRITE_NPY))
}

/// The header of a file with this tensor.
pub(crate) fn write_header(spec: &TensorSpec) -> Vec<u8> {
    let size = spec.dtype.size();
    let (kind, comment) = match spec.dtype.typestr() {
        Some(kind) => (kind.to_owned(), String::new()),
        None => (format!("V{size}"), format!(" {TYPE_COMMENT_PREFIX}{}", spec.dtype)),
    };
    let order = match (spec.dtype.swap_unit(), spec.dtype.typestr()) {
        (1, Some(_)) => '|',
        _ if spec.order == LITTLE_ENDIAN => '<',
        _ => '>',
    };
    let fortran = if spec.fortran { "True" } else { "False" };
    let lengths: Vec<String> = spec.shape.iter().map(i64::to_string).collect();
    let comma = if lengths.len() == 1 { "," } else { "" };
    let shape = format!("({}{comma})", lengths.join(", "));
    let mut text =
        format!("{{'descr': '{order}{kind}', 'fortran_order': {fortran}, 'shape': {shape}, }}{comment}");
    let length = (10 + text.len() + 1).next_multiple_of(DATA_ALIGNMENT_BYTES) - 10;
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
    use crate::spec::BIG_ENDIAN;
    use tensorferry_core::error::Hint;
    use tensorferry_core::{DType, ErrorKind};

    /// A file with this version and header text.
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
        read_header(&mut &*bytes, bytes.len() as u64, &OpenOptions::default())
    }

    #[test]
    fn all_versions_are_read() {
        for version in 1..=3 {
            let text = "{'descr': '>i4', 'fortran_order': True, 'shape': (2, 3)}";
            let header = read(&file(version, text)).ok().unwrap();
            assert_eq!((header.spec.dtype, header.spec.order), (DType::Int32, BIG_ENDIAN));
            assert_eq!((header.spec.fortran, header.spec.shape.as_slice()), (true, &[2, 3][..]));
        }
    }

    #[test]
    fn unknown_versions_are_rejected() {
        for (major, minor) in [(0, 0), (1, 1), (4, 0), (255, 255)] {
            let mut bytes = file(1, "{}");
            (bytes[6], bytes[7]) = (major, minor);
            assert!(read(&bytes).err().unwrap().fact().contains(&format!("{major}.{minor}")));
        }
    }

    #[test]
    fn a_header_past_the_end_is_rejected() {
        let mut bytes = file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': ()}");
        bytes[9] = 0xff;
        assert_eq!(read(&bytes).err().unwrap().kind(), ErrorKind::InvalidFile);
        for length in 0..10 {
            assert!(read(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn a_huge_header_is_rejected_before_allocation() {
        let mut bytes = file(2, "{}");
        bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        let error = read_header(&mut &*bytes, u64::MAX, &OpenOptions::default()).err().unwrap();
        assert!(error.fact().contains("4294967295"));
    }

    #[test]
    fn every_type_is_written_and_read_back() {
        for dtype in DType::all() {
            for order in [LITTLE_ENDIAN, BIG_ENDIAN] {
                let mut spec = TensorSpec::new("", dtype, &[3, 0, 5]);
                (spec.order, spec.fortran) = (order, true);
                let bytes = write_header(&spec);
                assert_eq!(bytes.len() % 64, 0);
                let header = read(&bytes).ok().unwrap();
                assert_eq!((header.spec.dtype, header.bytes), (dtype, bytes.len() as u64));
                if dtype.swap_unit() > 1 {
                    assert_eq!(header.spec.order, order);
                }
            }
        }
    }

    #[test]
    fn structured_types_are_rejected_with_a_hint() {
        let error =
            read(&file(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}")).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::UnsupportedDType);
        assert_eq!(error.hint(), Some(&Hint::Key(hints::SAVE_FIELDS_SEPARATELY, None)));
    }

    #[test]
    fn version_3_must_be_utf_8() {
        let mut bytes = file(3, "{'descr': [('?', '<f4')], 'fortran_order': False, 'shape': ()}");
        let at = bytes.iter().position(|&byte| byte == b'?').unwrap();
        bytes[at] = 0xff;
        assert!(read(&bytes).err().unwrap().fact().contains("UTF-8"));
    }
}
