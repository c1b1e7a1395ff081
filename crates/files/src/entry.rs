//! One tensor of an open file: its spec, and the location of its bytes.
//!
//! A reader validates an entry before it creates one. The shape does not overflow, the bytes lie within the file, and their
//! number is the one that the shape takes. Code that holds an entry can therefore do arithmetic with it.

use crate::errors::{invalid_file, invalid_shape_in_file};
use crate::formats::protobuf::dialect::ValueEncoding;
use crate::reading::file_source::ByteRange;
use crate::spec::{TensorSpec, check_rank};
use tensorferry_core::{ByteOrder, DType, Error, Layout, Result};

/// A tensor in a file.
#[derive(Clone, Debug)]
pub struct FileEntry {
    spec: TensorSpec,
    bytes: u64,
    location: DataLocation,
}

/// Where the bytes of a tensor are.
#[derive(Clone, Debug)]
pub(crate) enum DataLocation {
    /// Uncompressed, at an offset in the file of this index.
    Stored { file: usize, offset: u64, member: Option<ZipMember> },
    /// In a deflated zip member, after a header of `header_bytes`.
    Deflated { offset: u64, compressed_bytes: u64, header_bytes: u64, crc32: u32 },
    /// In a protobuf message, as values that must be decoded.
    Encoded(EncodedValues),
}

/// A stored zip member. Its checksum covers the .npy header too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZipMember {
    pub(crate) start: u64,
    pub(crate) crc32: u32,
}

/// The values of a typed field in a protobuf message.
#[derive(Clone, Debug)]
pub(crate) struct EncodedValues {
    pub(crate) message: ByteRange,
    pub(crate) field: u32,
    pub(crate) encoding: ValueEncoding,
    /// The number of values. It is smaller than the shape requires where the last value repeats.
    pub(crate) count: u64,
}

/// What a reader finds in a file.
#[derive(Debug, Default)]
pub(crate) struct FileContents {
    pub(crate) entries: Vec<FileEntry>,
    /// Names of what cannot be read as a tensor, with the reasons.
    pub(crate) skipped: Vec<(String, Error)>,
    pub(crate) metadata: Vec<(String, String)>,
}

impl FileEntry {
    /// Validates the shape and compares the size that it takes with the bytes that are present.
    pub(crate) fn new(mut spec: TensorSpec, present_bytes: u64, location: DataLocation) -> Result<Self> {
        check_rank(spec.shape.len())?;
        let bytes = spec.bytes().map_err(invalid_shape_in_file)?;
        if bytes != present_bytes {
            return Err(invalid_file(format!(
                "{} of shape {:?} takes {bytes} bytes, found {present_bytes}",
                spec.dtype, spec.shape
            )));
        }
        if spec.dtype.swap_unit() == 1 {
            spec.order = ByteOrder::Native;
        }
        Ok(Self { spec, bytes, location })
    }

    /// The name in the file.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.spec.dtype
    }

    /// The byte order of the elements.
    pub fn order(&self) -> ByteOrder {
        self.spec.order
    }

    /// The lengths of the dimensions.
    pub fn shape(&self) -> &[i64] {
        &self.spec.shape
    }

    /// Whether the layout is column-major instead of row-major.
    pub fn is_fortran(&self) -> bool {
        self.spec.fortran
    }

    /// The size in memory.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The spec, for a writer.
    pub fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// The shape and strides of the bytes that a map or a read returns.
    ///
    /// # Errors
    /// Never for an entry that a reader made.
    pub fn layout(&self) -> Result<Layout> {
        self.spec.layout()
    }

    /// Whether the file holds the bytes uncompressed, so that they can be mapped and read from any offset.
    pub fn is_stored(&self) -> bool {
        matches!(self.location, DataLocation::Stored { .. })
    }

    /// The offset of the first byte in its file, if [`Self::is_stored`].
    pub fn offset(&self) -> Option<u64> {
        match self.location {
            DataLocation::Stored { offset, .. } => Some(offset),
            _ => None,
        }
    }

    pub(crate) fn location(&self) -> &DataLocation {
        &self.location
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_START: DataLocation = DataLocation::Stored { file: 0, offset: 0, member: None };

    #[test]
    fn too_few_and_too_many_bytes_are_rejected() {
        let spec = TensorSpec::new("", DType::Int16, &[3]);
        let error = FileEntry::new(spec.clone(), 5, AT_START).unwrap_err();
        assert!(["6", "5"].iter().all(|number| error.fact().contains(number)), "{error}");
        assert!(FileEntry::new(spec.clone(), 7, AT_START).is_err());
        assert!(FileEntry::new(spec, 6, AT_START).is_ok());
    }

    #[test]
    fn one_byte_elements_have_native_order() {
        let mut spec = TensorSpec::new("", DType::Int8, &[3]);
        spec.order = ByteOrder::Swapped;
        let entry = FileEntry::new(spec, 3, AT_START).unwrap();
        assert_eq!(entry.order(), ByteOrder::Native);
    }
}
