//! Columns as tensors: their type, their shape, and what nulls and lists become.

use super::column::{ColumnValues, Fill};
use super::options::{ArrowOptions, Nulls, Ragged};
use crate::errors::{Result, fail};
use tensorferry_arrow::{Array, Column, Field, PaddedLists, count_nulls, dense_lists};
use tensorferry_core::dtype::DTypeKind;
use tensorferry_core::plan::count_noun;
use tensorferry_core::{DType, ErrorKind};

/// A column whose type has a tensor.
pub(super) struct Prepared {
    pub(super) dtype: DType,
    pub(super) shape: Vec<i64>,
    /// The chunks with what nulls become.
    pub(super) values: ColumnValues,
    /// The lists whose elements the values are, and the number that pads them.
    pub(super) padding: Option<(PaddedLists, Fill)>,
}

/// Gives a column the type and the shape of its tensor, as the options say.
pub(super) fn prepare(field: &Field, chunks: Vec<Array>, options: &ArrowOptions) -> Result<Prepared> {
    let unsupported =
        |fact: &str, hint: &'static str| Err(fail(ErrorKind::UnsupportedDType, fact.to_owned(), hint));
    let padded = match options.ragged {
        Ragged::Dense(Some(pad)) => PaddedLists::new(field, &chunks)?.map(|lists| (lists, pad)),
        _ => None,
    };
    let (field, chunks, padding) = match padded {
        Some(((lists, field, elements), pad)) => (field, elements, Some((lists, pad))),
        None if matches!(options.ragged, Ragged::Dense(_)) => {
            let (field, chunks) = dense_lists(field, chunks)?;
            (field, chunks, None)
        }
        None => (field.clone(), chunks, None),
    };
    let (field, chunks) = match &field.base().column {
        Column::Lists { .. } => {
            return unsupported(
                "a column of lists has no tensor",
                "pass ragged= to ferry.arrow.to: \"dense\" for lists of one length, with pad= for others, or \"offsets\"",
            );
        }
        Column::Dictionary { codes, .. } if !options.is_decoded => {
            if chunks.iter().any(|chunk| chunk.dictionary_identity() != chunks[0].dictionary_identity()) {
                return unsupported(
                    "the chunks of the column have different dictionaries, so that their codes differ in meaning",
                    "unify them first: table.unify_dictionaries() in pyarrow",
                );
            }
            (field.with_base(Column::Numbers(*codes)), chunks.iter().map(Array::codes).collect())
        }
        Column::Dictionary { values, .. } if field.dtype().is_none() => {
            let name = if let Column::Unsupported { name, .. } = values.column { name } else { "nested" };
            return unsupported(
                &format!("a dictionary of {name} values has no tensor"),
                "pass dictionary=\"codes\" to ferry.arrow.to for its codes",
            );
        }
        Column::Nulls => {
            return unsupported("a column of nulls has no element type", "leave the column out, or cast it");
        }
        _ => (field, chunks),
    };
    if !options.has_times
        && let Some(unit) = field.time_unit()
    {
        return unsupported(
            &format!("a column of type {unit} has no tensor"),
            "pass temporal=\"integer\" to ferry.arrow.to for its integers",
        );
    }
    let Some(dtype) = field.dtype() else {
        return Err(match &field.column {
            Column::Unsupported { name, advice } => Column::unsupported(name, advice).into(),
            _ => Column::unsupported("nested", "flatten the column, or leave it out").into(),
        });
    };
    let rows = chunks.iter().map(Array::len).sum::<usize>() as i64;
    let leading = padding.as_ref().map_or_else(|| vec![rows], |(lists, _)| lists.shape());
    let shape = [leading, field.row_shape()].concat();
    let result = options.dtype.unwrap_or(dtype);
    let fill = fill_for(&chunks, result, options.nulls)?;
    if let Some((_, pad)) = padding {
        check_number("pad", pad, result)?;
    }
    // Empty chunks would make one chunk look like several.
    let mut chunks = chunks;
    if chunks.len() > 1 {
        let has_rows = chunks.iter().any(|chunk| !chunk.is_empty());
        let mut is_first = true;
        chunks.retain(|chunk| if has_rows { !chunk.is_empty() } else { std::mem::take(&mut is_first) });
    }
    Ok(Prepared { dtype, shape, values: ColumnValues { chunks, fill }, padding })
}

/// What nulls become in a result of this type; `None` for a column without nulls, or if a mask says which they are.
fn fill_for(chunks: &[Array], dtype: DType, nulls: Nulls) -> Result<Option<Fill>> {
    let fill = match nulls {
        Nulls::Mask => return Ok(None),
        Nulls::Nan if !matches!(dtype.kind(), DTypeKind::Float) => {
            // Without nulls there is nothing to refuse.
            return match count_nulls(chunks)? {
                0 => Ok(None),
                _ => Err(fail(
                    ErrorKind::InvalidArgument,
                    format!("nulls=\"nan\" is for floats, and the result is {dtype}"),
                    "pass a number or \"mask\" for nulls",
                )),
            };
        }
        Nulls::Error => Fill::ZERO,
        Nulls::Nan => Fill::Float(f64::NAN),
        Nulls::Number(number) => number,
    };
    match count_nulls(chunks)? {
        0 => Ok(None),
        count if nulls == Nulls::Error => Err(fail(
            ErrorKind::NotATensor,
            format!("the column has {}", count_noun(count, "null")),
            "pass nulls= to ferry.arrow.to: \"mask\", a number, or \"nan\"",
        )),
        _ => {
            check_number("nulls", fill, dtype)?;
            Ok(Some(fill))
        }
    }
}

/// Checks that the type has the number.
fn check_number(option: &str, number: Fill, dtype: DType) -> Result<()> {
    let is_float = matches!(dtype.kind(), DTypeKind::Float | DTypeKind::Complex);
    let fits = match (number, dtype.integer_range()) {
        _ if is_float => true,
        (Fill::Integer(number), Some((least, most))) => (least..=most).contains(&number),
        _ => false,
    };
    match fits {
        true => Ok(()),
        false => Err(fail(
            ErrorKind::InvalidArgument,
            format!(
                "{option} is {}, which {dtype} does not have",
                match number {
                    Fill::Integer(number) => number.to_string(),
                    Fill::Float(number) => format!("{number:?}"),
                }
            ),
            "pass a number that the type has, or dtype= for another type",
        )),
    }
}
