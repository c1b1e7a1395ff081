//! Tree structures: the containers around published tensors, and the values beside them.
//!
//! A tree is encoded in a format of its own, one tag for each node. Both ends may run different versions and
//! frameworks, and nothing that another process sends may decide what is executed here, so pickles are not used. The
//! nodes are those that every Python knows. Numbers are little-endian, a container begins with its length, and each
//! tree has exactly one encoding.

use super::limits::{MAX_STRUCTURE_BYTES, MAX_TREE_DEPTH};
use super::reader::{Reader, check_limit};
use crate::errors::{invalid_argument, protocol_error};
use crate::hints;
use tensorferry_core::fallible::{try_collect, try_copy, try_push, try_reserve};
use tensorferry_core::{DType, Error, Result};

/// A tree of tensors and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeStructure {
    /// The tensor with this index.
    Tensor(u32),
    /// `None`.
    None,
    /// A boolean.
    Boolean(bool),
    /// An integer.
    Integer(i128),
    /// The bits of a float, so that NaN payloads survive.
    Float(u64),
    /// The bits of the real and the imaginary part.
    Complex(u64, u64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A scalar of a tensor element type, by its bytes.
    Scalar(DType, Vec<u8>),
    /// A list.
    List(Vec<TreeStructure>),
    /// A tuple.
    Tuple(Vec<TreeStructure>),
    /// Keys and values in order; the flag tells an ordered dictionary from an ordinary one.
    Dict(bool, Vec<(TreeStructure, TreeStructure)>),
}

impl TreeStructure {
    /// Encodes the tree.
    ///
    /// # Errors
    /// The tree is deeper than [`MAX_TREE_DEPTH`] levels or larger than [`MAX_STRUCTURE_BYTES`] bytes.
    pub fn write(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.write_node(&mut bytes, 0)?;
        if bytes.len() > MAX_STRUCTURE_BYTES {
            let fact = format!(
                "the tree around the tensors takes {} bytes; the limit is {} MiB",
                bytes.len(),
                MAX_STRUCTURE_BYTES >> 20
            );
            return Err(invalid_argument(fact, hints::PASS_LONG_VALUES_AS_TENSORS));
        }
        Ok(bytes)
    }

    fn write_node(&self, bytes: &mut Vec<u8>, depth: usize) -> Result<()> {
        if depth > MAX_TREE_DEPTH {
            let fact = format!("the tree is nested deeper than {MAX_TREE_DEPTH} levels");
            return Err(invalid_argument(fact, hints::CHECK_CONTAINER_CYCLES));
        }
        // Except for text and bytes, no node takes more than its tag and 16 bytes.
        try_reserve(bytes, 32)?;
        let mut write_long = |tag: u8, content: &[u8]| -> Result<()> {
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
            Self::Text(text) => write_long(6, text.as_bytes())?,
            Self::Bytes(content) => write_long(7, content)?,
            Self::Scalar(dtype, content) => {
                let (code, bits) = dtype.dlpack_code();
                bytes.extend([8, code, bits]);
                bytes.extend(content);
            }
            Self::List(items) | Self::Tuple(items) => {
                bytes.push(if matches!(self, Self::List(_)) { 9 } else { 10 });
                bytes.extend((items.len() as u32).to_le_bytes());
                items.iter().try_for_each(|item| item.write_node(bytes, depth + 1))?;
            }
            Self::Dict(ordered, items) => {
                bytes.push(if *ordered { 12 } else { 11 });
                bytes.extend((items.len() as u32).to_le_bytes());
                for (key, value) in items {
                    key.write_node(bytes, depth + 1)?;
                    value.write_node(bytes, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    /// Decodes a tree around `tensors` tensors.
    ///
    /// # Errors
    /// The bytes are not exactly one tree.
    pub fn read(bytes: &[u8], tensors: usize) -> Result<Self> {
        let mut reader = Reader(bytes);
        let structure = Self::read_node(&mut reader, tensors, 0)?;
        reader.finish("tree structure")?;
        Ok(structure)
    }

    fn read_node(reader: &mut Reader<'_>, tensors: usize, depth: usize) -> Result<Self> {
        check_limit("levels of nesting", depth, MAX_TREE_DEPTH)?;
        let tag = reader.u8()?;
        Ok(match tag {
            0 => match reader.u32()? {
                number if (number as usize) < tensors => Self::Tensor(number),
                number => {
                    let fact = format!("a tree refers to tensor {number}, but there are {tensors} tensors");
                    return Err(protocol_error(fact));
                }
            },
            1 => Self::None,
            2 => match reader.u8()? {
                value @ (0 | 1) => Self::Boolean(value == 1),
                other => return Err(protocol_error(format!("{other} is not a boolean"))),
            },
            3 => Self::Integer(i128::from_le_bytes(reader.array()?)),
            4 => Self::Float(reader.u64()?),
            5 => Self::Complex(reader.u64()?, reader.u64()?),
            6 => {
                let count = reader.count("bytes of text", MAX_STRUCTURE_BYTES, 1)?;
                let text = String::from_utf8(try_copy(reader.take(count)?)?);
                Self::Text(text.map_err(|_| protocol_error("a text in the tree is not UTF-8"))?)
            }
            7 => {
                let count = reader.count("bytes", MAX_STRUCTURE_BYTES, 1)?;
                Self::Bytes(try_copy(reader.take(count)?)?)
            }
            8 => {
                let (code, bits) = (reader.u8()?, reader.u8()?);
                let dtype = DType::from_dlpack_code(code, bits);
                let dtype =
                    dtype.ok_or_else(|| protocol_error("a scalar in the tree has an unknown type"))?;
                Self::Scalar(dtype, reader.take(dtype.size())?.to_vec())
            }
            9 | 10 => {
                let count = reader.count("items", MAX_STRUCTURE_BYTES, 1)?;
                let items = (0..count).map(|_| Self::read_node(reader, tensors, depth + 1));
                let items = try_collect::<_, Error>(items)?;
                if tag == 9 { Self::List(items) } else { Self::Tuple(items) }
            }
            11 | 12 => {
                let count = reader.count("items", MAX_STRUCTURE_BYTES, 2)?;
                let mut items = Vec::new();
                for _ in 0..count {
                    let key = Self::read_node(reader, tensors, depth + 1)?;
                    try_push(&mut items, (key, Self::read_node(reader, tensors, depth + 1)?))?;
                }
                Self::Dict(tag == 12, items)
            }
            other => return Err(protocol_error(format!("a tree contains the unknown node kind {other}"))),
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
            index in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut bytes = structure.write().unwrap();
            let index = index.index(bytes.len());
            bytes[index] = byte;
            if let Ok(read) = TreeStructure::read(&bytes, 5) {
                prop_assert_eq!(read.write().unwrap(), bytes);
            }
        }
    }

    #[test]
    fn malformed_trees_are_explained() {
        let fact = |bytes: &[u8]| TreeStructure::read(bytes, 2).unwrap_err().fact().to_owned();
        assert!(fact(&[]).contains("truncated"));
        assert!(fact(&[13]).contains("unknown node kind 13"));
        assert!(fact(&[0, 2, 0, 0, 0]).contains("tensor 2, but there are 2"));
        assert!(fact(&[2, 7]).contains("7 is not a boolean"));
        assert!(fact(&[1, 1]).contains("1 trailing byte"));
        assert!(fact(&[9, 255, 255, 255, 127]).contains("exceed the limit"));
        assert!(fact(&[6, 1, 0, 0, 0, 255]).contains("is not UTF-8"));
        assert!(fact(&[8, 200, 3]).contains("unknown type"));
        let deep: Vec<u8> = [9, 1, 0, 0, 0].into_iter().cycle().take(5 * 1000).collect();
        assert!(fact(&deep).contains("levels of nesting"));
    }

    #[test]
    fn deep_and_large_trees_are_not_encoded() {
        let deep = (0..200).fold(TreeStructure::None, |inner, _| TreeStructure::List(vec![inner]));
        assert!(deep.write().unwrap_err().fact().contains("deeper than 128 levels"));
        let long = TreeStructure::Bytes(vec![0; MAX_STRUCTURE_BYTES]);
        assert!(long.write().unwrap_err().fact().contains("the limit is 16 MiB"));
    }
}
