//! Reads a table or a column, and applies the options of the caller.

use super::capsules;
use super::column::{ArrowColumn, ColumnContent, ColumnValues, Fill, different_types};
use super::options::{ArrowOptions, Nulls, Ragged};
use crate::api::options;
use crate::conversion::object_kinds::Recognised;
use crate::conversion::recognise::recognise;
use crate::errors::{Failure, Result, fail, type_name};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tensorferry_arrow::{Array, Column, Field, count_nulls, dense_lists};
use tensorferry_core::dtype::DTypeKind;
use tensorferry_core::plan::count_noun;
use tensorferry_core::{DType, ErrorKind};

/// The columns of an object with the Arrow C data interface; `None` for other objects.
pub(crate) fn resolve<'py>(object: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyAny>>> {
    match recognise(object)?.kind() {
        Recognised::Arrow => columns(object).map(Some),
        _ => Ok(None),
    }
}

/// A column, or a dict of the columns of a table, as `ferry.to` converts them.
pub(crate) fn columns<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let (field, chunks) = capsules::read(object)?;
    build(object.py(), &field, chunks, &ArrowOptions::DEFAULT)
}

/// Reads a column, or a dict of columns, for `ferry.arrow.to`.
#[pyfunction]
#[pyo3(signature = (x, *, columns, stack, nulls, ragged, dictionary, temporal, dtype))]
#[expect(clippy::too_many_arguments, reason = "the options of ferry.arrow.to")]
pub(crate) fn _arrow_read<'py>(
    x: &Bound<'py, PyAny>,
    columns: Option<Vec<String>>,
    stack: bool,
    nulls: &Bound<'py, PyAny>,
    ragged: &str,
    dictionary: &str,
    temporal: &str,
    dtype: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    let mut options = ArrowOptions::parse(nulls, ragged, dictionary, temporal)?;
    options.dtype = options::requested_dtype(dtype)?;
    if recognise(x)?.kind() != Recognised::Arrow {
        return Err(not_arrow(x));
    }
    let (field, chunks) = capsules::read(x)?;
    let (field, chunks) = match columns {
        Some(names) => select(field, chunks, &names)?,
        None => (field, chunks),
    };
    match stack {
        true => build_matrix(x.py(), &field, chunks, &options),
        false => build(x.py(), &field, chunks, &options),
    }
}

/// The error for an object without the interface, or whose interface is not used.
fn not_arrow(x: &Bound<'_, PyAny>) -> Failure {
    let has = |name: &str| x.hasattr(name).unwrap_or(false);
    let (fact, hint) = if has("__arrow_c_array__") || has("__arrow_c_stream__") {
        (
            "changes values when it exports itself to Arrow",
            "pass its columns to ferry.to, or a table of pyarrow",
        )
    } else {
        (
            "has neither __arrow_c_array__ nor __arrow_c_stream__",
            "pass a column or a table of Arrow, or use ferry.to",
        )
    };
    fail(ErrorKind::NotATensor, format!("an object of type {} {fact}", type_name(x)), hint)
}

/// The chunks of one column of a table.
fn column_chunks(chunks: &[Array], index: usize) -> Vec<Array> {
    chunks.iter().filter_map(|chunk| chunk.columns().get(index).cloned()).collect()
}

/// A table with some of its columns.
fn select(field: Field, chunks: Vec<Array>, names: &[String]) -> Result<(Field, Vec<Array>)> {
    let Column::Structs(fields) = &field.column else {
        return Err(fail(
            ErrorKind::InvalidArgument,
            "columns= selects columns of a table, and x is one column",
            "leave out columns",
        ));
    };
    let mut positions = Vec::new();
    for name in names {
        if fields.iter().filter(|field| field.name == *name).count() > 1 {
            return Err(two_columns(name));
        }
        match fields.iter().position(|field| field.name == *name) {
            Some(position) if positions.contains(&position) => {
                return Err(fail(
                    ErrorKind::InvalidArgument,
                    format!("columns names '{name}' twice"),
                    "name each column once",
                ));
            }
            Some(position) => positions.push(position),
            None => {
                let known: Vec<&str> = fields.iter().map(|field| field.name.as_str()).take(10).collect();
                return Err(fail(
                    ErrorKind::InvalidArgument,
                    format!("the table has no column '{name}'"),
                    format!("pass some of {}", known.join(", ")),
                ));
            }
        }
    }
    let chosen = positions.iter().map(|&position| fields[position].clone()).collect();
    let chunks = chunks.iter().map(|chunk| chunk.with_columns(&positions)).collect();
    Ok((Field { name: field.name, column: Column::Structs(chosen) }, chunks))
}

fn two_columns(name: &str) -> Failure {
    fail(ErrorKind::InvalidArgument, format!("the table has two columns '{name}'"), "rename one of them")
}

/// The error for structs that are null: their columns have values that do not count.
fn check_no_null_structs(chunks: &[Array]) -> Result<()> {
    match chunks.iter().map(Array::count_nulls).sum::<usize>() {
        0 => Ok(()),
        nulls => Err(fail(
            ErrorKind::NotATensor,
            format!("{} {} null", count_noun(nulls, "struct"), if nulls == 1 { "is" } else { "are" }),
            "drop or fill them first",
        )),
    }
}

/// A column as an object that `to` converts, or a dict of the columns of a table.
fn build<'py>(
    py: Python<'py>,
    field: &Field,
    chunks: Vec<Array>,
    options: &ArrowOptions,
) -> Result<Bound<'py, PyAny>> {
    let Column::Structs(fields) = &field.column else {
        let (dtype, shape, values) = prepare(field, chunks, options)?;
        let new = |content: ColumnContent, dtype: DType| {
            Bound::new(py, ArrowColumn { dtype, shape: shape.clone(), content }).map(Bound::into_any)
        };
        if options.nulls != Nulls::Mask {
            return Ok(new(ColumnContent::Values(values), dtype)?);
        }
        let mask = new(ColumnContent::Validity(values.chunks.clone()), DType::Bool)?;
        let values = new(ColumnContent::Values(values), dtype)?;
        return Ok(PyTuple::new(py, [values, mask])?.into_any());
    };
    check_no_null_structs(&chunks)?;
    let columns = PyDict::new(py);
    for (index, field) in fields.iter().enumerate() {
        let column = build(py, field, column_chunks(&chunks, index), options)
            .map_err(|failure| at_column(failure, field))?;
        if columns.contains(&field.name)? {
            return Err(two_columns(&field.name));
        }
        columns.set_item(&field.name, column)?;
    }
    Ok(columns.into_any())
}

/// The columns of a table as one matrix.
fn build_matrix<'py>(
    py: Python<'py>,
    field: &Field,
    chunks: Vec<Array>,
    options: &ArrowOptions,
) -> Result<Bound<'py, PyAny>> {
    let invalid = |fact: String, hint: &'static str| fail(ErrorKind::InvalidArgument, fact, hint);
    let Column::Structs(fields) = &field.column else {
        return Err(invalid("stack=True needs a table, and x is one column".to_owned(), "leave out stack"));
    };
    if options.nulls == Nulls::Mask {
        let hint = "pass a number or \"nan\" for nulls, or leave out stack";
        return Err(invalid("nulls=\"mask\" has no matrix of masks".to_owned(), hint));
    }
    check_no_null_structs(&chunks)?;
    let rows = chunks.iter().map(Array::len).sum::<usize>() as i64;
    let mut columns = Vec::new();
    let mut common: Option<DType> = None;
    for (index, field) in fields.iter().enumerate() {
        let prepared = prepare(field, column_chunks(&chunks, index), options);
        let (dtype, shape, values) = prepared.map_err(|failure| at_column(failure, field))?;
        if shape.len() != 1 {
            let fact = format!("column '{}' has rows of shape {:?}", field.name, &shape[1..]);
            return Err(invalid(fact, "leave the column out, or leave out stack"));
        }
        match common {
            Some(first) if first != dtype && options.dtype.is_none() => {
                return Err(different_types(first, dtype));
            }
            _ => common = common.or(Some(dtype)),
        }
        columns.push(values);
    }
    let Some(dtype) = common else {
        return Err(invalid("the table has no columns".to_owned(), "pass a table with columns"));
    };
    let shape = vec![rows, columns.len() as i64];
    // Columns of different types have the type of the result in common.
    let dtype = options.dtype.unwrap_or(dtype);
    let matrix = ArrowColumn { dtype, shape, content: ColumnContent::Stack(columns) };
    Ok(Bound::new(py, matrix)?.into_any())
}

fn at_column(failure: Failure, field: &Field) -> Failure {
    failure.within(&format!("column '{}'", field.name))
}

/// The element type and the shape of a column, and its chunks with what nulls become.
fn prepare(
    field: &Field,
    chunks: Vec<Array>,
    options: &ArrowOptions,
) -> Result<(DType, Vec<i64>, ColumnValues)> {
    let unsupported =
        |fact: &str, hint: &'static str| Err(fail(ErrorKind::UnsupportedDType, fact.to_owned(), hint));
    let (field, chunks) = match options.ragged {
        Ragged::Dense => dense_lists(field, chunks)?,
        Ragged::Error => (field.clone(), chunks),
    };
    let (field, chunks) = match &field.base().column {
        Column::Lists { .. } => {
            return unsupported(
                "a column of lists has no tensor",
                "pass ragged=\"dense\" to ferry.arrow.to if all lists have one length",
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
    let shape = [vec![rows], field.row_shape()].concat();
    let fill = fill_for(&chunks, options.dtype.unwrap_or(dtype), options.nulls)?;
    // Empty chunks would make one chunk look like several.
    let mut chunks = chunks;
    if chunks.len() > 1 {
        let has_rows = chunks.iter().any(|chunk| !chunk.is_empty());
        let mut is_first = true;
        chunks.retain(|chunk| if has_rows { !chunk.is_empty() } else { std::mem::take(&mut is_first) });
    }
    Ok((dtype, shape, ColumnValues { chunks, fill }))
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
        Nulls::Error => Fill::Integer(0),
        Nulls::Nan => Fill::Float(f64::NAN),
        Nulls::Integer(number) => Fill::Integer(number),
        Nulls::Float(number) => Fill::Float(number),
    };
    match count_nulls(chunks)? {
        0 => Ok(None),
        count if nulls == Nulls::Error => Err(fail(
            ErrorKind::NotATensor,
            format!("the column has {}", count_noun(count, "null")),
            "pass nulls= to ferry.arrow.to: \"mask\", a number, or \"nan\"",
        )),
        _ => check_fill(fill, dtype).map(Some),
    }
}

/// Checks that the type has the number.
fn check_fill(fill: Fill, dtype: DType) -> Result<Fill> {
    let is_float = matches!(dtype.kind(), DTypeKind::Float | DTypeKind::Complex);
    let fits = match (fill, dtype.integer_range()) {
        _ if is_float => true,
        (Fill::Integer(number), Some((least, most))) => (least..=most).contains(&number),
        _ => false,
    };
    match fits {
        true => Ok(fill),
        false => Err(fail(
            ErrorKind::InvalidArgument,
            format!(
                "nulls is {}, which {dtype} does not have",
                match fill {
                    Fill::Integer(number) => number.to_string(),
                    Fill::Float(number) => format!("{number:?}"),
                }
            ),
            "pass a number that the type has, or dtype= for another type",
        )),
    }
}
