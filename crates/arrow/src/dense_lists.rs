//! Lists that all have one length, as an axis of a tensor.

use crate::array::{Array, Content};
use crate::hints;
use crate::ragged::list_elements;
use crate::schema::{Column, Field};
use tensorferry_core::{Error, ErrorKind, Result};

/// A column whose lists, at any level, are tensors. Other columns stay as they are.
///
/// # Errors
/// When lists have different lengths, or are null.
pub fn dense_lists(field: &Field, chunks: Vec<Array>) -> Result<(Field, Vec<Array>)> {
    let (child, count, shape, strides, children) = match &field.column {
        Column::Lists { child, .. } => {
            let children = list_elements(&chunks)?;
            let count = common_length(&chunks)?;
            (child, count, vec![count as i64], vec![1], children)
        }
        Column::Tensors { child, count, shape, strides } => {
            let children = chunks.iter().filter_map(|chunk| match chunk.content() {
                Content::Tensors { child, .. } => Some((**child).clone()),
                _ => None,
            });
            (child, *count, shape.clone(), strides.clone(), children.collect())
        }
        _ => return Ok((field.clone(), chunks)),
    };
    let (child, children) = dense_lists(child, children)?;
    let column =
        Column::Tensors { child: Box::new(child), count, shape: shape.clone(), strides: strides.clone() };
    let tensors = chunks.iter().zip(children).map(|(chunk, child)| {
        let content = Content::Tensors {
            child: Box::new(child),
            count,
            shape: shape.clone(),
            strides: strides.clone(),
        };
        chunk.with_content(content)
    });
    let chunks = tensors.collect();
    Ok((Field { name: field.name.clone(), column }, chunks))
}

/// The length that all lists have; zero without lists.
fn common_length(chunks: &[Array]) -> Result<usize> {
    let different = |lengths: String| {
        let fact = format!("the lists of the column have different lengths{lengths}");
        Error::new(ErrorKind::UnsupportedLayout, fact).with_hint(hints::PAD_LISTS)
    };
    let mut length: Option<usize> = None;
    for chunk in chunks {
        let Content::Lists { offsets, .. } = chunk.content() else { continue };
        if !offsets.is_empty() {
            let found = offsets.common_length().ok_or_else(|| different(String::new()))?;
            if let Some(first) = length.replace(found)
                && first != found
            {
                return Err(different(format!(", such as {first} and {found}")));
            }
        }
    }
    Ok(length.unwrap_or(0))
}
