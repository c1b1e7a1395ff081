//! The two messages named TensorProto: their field numbers and type numbers.
//!
//! ONNX's and TensorFlow's messages share only the name. Field 2 distinguishes them: it is the type (a varint) in ONNX, and
//! the shape (a message) in TensorFlow.

use tensorferry_core::DType;

/// The library that defines a TensorProto.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// `onnx.TensorProto`.
    Onnx,
    /// `tensorflow.TensorProto`.
    TensorFlow,
}

/// The encoding of the values in a typed field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueEncoding {
    /// Varints. Small types are sign-extended, or stored as their bits.
    Varint,
    /// Four bytes each.
    Fixed32,
    /// Eight bytes each.
    Fixed64,
    /// One byte each, in a bytes field.
    Bytes,
}

use DType::*;

const ONNX_TYPES: [(u64, DType); 20] = [
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

const TENSORFLOW_TYPES: [(u64, DType); 22] = [
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
    /// The name in arguments and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Onnx => "onnx",
            Self::TensorFlow => "tensorflow",
        }
    }

    fn type_numbers(self) -> &'static [(u64, DType)] {
        match self {
            Self::Onnx => &ONNX_TYPES,
            Self::TensorFlow => &TENSORFLOW_TYPES,
        }
    }

    /// The element type with this number.
    pub(super) fn dtype(self, number: u64) -> Option<DType> {
        self.type_numbers().iter().find(|row| row.0 == number).map(|row| row.1)
    }

    /// The number of an element type; `None` where the message lacks the type or packs its elements.
    pub(super) fn type_number(self, dtype: DType) -> Option<u64> {
        self.type_numbers().iter().find(|row| row.1 == dtype).map(|row| row.0)
    }

    /// The field of the raw little-endian bytes: `raw_data` or `tensor_content`.
    pub(super) fn raw_field(self) -> u32 {
        match self {
            Self::Onnx => 9,
            Self::TensorFlow => 4,
        }
    }

    /// The typed fields: `float_data`, `int_val` and so on.
    pub(super) fn value_fields(self) -> &'static [u32] {
        match self {
            Self::Onnx => &[4, 5, 6, 7, 10, 11],
            Self::TensorFlow => &[5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18],
        }
    }

    /// The typed field for an element type, and its encoding.
    pub(super) fn value_field(self, dtype: DType) -> (u32, ValueEncoding) {
        match (self, dtype) {
            (Self::Onnx, Float32 | Complex64) => (4, ValueEncoding::Fixed32),
            (Self::Onnx, Float64 | Complex128) => (10, ValueEncoding::Fixed64),
            (Self::Onnx, Int64) => (7, ValueEncoding::Varint),
            (Self::Onnx, UInt32 | UInt64) => (11, ValueEncoding::Varint),
            (Self::Onnx, _) => (5, ValueEncoding::Varint),
            (Self::TensorFlow, Float32) => (5, ValueEncoding::Fixed32),
            (Self::TensorFlow, Float64) => (6, ValueEncoding::Fixed64),
            (Self::TensorFlow, Complex64) => (9, ValueEncoding::Fixed32),
            (Self::TensorFlow, Complex128) => (12, ValueEncoding::Fixed64),
            (Self::TensorFlow, Int64) => (10, ValueEncoding::Varint),
            (Self::TensorFlow, Bool) => (11, ValueEncoding::Varint),
            (Self::TensorFlow, Float16 | BFloat16) => (13, ValueEncoding::Varint),
            (Self::TensorFlow, UInt32) => (16, ValueEncoding::Varint),
            (Self::TensorFlow, UInt64) => (17, ValueEncoding::Varint),
            (Self::TensorFlow, dtype) if dtype.is_float8() => (18, ValueEncoding::Bytes),
            (Self::TensorFlow, _) => (7, ValueEncoding::Varint),
        }
    }
}
