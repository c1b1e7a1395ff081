//! One tensor of a file: what it is, and where its bytes are.
//!
//! An [`FileEntry`] is made by a reader that has checked it: the shape does not overflow, the bytes lie within the file, and
//! there are as many as the shape asks for. Whoever holds one may do arithmetic with it.

use crate::fault::{bad, of_file, quoted, wrong};
use tensorferry_core::{ByteOrder, DType, Layout, Result};

/// The most dimensions that a tensor in a file may have; NumPy's own limit.
pub const MAX_DIMENSIONS: usize = 64;

/// The order of formats that are little-endian by definition, as this machine sees it.
pub(crate) const LITTLE: ByteOrder =
    if cfg!(target_endian = "little") { ByteOrder::Native } else { ByteOrder::Swapped };
/// The other one.
pub(crate) const BIG: ByteOrder =
    if cfg!(target_endian = "little") { ByteOrder::Swapped } else { ByteOrder::Native };

/// What a tensor is, apart from its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name in the file; formats that hold a single tensor may have none, which is the empty name.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// The lengths of its dimensions.
    pub shape: Vec<i64>,
    /// Which end of an element comes first.
    pub order: ByteOrder,
    /// Whether the first index runs fastest (Fortran, column-major), and not the last.
    pub fortran: bool,
}

impl TensorSpec {
    /// A row-major tensor in this machine's byte order.
    pub fn new(name: impl Into<String>, dtype: DType, shape: &[i64]) -> Self {
        Self { name: name.into(), dtype, shape: shape.to_vec(), order: ByteOrder::Native, fortran: false }
    }

    /// Shape and strides of the bytes as they lie in the file.
    ///
    /// # Errors
    /// When a dimension is negative or the size overflows; never for an [`FileEntry`]'s.
    pub fn layout(&self) -> Result<Layout> {
        let item = self.dtype.size();
        let dense = Layout::dense(item, &self.shape)?;
        if !self.fortran {
            return Ok(dense);
        }
        let mut step = item as i64;
        let mut strides = Vec::with_capacity(self.shape.len());
        for &length in &self.shape {
            strides.push(step);
            // Cannot overflow: it is the product that the dense layout has checked.
            step = step.saturating_mul(length.max(1));
        }
        Layout::strided(item, &self.shape, &strides)
    }

    /// Checks the shape and counts the bytes.
    pub(crate) fn bytes(&self) -> Result<u64> {
        Ok(Layout::dense(self.dtype.size(), &self.shape)?.bytes() as u64)
    }
}

/// A tensor in a file.
#[derive(Clone, Debug)]
pub struct FileEntry {
    pub(crate) spec: TensorSpec,
    pub(crate) bytes: u64,
    pub(crate) place: Place,
}

/// Where the bytes are.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// As they are, in the file of this number.
    Stored { file: usize, offset: u64, member: Option<Member> },
    /// Behind a header of `header` bytes in a deflated member.
    Deflated { offset: u64, compressed: u64, header: u64, crc: u32 },
    /// As numbers of a protobuf message, to be decoded.
    Values(crate::proto::Values),
}

/// A stored member of a .npz, whose checksum covers its header too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) start: u64,
    pub(crate) crc: u32,
}

impl FileEntry {
    /// Checks the shape; says whether the bytes that are there are as many as it asks for.
    pub(crate) fn new(mut spec: TensorSpec, found: u64, place: Place) -> Result<Self> {
        check_rank(spec.shape.len())?;
        let bytes = spec.bytes().map_err(of_file)?;
        if bytes != found {
            return Err(bad(format!(
                "{} of shape {:?} takes {bytes} bytes, and there are {found}",
                spec.dtype, spec.shape
            )));
        }
        if spec.dtype.swap_unit() == 1 {
            spec.order = ByteOrder::Native;
        }
        Ok(Self { spec, bytes, place })
    }

    /// Its name in the file.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.spec.dtype
    }

    /// Which end of an element comes first.
    pub fn order(&self) -> ByteOrder {
        self.spec.order
    }

    /// The lengths of its dimensions.
    pub fn shape(&self) -> &[i64] {
        &self.spec.shape
    }

    /// Whether the first index runs fastest, and not the last.
    pub fn is_fortran(&self) -> bool {
        self.spec.fortran
    }

    /// How many bytes it takes once it is read.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All of the above, for a writer.
    pub fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// Shape and strides of the bytes as a map or a read gives them.
    ///
    /// # Errors
    /// None for an entry that a reader made.
    pub fn layout(&self) -> Result<Layout> {
        self.spec.layout()
    }

    /// Whether the bytes lie in the file as they are, so that they can be mapped, and read from any place.
    pub fn is_stored(&self) -> bool {
        matches!(self.place, Place::Stored { .. })
    }

    /// Where in its file the first byte is, if [`Self::is_stored`].
    pub fn offset(&self) -> Option<u64> {
        match self.place {
            Place::Stored { offset, .. } => Some(offset),
            _ => None,
        }
    }
}

/// Refuses shapes of more dimensions than anybody has.
pub(crate) fn check_rank(rank: usize) -> Result<()> {
    if rank > MAX_DIMENSIONS {
        return Err(bad(format!(
            "a shape of {rank} dimensions; {MAX_DIMENSIONS} is the most that frameworks know"
        )));
    }
    Ok(())
}

/// A length out of a file as a dimension.
pub(crate) fn dimension(length: u64) -> Result<i64> {
    i64::try_from(length).map_err(|_| bad(format!("a dimension of length {length} overflows")))
}

/// What a writer asks of specs, whatever the format.
pub(crate) fn check_specs(specs: &[TensorSpec]) -> Result<()> {
    for spec in specs {
        if spec.shape.len() > MAX_DIMENSIONS {
            return Err(wrong(
                format!("{} dimensions are more than a file can hold", spec.shape.len()),
                format!("reshape it to {MAX_DIMENSIONS} or fewer"),
            ));
        }
        spec.layout()?;
    }
    Ok(())
}

/// What a writer asks of specs if its format knows one order of bytes and of dimensions.
pub(crate) fn check_plain(specs: &[TensorSpec], format: &str) -> Result<()> {
    for spec in specs {
        let (swapped, dense) =
            (spec.order != LITTLE && spec.dtype.swap_unit() > 1, spec.layout()?.is_dense());
        if swapped || !dense {
            let what = if swapped { "big-endian" } else { "in Fortran order" };
            return Err(wrong(
                format!("the tensor {} is {what}, which {format} does not know", quoted(&spec.name)),
                "convert it first",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fortran_order_has_strides_that_rise() {
        let mut spec = TensorSpec::new("", DType::Float32, &[2, 3, 4]);
        assert_eq!(spec.layout().unwrap().strides(), [48, 16, 4]);
        spec.fortran = true;
        assert_eq!(spec.layout().unwrap().strides(), [4, 8, 24]);
        spec.shape = vec![2, 0, 4];
        assert!(spec.layout().unwrap().is_empty());
    }

    #[test]
    fn too_few_and_too_many_bytes_are_named() {
        let place = Place::Stored { file: 0, offset: 0, member: None };
        let spec = TensorSpec::new("", DType::Int16, &[3]);
        let error = FileEntry::new(spec.clone(), 5, place.clone()).unwrap_err();
        assert_eq!(error.fact(), "int16 of shape [3] takes 6 bytes, and there are 5");
        assert!(FileEntry::new(spec.clone(), 7, place.clone()).is_err());
        assert!(FileEntry::new(spec, 6, place).is_ok());
    }

    #[test]
    fn one_byte_has_no_order() {
        let mut spec = TensorSpec::new("", DType::Int8, &[3]);
        spec.order = ByteOrder::Swapped;
        let entry = FileEntry::new(spec, 3, Place::Stored { file: 0, offset: 0, member: None }).unwrap();
        assert_eq!(entry.order(), ByteOrder::Native);
    }
}
