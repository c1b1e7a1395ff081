//! Columns as tensors: their type, their shape, and what nulls and lists become.

use super::column::{ColumnValues, Fill};
use super::options::{ArrowOptions, Nulls, Ragged};
use crate::errors::{Failure, Result, fail};
use tensorferry_arrow::{Array, Column, Field, PaddedLists, count_nulls, dense_lists};
use tensorferry_core::dtype::DTypeKind;
use tensorferry_core::plan::{TimeUnit, count_noun};
use tensorferry_core::{DType, ErrorKind};

/// A column whose type has a tensor.
pub(super) struct Prepared {
    pub(super) dtype: DType,
    pub(super) shape: Vec<i64>,
    /// The unit of time that the values count, if they are dates or times.
    pub(super) counts: Option<TimeUnit>,
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
        None if let Ragged::Dense(pad) = options.ragged => match dense_lists(field, chunks) {
            // Lists that are not in fixed-size lists are padded above.
            Err(_) if pad.is_some() => return unsupported(LISTS_INSIDE.0, LISTS_INSIDE.1),
            dense => {
                let (field, chunks) = dense?;
                (field, chunks, None)
            }
        },
        None => (field.clone(), chunks, None),
    };
    let (field, chunks) = match &field.base().column {
        Column::Lists { .. } if options.ragged != Ragged::Error => {
            return unsupported(LISTS_INSIDE.0, LISTS_INSIDE.1);
        }
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
                    "unify them first: table.unify_dictionaries() in pyarrow, rechunk() in polars",
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
        pad.check("pad", result)?;
    }
    // Empty chunks would make one chunk look like several.
    let mut chunks = chunks;
    if chunks.len() > 1 {
        let has_rows = chunks.iter().any(|chunk| !chunk.is_empty());
        let mut is_first = true;
        chunks.retain(|chunk| if has_rows { !chunk.is_empty() } else { std::mem::take(&mut is_first) });
    }
    let counts = options.counts.or_else(|| unit_of(field.time_unit()?));
    Ok(Prepared { dtype, shape, counts, values: ColumnValues { chunks, fill }, padding })
}

/// The fact and the hint for lists inside something of one shape.
const LISTS_INSIDE: (&str, &str) = (
    "lists of different lengths fit neither a matrix nor fixed-size lists",
    "flatten the column first, or leave it out",
);

/// The unit of a type such as `timestamp[us, UTC]`.
fn unit_of(name: &str) -> Option<TimeUnit> {
    let inside = name.split_once('[')?.1.trim_end_matches(']');
    TimeUnit::parse(inside.split(',').next()?)
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
            fill.check("nulls", dtype)?;
            Ok(Some(fill))
        }
    }
}

/// The chunks of one column of a table.
pub(super) fn column_chunks(chunks: &[Array], index: usize) -> Vec<Array> {
    chunks.iter().filter_map(|chunk| chunk.columns().get(index).cloned()).collect()
}

/// The error for structs that are null: their columns have values that do not count.
pub(super) fn check_no_null_structs(chunks: &[Array]) -> Result<()> {
    match chunks.iter().map(Array::count_nulls).sum::<usize>() {
        0 => Ok(()),
        nulls => Err(fail(
            ErrorKind::NotATensor,
            format!("{} {} null", count_noun(nulls, "struct"), if nulls == 1 { "is" } else { "are" }),
            "drop such rows first, as table.drop_null() of pyarrow and drop_nulls() of polars do",
        )),
    }
}

/// The error for columns in GPU memory that would have to be read on the host, without those of a table.
pub(super) fn check_readable(chunks: &[Array]) -> Result<()> {
    Ok(chunks.iter().try_for_each(Array::check_readable)?)
}

/// The error for columns in GPU memory with an option whose result is gathered on the host.
pub(super) fn check_on_host(chunks: &[Array], option: &str) -> Result<()> {
    match chunks.iter().find(|chunk| !chunk.device().is_host()) {
        None => Ok(()),
        Some(chunk) => Err(fail(
            ErrorKind::UnsupportedDevice,
            format!("{option} is for columns in host memory, and x is on {}", chunk.device()),
            format!("leave out {option}, or copy x to host memory first, with the library that made it"),
        )),
    }
}

/// An error in a column of a table.
pub(super) fn at_column(failure: Failure, field: &Field) -> Failure {
    failure.within(&format!("column '{}'", field.name))
}
