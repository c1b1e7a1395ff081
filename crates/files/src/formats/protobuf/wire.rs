//! Protobuf's wire format, walked in a file without reading what is not needed.
//!
//! A message is fields, each a key (number and wire type) and a value: a varint, four or eight bytes, or a length and that
//! many bytes. The walker reads through a small window and steps over the bytes of long fields, so that a tensor of a
//! gigabyte costs a few reads, and where its bytes are is known for a map. That is why this is not prost, whose decoder
//! copies every field; what is left of it then is the varint below.

use crate::fault::bad;
use crate::source::FileSource;
use std::sync::Arc;
use tensorferry_core::Result;

/// Bytes that are read at a time.
const WINDOW: u64 = 8 << 10;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Varint(u64),
    Fixed32(u32),
    Fixed64(u64),
    /// Where in the file its bytes are.
    Bytes(Range),
}

/// Some bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) length: u64,
}

/// Goes through a range of a file.
#[derive(Debug)]
pub(crate) struct Walker {
    source: Arc<FileSource>,
    at: u64,
    end: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl Walker {
    /// A walker over a range that lies in the file.
    pub(crate) fn new(source: Arc<FileSource>, range: Range) -> Self {
        let end = range.start.saturating_add(range.length);
        Self { source, at: range.start, end, window: Vec::new(), window_at: 0 }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.at == self.end
    }

    fn byte(&mut self) -> Result<u8> {
        if self.at >= self.end {
            return Err(bad("a field of the message ends before its value does"));
        }
        if self.at.wrapping_sub(self.window_at) >= self.window.len() as u64 {
            let count = (self.end - self.at).min(WINDOW);
            self.window = self.source.bytes(self.at, count as usize)?;
            self.window_at = self.at;
        }
        let byte = self.window[(self.at - self.window_at) as usize];
        self.at += 1;
        Ok(byte)
    }

    pub(crate) fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(bad("a number of the message has more than 64 bits"))
    }

    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = self.byte()?;
        }
        Ok(bytes)
    }

    /// The next field's number and value; `None` at the end.
    pub(crate) fn field(&mut self) -> Result<Option<(u32, Wire)>> {
        if self.is_done() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|number| (1..1 << 29).contains(number));
        let number =
            number.ok_or_else(|| bad(format!("the message has a field of the number {}", key >> 3)))?;
        let value = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.fixed()?)),
            2 => {
                let length = self.varint()?;
                let start = self.at;
                if length > self.end - start {
                    return Err(bad(format!(
                        "field {number} of the message has {length} bytes, and {} are left",
                        self.end - start
                    )));
                }
                self.at += length;
                Wire::Bytes(Range { start, length })
            }
            5 => Wire::Fixed32(u32::from_le_bytes(self.fixed()?)),
            kind => {
                return Err(bad(format!(
                    "field {number} of the message has the wire type {kind}, which is none"
                )));
            }
        };
        Ok(Some((number, value)))
    }
}

/// Appends a varint.
pub(crate) fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends a field that is a number.
pub(crate) fn put_number(bytes: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(bytes, u64::from(number) << 3);
    put_varint(bytes, value);
}

/// Appends the beginning of a field that is bytes.
pub(crate) fn put_length(bytes: &mut Vec<u8>, number: u32, length: u64) {
    put_varint(bytes, u64::from(number) << 3 | 2);
    put_varint(bytes, length);
}
