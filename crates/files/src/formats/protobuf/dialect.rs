//! The two messages called TensorProto: which numbers their fields and types have.
//!
//! ONNX's and TensorFlow's have nothing in common but the name. Field 2 tells them apart: ONNX's is the type, a number,
//! and TensorFlow's the shape, a message.

use tensorferry_core::DType;

/// Whose TensorProto it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `onnx.TensorProto`.
    Onnx,
    /// `tensorflow.TensorProto`.
    TensorFlow,
}

/// How the values of a typed field are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// As varints; small types sign-extended, or as their bits.
    Varint,
    /// As four bytes each.
    Four,
    /// As eight bytes each.
    Eight,
    /// As one byte each, in one field of bytes.
    One,
}

use DType::*;

const ONNX: [(u64, DType); 20] = [
    (1, Float32),
    (2, UInt8),
    (3, Int8),
    (4, UInt16),
    (5, Int16),
    (6, Int32),
    (7, Int64),
    (9, Bool),
    (10, Float16),
    (11, Float64),
    (12, UInt32),
    (13, UInt64),
    (14, Complex64),
    (15, Complex128),
    (16, BFloat16),
    (17, Float8E4M3Fn),
    (18, Float8E4M3Fnuz),
    (19, Float8E5M2),
    (20, Float8E5M2Fnuz),
    (24, Float8E8M0Fnu),
];

const TENSORFLOW: [(u64, DType); 22] = [
    (1, Float32),
    (2, Float64),
    (3, Int32),
    (4, UInt8),
    (5, Int16),
    (6, Int8),
    (8, Complex64),
    (9, Int64),
    (10, Bool),
    (14, BFloat16),
    (17, UInt16),
    (18, Complex128),
    (19, Float16),
    (22, UInt32),
    (23, UInt64),
    (24, Float8E5M2),
    (25, Float8E4M3Fn),
    (26, Float8E4M3Fnuz),
    (27, Float8E4M3B11Fnuz),
    (28, Float8E5M2Fnuz),
    (29, Int4),
    (30, UInt4),
];

impl Dialect {
    /// The name that users write and read.
    pub fn name(self) -> &'static str {
        match self {
            Self::Onnx => "onnx",
            Self::TensorFlow => "tensorflow",
        }
    }

    fn types(self) -> &'static [(u64, DType)] {
        match self {
            Self::Onnx => &ONNX,
            Self::TensorFlow => &TENSORFLOW,
        }
    }

    /// The type with this number.
    pub(crate) fn dtype(self, code: u64) -> Option<DType> {
        self.types().iter().find(|row| row.0 == code).map(|row| row.1)
    }

    /// The number of a type; `None` where the message has none, or packs its elements.
    pub(crate) fn code(self, dtype: DType) -> Option<u64> {
        self.types().iter().find(|row| row.1 == dtype).map(|row| row.0)
    }

    /// The field of the bytes as they are.
    pub(crate) fn raw(self) -> u32 {
        match self {
            Self::Onnx => 9,
            Self::TensorFlow => 4,
        }
    }

    /// The fields that may hold values.
    pub(crate) fn value_fields(self) -> &'static [u32] {
        match self {
            Self::Onnx => &[4, 5, 6, 7, 10, 11],
            Self::TensorFlow => &[5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18],
        }
    }

    /// The field for the values of a type, and how they are written there.
    pub(crate) fn values(self, dtype: DType) -> (u32, Written) {
        match (self, dtype) {
            (Self::Onnx, Float32 | Complex64) => (4, Written::Four),
            (Self::Onnx, Float64 | Complex128) => (10, Written::Eight),
            (Self::Onnx, Int64) => (7, Written::Varint),
            (Self::Onnx, UInt32 | UInt64) => (11, Written::Varint),
            (Self::Onnx, _) => (5, Written::Varint),
            (Self::TensorFlow, Float32) => (5, Written::Four),
            (Self::TensorFlow, Float64) => (6, Written::Eight),
            (Self::TensorFlow, Complex64) => (9, Written::Four),
            (Self::TensorFlow, Complex128) => (12, Written::Eight),
            (Self::TensorFlow, Int64) => (10, Written::Varint),
            (Self::TensorFlow, Bool) => (11, Written::Varint),
            (Self::TensorFlow, Float16 | BFloat16) => (13, Written::Varint),
            (Self::TensorFlow, UInt32) => (16, Written::Varint),
            (Self::TensorFlow, UInt64) => (17, Written::Varint),
            (Self::TensorFlow, dtype) if dtype.is_float8() => (18, Written::One),
            (Self::TensorFlow, _) => (7, Written::Varint),
        }
    }
}
