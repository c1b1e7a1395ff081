//! How published tensors belong together: containers, and the plain values beside the tensors.
//!
//! A structure goes over the socket as bytes in a form of its own, one tag for each node, because both ends may be programs
//! of different versions and frameworks, and because nothing that comes from another process may decide what is executed
//! here. So there are only nodes that every Python knows. Numbers are little-endian; a container says how many nodes
//! follow. One structure has one form.

use crate::errors::{broken, wrong};
use crate::protocol::{MAX_STRUCTURE_BYTES, Reader, bound};
use tensorferry_core::fallible::{try_collect, try_copy, try_push, try_reserve};
use tensorferry_core::{DType, Error, Result};

/// Deeper than this is refused. Reading recurses.
pub const MAX_DEPTH: usize = 128;

/// A tree of tensors and plain values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeStructure {
    /// The tensor of this number.
    Tensor(u32),
    /// Nothing.
    None,
    /// True or false.
    Boolean(bool),
    /// A whole number.
    Integer(i128),
    /// The bits of a number, so that every NaN stays itself.
    Float(u64),
    /// The bits of both parts of a number.
    Complex(u64, u64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A number of one of our types, by its bytes.
    Scalar(DType, Vec<u8>),
    /// Several, in order.
    List(Vec<TreeStructure>),
    /// The same, and immutable.
    Tuple(Vec<TreeStructure>),
    /// Several by keys, in order; the flag tells whether its type makes a point of the order.
    Dict(bool, Vec<(TreeStructure, TreeStructure)>),
}

impl TreeStructure {
    /// The structure as bytes.
    ///
    /// # Errors
    /// When it is deeper or larger than may be.
    pub fn write(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.put(&mut bytes, 0)?;
        if bytes.len() > MAX_STRUCTURE_BYTES {
            let fact = format!("the tree around the tensors takes {} bytes", bytes.len());
            return Err(wrong(
                fact + ", and at most 16 MiB go with a ticket",
                "pass long texts and bytes as tensors",
            ));
        }
        Ok(bytes)
    }

    fn put(&self, bytes: &mut Vec<u8>, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(wrong("the tree is nested too deep", "check that no container holds itself"));
        }
        // No other node takes more than its tag and 16 bytes.
        try_reserve(bytes, 32)?;
        let mut long = |tag: u8, content: &[u8]| -> Result<()> {
            try_reserve(bytes, 5 + content.len())?;
            bytes.push(tag);
            bytes.extend((content.len() as u32).to_le_bytes());
            bytes.extend(content);
            Ok(())
        };
        match self {
            Self::Tensor(number) => {
                bytes.push(0);
                bytes.extend(number.to_le_bytes());
            }
            Self::None => bytes.push(1),
            Self::Boolean(value) => bytes.extend([2, u8::from(*value)]),
            Self::Integer(value) => {
                bytes.push(3);
                bytes.extend(value.to_le_bytes());
            }
            Self::Float(bits) => {
                bytes.push(4);
                bytes.extend(bits.to_le_bytes());
            }
            Self::Complex(real, imaginary) => {
                bytes.push(5);
                bytes.extend(real.to_le_bytes());
                bytes.extend(imaginary.to_le_bytes());
            }
            Self::Text(text) => long(6, text.as_bytes())?,
            Self::Bytes(content) => long(7, content)?,
            Self::Scalar(dtype, content) => {
                let (code, bits) = dtype.dlpack_code();
                bytes.extend([8, code, bits]);
                bytes.extend(content);
            }
            Self::List(items) | Self::Tuple(items) => {
                bytes.push(if matches!(self, Self::List(_)) { 9 } else { 10 });
                bytes.extend((items.len() as u32).to_le_bytes());
                items.iter().try_for_each(|item| item.put(bytes, depth + 1))?;
            }
            Self::Dict(ordered, items) => {
                bytes.push(if *ordered { 12 } else { 11 });
                bytes.extend((items.len() as u32).to_le_bytes());
                for (key, value) in items {
                    key.put(bytes, depth + 1)?;
                    value.put(bytes, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    /// A structure around so many tensors, out of its bytes.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(bytes: &[u8], tensors: usize) -> Result<Self> {
        let mut reader = Reader(bytes);
        let structure = Self::node(&mut reader, tensors, 0)?;
        if reader.0.is_empty() {
            return Ok(structure);
        }
        Err(broken(format!("{} bytes follow the structure of the tensors", reader.0.len())))
    }

    fn node(reader: &mut Reader<'_>, tensors: usize, depth: usize) -> Result<Self> {
        bound("levels of nesting", depth, MAX_DEPTH)?;
        let tag = reader.u8()?;
        Ok(match tag {
            0 => match reader.u32()? {
                number if (number as usize) < tensors => Self::Tensor(number),
                number => return Err(broken(format!("a tree names tensor {number} of {tensors}"))),
            },
            1 => Self::None,
            2 => match reader.u8()? {
                value @ (0 | 1) => Self::Boolean(value == 1),
                other => return Err(broken(format!("{other} is neither true nor false"))),
            },
            3 => Self::Integer(i128::from_le_bytes(reader.array()?)),
            4 => Self::Float(reader.u64()?),
            5 => Self::Complex(reader.u64()?, reader.u64()?),
            6 => {
                let count = reader.count("letters", MAX_STRUCTURE_BYTES, 1)?;
                let text = String::from_utf8(try_copy(reader.take(count)?)?);
                Self::Text(text.map_err(|_| broken("a text in the tree is none"))?)
            }
            7 => {
                let count = reader.count("bytes", MAX_STRUCTURE_BYTES, 1)?;
                Self::Bytes(try_copy(reader.take(count)?)?)
            }
            8 => {
                let (code, bits) = (reader.u8()?, reader.u8()?);
                let dtype = DType::from_dlpack_code(code, bits);
                let dtype = dtype.ok_or_else(|| broken("a number in the tree is of an unknown type"))?;
                Self::Scalar(dtype, reader.take(dtype.size())?.to_vec())
            }
            9 | 10 => {
                let count = reader.count("items", MAX_STRUCTURE_BYTES, 1)?;
                let items = (0..count).map(|_| Self::node(reader, tensors, depth + 1));
                let items = try_collect::<_, Error>(items)?;
                if tag == 9 { Self::List(items) } else { Self::Tuple(items) }
            }
            11 | 12 => {
                let count = reader.count("items", MAX_STRUCTURE_BYTES, 2)?;
                let mut items = Vec::new();
                for _ in 0..count {
                    let key = Self::node(reader, tensors, depth + 1)?;
                    try_push(&mut items, (key, Self::node(reader, tensors, depth + 1)?))?;
                }
                Self::Dict(tag == 12, items)
            }
            other => return Err(broken(format!("a tree has a node of the unknown kind {other}"))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_structure() -> impl Strategy<Value = TreeStructure> {
        let leaf = prop_oneof![
            (0..5u32).prop_map(TreeStructure::Tensor),
            Just(TreeStructure::None),
            any::<bool>().prop_map(TreeStructure::Boolean),
            any::<i128>().prop_map(TreeStructure::Integer),
            any::<u64>().prop_map(TreeStructure::Float),
            any::<(u64, u64)>().prop_map(|(real, imaginary)| TreeStructure::Complex(real, imaginary)),
            ".{0,9}".prop_map(TreeStructure::Text),
            proptest::collection::vec(any::<u8>(), 0..9).prop_map(TreeStructure::Bytes),
            any::<[u8; 2]>().prop_map(|bytes| TreeStructure::Scalar(DType::BFloat16, bytes.to_vec())),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            let pair = (inner.clone(), inner.clone());
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(TreeStructure::List),
                proptest::collection::vec(inner, 0..5).prop_map(TreeStructure::Tuple),
                (any::<bool>(), proptest::collection::vec(pair, 0..5))
                    .prop_map(|(ordered, items)| TreeStructure::Dict(ordered, items)),
            ]
        })
    }

    proptest! {
        #[test]
        fn structures_read_back(structure in any_structure()) {
            let bytes = structure.write().unwrap();
            prop_assert_eq!(&TreeStructure::read(&bytes, 5).unwrap(), &structure);
            for length in 0..bytes.len() {
                prop_assert!(TreeStructure::read(&bytes[..length], 5).is_err());
            }
        }

        #[test]
        fn any_bytes_are_a_structure_or_an_error(
            structure in any_structure(),
            place in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut bytes = structure.write().unwrap();
            let place = place.index(bytes.len());
            bytes[place] = byte;
            if let Ok(read) = TreeStructure::read(&bytes, 5) {
                prop_assert_eq!(read.write().unwrap(), bytes);
            }
        }
    }

    #[test]
    fn nonsense_is_named() {
        let fact = |bytes: &[u8]| TreeStructure::read(bytes, 2).unwrap_err().fact().to_owned();
        assert!(fact(&[]).contains("early"));
        assert!(fact(&[13]).contains("unknown kind 13"));
        assert!(fact(&[0, 2, 0, 0, 0]).contains("tensor 2 of 2"));
        assert!(fact(&[2, 7]).contains("neither"));
        assert!(fact(&[1, 1]).contains("1 bytes follow"));
        assert!(fact(&[9, 255, 255, 255, 127]).contains("more than"));
        assert!(fact(&[6, 1, 0, 0, 0, 255]).contains("is none"));
        assert!(fact(&[8, 200, 3]).contains("unknown type"));
        let deep: Vec<u8> = [9, 1, 0, 0, 0].into_iter().cycle().take(5 * 1000).collect();
        assert!(fact(&deep).contains("levels of nesting"));
    }

    #[test]
    fn what_is_too_deep_or_too_long_is_not_written() {
        let deep = (0..200).fold(TreeStructure::None, |inner, _| TreeStructure::List(vec![inner]));
        assert!(deep.write().unwrap_err().fact().contains("nested too deep"));
        let long = TreeStructure::Bytes(vec![0; MAX_STRUCTURE_BYTES]);
        assert!(long.write().unwrap_err().fact().contains("at most 16 MiB"));
    }
}
