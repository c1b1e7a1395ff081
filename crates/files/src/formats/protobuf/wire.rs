//! Protobuf's wire format: a reader over a range of a file, and encoders of fields.
//!
//! A message is a sequence of fields. Each is a key (field number and wire type) and a value: a varint, four or eight bytes,
//! or a length and that many bytes.
//!
//! [`WireReader`] reads through a small window and skips the bytes of long fields. A tensor of a gigabyte costs a few reads,
//! and the offset of its bytes is known for mapping. This is why prost is not used: its decoder copies every field.

use crate::errors::invalid_file;
use crate::reading::file_source::{ByteRange, FileSource};
use std::sync::Arc;
use tensorferry_core::Result;

/// The size of one read.
const WINDOW_BYTES: u64 = 8 << 10;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireValue {
    Varint(u64),
    Fixed32(u32),
    Fixed64(u64),
    /// The range of the file that holds the bytes.
    Bytes(ByteRange),
}

/// Reads fields and values from a range of a file.
#[derive(Debug)]
pub(super) struct WireReader {
    source: Arc<FileSource>,
    position: u64,
    end: u64,
    window: Vec<u8>,
    window_start: u64,
}

impl WireReader {
    /// A reader over a range that lies within the file.
    pub(super) fn new(source: Arc<FileSource>, range: ByteRange) -> Self {
        let end = range.start.saturating_add(range.length);
        Self { source, position: range.start, end, window: Vec::new(), window_start: 0 }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.position == self.end
    }

    fn read_byte(&mut self) -> Result<u8> {
        if self.position >= self.end {
            return Err(invalid_file("the message ends inside a field"));
        }
        if self.position.wrapping_sub(self.window_start) >= self.window.len() as u64 {
            let count = (self.end - self.position).min(WINDOW_BYTES);
            self.window = self.source.read_to_vec(self.position, count as usize)?;
            self.window_start = self.position;
        }
        let byte = self.window[(self.position - self.window_start) as usize];
        self.position += 1;
        Ok(byte)
    }

    pub(super) fn read_varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.read_byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(invalid_file("a varint of the message has more than 64 bits"))
    }

    pub(super) fn read_fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = self.read_byte()?;
        }
        Ok(bytes)
    }

    /// The number and value of the next field; `None` at the end.
    pub(super) fn read_field(&mut self) -> Result<Option<(u32, WireValue)>> {
        if self.is_at_end() {
            return Ok(None);
        }
        let key = self.read_varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|number| (1..1 << 29).contains(number));
        let number =
            number.ok_or_else(|| invalid_file(format!("{} is not a valid field number", key >> 3)))?;
        let value = match key & 7 {
            0 => WireValue::Varint(self.read_varint()?),
            1 => WireValue::Fixed64(u64::from_le_bytes(self.read_fixed()?)),
            2 => {
                let length = self.read_varint()?;
                let start = self.position;
                let left = self.end - start;
                if length > left {
                    return Err(invalid_file(format!(
                        "field {number} declares {length} bytes, and {left} are left"
                    )));
                }
                self.position += length;
                WireValue::Bytes(ByteRange { start, length })
            }
            5 => WireValue::Fixed32(u32::from_le_bytes(self.read_fixed()?)),
            wire_type => {
                return Err(invalid_file(format!("field {number} has the unknown wire type {wire_type}")));
            }
        };
        Ok(Some((number, value)))
    }
}

fn write_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends a varint field.
pub(super) fn write_varint_field(bytes: &mut Vec<u8>, number: u32, value: u64) {
    write_varint(bytes, u64::from(number) << 3);
    write_varint(bytes, value);
}

/// Appends the key and length of a bytes field.
pub(super) fn write_bytes_key(bytes: &mut Vec<u8>, number: u32, length: u64) {
    write_varint(bytes, u64::from(number) << 3 | 2);
    write_varint(bytes, length);
}
