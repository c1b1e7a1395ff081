//! The element types with their names in every protocol, in one table.
//!
//! A [`DType`] is the format of one element. Elements narrower than a byte (4-bit integers, float6, float4) are stored one per
//! byte, as NumPy, JAX and TensorFlow do on the host. Imports reject packed formats with several elements per byte.

use std::fmt;

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "the variants are the names of the types themselves")]
#[non_exhaustive]
pub enum DType {
    Bool,
    Int4,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt4,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Float16,
    Float32,
    Float64,
    BFloat16,
    Float8E3M4,
    Float8E4M3,
    Float8E4M3B11Fnuz,
    Float8E4M3Fn,
    Float8E4M3Fnuz,
    Float8E5M2,
    Float8E5M2Fnuz,
    Float8E8M0Fnu,
    Float6E2M3Fn,
    Float6E3M2Fn,
    Float4E2M1Fn,
    Complex64,
    Complex128,
}

/// The kind of number of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DTypeKind {
    /// True or false.
    Bool,
    /// Two's complement integers.
    Signed,
    /// Integers from zero.
    Unsigned,
    /// Floating point numbers of any format.
    Float,
    /// Pairs of floating point numbers.
    Complex,
}

/// One row of the table.
struct Row {
    dtype: DType,
    name: &'static str,
    kind: DTypeKind,
    /// The significant bits.
    bits: u8,
    size: u8,
    dlpack: u8,
    /// The type string of the array interface without its byte order; `None` if NumPy needs `ml_dtypes`.
    typestr: Option<&'static str>,
    safetensors: Option<&'static str>,
}

macro_rules! rows {
    ($($dtype:ident $name:literal $kind:ident $bits:literal/$size:literal dlpack $code:literal, $typestr:expr, $safetensors:expr;)*) => {
        [$(Row {
            dtype: DType::$dtype, name: $name, kind: DTypeKind::$kind, bits: $bits, size: $size,
            dlpack: $code, typestr: $typestr, safetensors: $safetensors,
        }),*]
    };
}

const ROWS: [Row; DType::COUNT] = rows! {
    Bool              "bool"               Bool      8/1  dlpack 6,  Some("b1"),  Some("BOOL");
    Int4              "int4"               Signed    4/1  dlpack 0,  None,        None;
    Int8              "int8"               Signed    8/1  dlpack 0,  Some("i1"),  Some("I8");
    Int16             "int16"              Signed   16/2  dlpack 0,  Some("i2"),  Some("I16");
    Int32             "int32"              Signed   32/4  dlpack 0,  Some("i4"),  Some("I32");
    Int64             "int64"              Signed   64/8  dlpack 0,  Some("i8"),  Some("I64");
    UInt4             "uint4"              Unsigned  4/1  dlpack 1,  None,        None;
    UInt8             "uint8"              Unsigned  8/1  dlpack 1,  Some("u1"),  Some("U8");
    UInt16            "uint16"             Unsigned 16/2  dlpack 1,  Some("u2"),  Some("U16");
    UInt32            "uint32"             Unsigned 32/4  dlpack 1,  Some("u4"),  Some("U32");
    UInt64            "uint64"             Unsigned 64/8  dlpack 1,  Some("u8"),  Some("U64");
    Float16           "float16"            Float    16/2  dlpack 2,  Some("f2"),  Some("F16");
    Float32           "float32"            Float    32/4  dlpack 2,  Some("f4"),  Some("F32");
    Float64           "float64"            Float    64/8  dlpack 2,  Some("f8"),  Some("F64");
    BFloat16          "bfloat16"           Float    16/2  dlpack 4,  None,        Some("BF16");
    Float8E3M4        "float8_e3m4"        Float     8/1  dlpack 7,  None,        None;
    Float8E4M3        "float8_e4m3"        Float     8/1  dlpack 8,  None,        None;
    Float8E4M3B11Fnuz "float8_e4m3b11fnuz" Float     8/1  dlpack 9,  None,        None;
    Float8E4M3Fn      "float8_e4m3fn"      Float     8/1  dlpack 10, None,        Some("F8_E4M3");
    Float8E4M3Fnuz    "float8_e4m3fnuz"    Float     8/1  dlpack 11, None,        Some("F8_E4M3FNUZ");
    Float8E5M2        "float8_e5m2"        Float     8/1  dlpack 12, None,        Some("F8_E5M2");
    Float8E5M2Fnuz    "float8_e5m2fnuz"    Float     8/1  dlpack 13, None,        Some("F8_E5M2FNUZ");
    Float8E8M0Fnu     "float8_e8m0fnu"     Float     8/1  dlpack 14, None,        Some("F8_E8M0");
    Float6E2M3Fn      "float6_e2m3fn"      Float     6/1  dlpack 15, None,        None;
    Float6E3M2Fn      "float6_e3m2fn"      Float     6/1  dlpack 16, None,        None;
    Float4E2M1Fn      "float4_e2m1fn"      Float     4/1  dlpack 17, None,        None;
    Complex64         "complex64"          Complex  64/8  dlpack 5,  Some("c8"),  Some("C64");
    Complex128        "complex128"         Complex 128/16 dlpack 5,  Some("c16"), None;
};

impl DType {
    /// The number of types.
    #[doc(hidden)]
    pub const COUNT: usize = 28;

    /// Every type, in table order.
    pub fn all() -> impl ExactSizeIterator<Item = DType> {
        ROWS.iter().map(|row| row.dtype)
    }

    const fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// The name that users write and read; the same in NumPy, `ml_dtypes`, torch, JAX and TensorFlow.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The kind of number.
    pub const fn kind(self) -> DTypeKind {
        self.row().kind
    }

    /// The number of significant bits of an element.
    pub const fn bits(self) -> u8 {
        self.row().bits
    }

    /// The size of an element in memory, in bytes.
    pub const fn size(self) -> usize {
        self.row().size as usize
    }

    /// The alignment that the frameworks' C++ expects of a pointer to this type.
    ///
    /// Complex numbers are aligned to their whole size: PyTorch and Paddle declare them so, and their compiled code faults on
    /// less.
    pub const fn align(self) -> usize {
        self.size()
    }

    /// The unit of a byte swap: an element, or each half of a complex one.
    #[doc(hidden)]
    pub const fn swap_unit(self) -> usize {
        match self.kind() {
            DTypeKind::Complex => self.size() / 2,
            _ => self.size(),
        }
    }

    /// The type code and the bits in DLPack.
    pub const fn dlpack_code(self) -> (u8, u8) {
        (self.row().dlpack, self.row().bits)
    }

    /// The type with this DLPack code and this many bits, one lane.
    pub fn from_dlpack_code(code: u8, bits: u8) -> Option<Self> {
        ROWS.iter().find(|row| row.dlpack == code && row.bits == bits).map(|row| row.dtype)
    }

    /// NumPy's type string without the byte order (`"f4"`), or `None` if the type is not built into NumPy.
    #[doc(hidden)]
    pub const fn typestr(self) -> Option<&'static str> {
        self.row().typestr
    }

    /// The type with NumPy's kind letter and item size.
    #[doc(hidden)]
    pub fn from_typestr(kind: u8, size: usize) -> Option<Self> {
        // Called for every buffer: a jump table is faster than a search of the table.
        Some(match (kind, size) {
            (b'b', 1) => Self::Bool,
            (b'i', 1) => Self::Int8,
            (b'i', 2) => Self::Int16,
            (b'i', 4) => Self::Int32,
            (b'i', 8) => Self::Int64,
            (b'u', 1) => Self::UInt8,
            (b'u', 2) => Self::UInt16,
            (b'u', 4) => Self::UInt32,
            (b'u', 8) => Self::UInt64,
            (b'f', 2) => Self::Float16,
            (b'f', 4) => Self::Float32,
            (b'f', 8) => Self::Float64,
            (b'c', 8) => Self::Complex64,
            (b'c', 16) => Self::Complex128,
            _ => return None,
        })
    }

    /// The name in a safetensors header.
    pub const fn safetensors_name(self) -> Option<&'static str> {
        self.row().safetensors
    }

    /// The type with this safetensors name.
    pub fn from_safetensors_name(name: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.safetensors == Some(name)).map(|row| row.dtype)
    }

    /// The type with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.name == name).map(|row| row.dtype)
    }

    /// Whether it is one of the 8-bit floats.
    pub const fn is_float8(self) -> bool {
        matches!(self.kind(), DTypeKind::Float) && self.bits() == 8
    }

    /// The least and the greatest integer of the type, 0 and 1 for booleans; `None` for other types.
    #[doc(hidden)]
    pub const fn integer_range(self) -> Option<(i128, i128)> {
        let bits = self.bits() as u32;
        match self.kind() {
            DTypeKind::Bool => Some((0, 1)),
            DTypeKind::Signed => Some((-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
            DTypeKind::Unsigned => Some((0, (1 << bits) - 1)),
            DTypeKind::Float | DTypeKind::Complex => None,
        }
    }

    /// The type of half the width, which a framework without 64-bit types uses instead.
    #[doc(hidden)]
    pub const fn narrowed(self) -> Self {
        match self {
            DType::Int64 => DType::Int32,
            DType::UInt64 => DType::UInt32,
            DType::Float64 => DType::Float32,
            DType::Complex128 => DType::Complex64,
            other => other,
        }
    }

    /// An unsigned integer of the same size, for protocols that do not have the type.
    #[doc(hidden)]
    pub const fn bits_type(self) -> Option<Self> {
        match self.size() {
            1 => Some(DType::UInt8),
            2 => Some(DType::UInt16),
            4 => Some(DType::UInt32),
            8 => Some(DType::UInt64),
            _ => None,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DTypes(u64);

impl DTypes {
    /// No type.
    pub const NONE: Self = Self(0);

    /// The 8-bit floats.
    pub const FLOAT8: Self = {
        let mut set = Self::NONE;
        let mut i = 0;
        while i < DType::COUNT {
            if ROWS[i].dtype.is_float8() {
                set = set.with(Self::of(&[ROWS[i].dtype]));
            }
            i += 1;
        }
        set
    };

    /// Every type of the table.
    pub const ALL: Self = Self((1 << DType::COUNT) - 1);

    /// The set of these types.
    pub const fn of(types: &[DType]) -> Self {
        let mut set = 0;
        let mut i = 0;
        while i < types.len() {
            set |= 1 << types[i] as u64;
            i += 1;
        }
        Self(set)
    }

    /// Whether `dtype` is in the set.
    pub const fn contains(self, dtype: DType) -> bool {
        self.0 >> dtype as u64 & 1 == 1
    }

    /// The union of the sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The difference of the sets.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_at_their_own_index() {
        for (index, dtype) in DType::all().enumerate() {
            assert_eq!(dtype as usize, index);
            assert!(usize::from(dtype.bits()).div_ceil(8) == dtype.size());
            assert_eq!(dtype.size() % dtype.align(), 0);
        }
        assert_eq!(DType::all().len(), DType::COUNT);
    }

    #[test]
    fn every_code_and_name_reads_back() {
        for dtype in DType::all() {
            let (code, bits) = dtype.dlpack_code();
            assert_eq!(DType::from_dlpack_code(code, bits), Some(dtype));
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
            if let Some(text) = dtype.typestr() {
                assert_eq!(DType::from_typestr(text.as_bytes()[0], dtype.size()), Some(dtype));
                assert_eq!(text[1..].parse::<usize>().unwrap(), dtype.size());
            }
            if let Some(name) = dtype.safetensors_name() {
                assert_eq!(DType::from_safetensors_name(name), Some(dtype));
            }
        }
    }

    #[test]
    fn what_is_not_in_the_table_is_none() {
        assert_eq!(DType::from_dlpack_code(2, 128), None);
        assert_eq!(DType::from_dlpack_code(3, 64), None);
        assert_eq!(DType::from_typestr(b'U', 4), None);
        assert_eq!(DType::from_name("float"), None);
    }

    #[test]
    fn sets() {
        let set = DTypes::of(&[DType::Bool, DType::Complex128]);
        assert!(set.contains(DType::Bool) && set.contains(DType::Complex128) && !set.contains(DType::Int8));
        assert!(DType::all().all(|dtype| DTypes::ALL.contains(dtype) && !DTypes::NONE.contains(dtype)));
        assert!(!DTypes::ALL.without(set).contains(DType::Bool));
        assert_eq!(DType::all().filter(|dtype| DTypes::FLOAT8.contains(*dtype)).count(), 8);
    }
}
