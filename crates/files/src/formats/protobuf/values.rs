//! Decoding of the values in a typed field of a TensorProto.

use super::dialect::ValueEncoding;
use super::wire::{WireReader, WireValue};
use crate::entry::EncodedValues;
use crate::errors::invalid_file;
use crate::reading::file_source::FileSource;
use std::mem::MaybeUninit;
use std::sync::Arc;
use tensorferry_core::dtype::DTypeKind;
use tensorferry_core::{DType, Result};

/// The number of values that make an element.
pub(super) fn values_per_element(dtype: DType) -> u64 {
    if dtype.kind() == DTypeKind::Complex { 2 } else { 1 }
}

/// Counts the values of the field, and validates their wire types.
pub(super) fn count_values(values: &EncodedValues, source: &Arc<FileSource>) -> Result<u64> {
    let mut fields = WireReader::new(source.clone(), values.message);
    let mut count = 0;
    while let Some((number, value)) = fields.read_field()? {
        if number != values.field {
            continue;
        }
        count += match (values.encoding, value) {
            (ValueEncoding::Varint, WireValue::Varint(_))
            | (ValueEncoding::Fixed32, WireValue::Fixed32(_))
            | (ValueEncoding::Fixed64, WireValue::Fixed64(_)) => 1,
            (ValueEncoding::Bytes, WireValue::Bytes(range)) => range.length,
            (ValueEncoding::Fixed32, WireValue::Bytes(range)) if range.length.is_multiple_of(4) => {
                range.length / 4
            }
            (ValueEncoding::Fixed64, WireValue::Bytes(range)) if range.length.is_multiple_of(8) => {
                range.length / 8
            }
            (ValueEncoding::Varint, WireValue::Bytes(range)) => {
                let mut packed = WireReader::new(source.clone(), range);
                let mut count = 0;
                while !packed.is_at_end() {
                    packed.read_varint()?;
                    count += 1;
                }
                count
            }
            _ => {
                return Err(invalid_file(format!("field {number} has an unexpected wire type or length")));
            }
        };
    }
    Ok(count)
}

/// Decodes values, in order, to the bytes of elements.
pub(crate) struct ValueDecoder {
    source: Arc<FileSource>,
    values: EncodedValues,
    dtype: DType,
    fields: WireReader,
    packed: Option<WireReader>,
    decoded: u64,
    /// The current element, and the number of its bytes that are not yet returned.
    element: [u8; 16],
    element_bytes_left: usize,
}

impl ValueDecoder {
    pub(crate) fn new(source: Arc<FileSource>, values: EncodedValues, dtype: DType) -> Self {
        let fields = WireReader::new(source.clone(), values.message);
        Self {
            source,
            values,
            dtype,
            fields,
            packed: None,
            decoded: 0,
            element: [0; 16],
            element_bytes_left: 0,
        }
    }

    /// Fills all of `out` with the next bytes.
    pub(crate) fn read(&mut self, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        let size = self.dtype.size();
        for byte in out {
            if self.element_bytes_left == 0 {
                self.decode_element()?;
                self.element_bytes_left = size;
            }
            byte.write(self.element[size - self.element_bytes_left]);
            self.element_bytes_left -= 1;
        }
        Ok(())
    }

    /// Decodes the next element. After the last value, the last element repeats.
    fn decode_element(&mut self) -> Result<()> {
        if self.decoded == self.values.count {
            return Ok(());
        }
        let count = values_per_element(self.dtype) as usize;
        let size = self.dtype.size() / count;
        for index in 0..count {
            let value = self.decode_value()?;
            self.element[index * size..][..size].copy_from_slice(&value[..size]);
            self.decoded += 1;
        }
        Ok(())
    }

    fn decode_value(&mut self) -> Result<[u8; 8]> {
        loop {
            if let Some(packed) = &mut self.packed {
                if !packed.is_at_end() {
                    let mut value = [0; 8];
                    match self.values.encoding {
                        ValueEncoding::Varint => return narrow(packed.read_varint()?, self.dtype),
                        ValueEncoding::Fixed32 => value[..4].copy_from_slice(&packed.read_fixed::<4>()?),
                        ValueEncoding::Fixed64 => value = packed.read_fixed()?,
                        ValueEncoding::Bytes => value[..1].copy_from_slice(&packed.read_fixed::<1>()?),
                    }
                    return Ok(value);
                }
                self.packed = None;
            }
            match self.fields.read_field()? {
                Some((number, _)) if number != self.values.field => {}
                Some((_, WireValue::Bytes(range))) => {
                    self.packed = Some(WireReader::new(self.source.clone(), range));
                }
                Some((_, WireValue::Varint(value))) => return narrow(value, self.dtype),
                Some((_, WireValue::Fixed32(value))) => return Ok(u64::from(value).to_le_bytes()),
                Some((_, WireValue::Fixed64(value))) => return Ok(value.to_le_bytes()),
                None => return Err(invalid_file("the message ends before its last value")),
            }
        }
    }
}

/// The bytes of a varint in the element type, if it is in range.
fn narrow(value: u64, dtype: DType) -> Result<[u8; 8]> {
    let bits = u32::from(dtype.bits());
    let is_in_range = match dtype.kind() {
        DTypeKind::Bool => value <= 1,
        DTypeKind::Signed if bits < 64 => {
            let (value, bound) = (value as i64, 1i64 << (bits - 1));
            (-bound..bound).contains(&value)
        }
        DTypeKind::Signed => true,
        _ => bits >= 64 || value >> bits == 0,
    };
    if !is_in_range {
        return Err(invalid_file(format!("the value {} is out of range for {dtype}", value as i64)));
    }
    Ok(value.to_le_bytes())
}
