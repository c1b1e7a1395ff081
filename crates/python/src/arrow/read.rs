//! Reads a table or a column, and applies the options of the caller.

use super::capsules;
use super::column::{ArrowColumn, ColumnContent, Fill};
use super::matrix;
use super::options::{ArrowOptions, Nulls, Ragged};
use super::pandas;
use super::prepare::{
    Prepared, at_column, check_no_null_structs, check_on_host, check_readable, column_chunks, prepare,
};
use crate::conversion::object_kinds::Recognised;
use crate::conversion::recognise::recognise;
use crate::errors::{Failure, Result, fail, library_hint, type_name};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tensorferry_arrow::{Array, Column, Field, list_elements};
use tensorferry_core::plan::TimeUnit;
use tensorferry_core::{DType, ErrorKind};

/// What columns are read for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Purpose {
    Conversion,
    /// A stream, which can be read once, and a query are left unread.
    Plan,
}

/// The columns of an object with the Arrow C data interface, or of pandas; `None` for other objects.
pub(crate) fn resolve<'py>(
    object: &Bound<'py, PyAny>,
    purpose: Purpose,
) -> Result<Option<Bound<'py, PyAny>>> {
    match recognise(object)?.kind() {
        Recognised::Arrow | Recognised::Pandas => columns(object, purpose).map(Some),
        _ => Ok(None),
    }
}

/// A column, or a dict of the columns of a table, as `ferry.to` converts them.
pub(crate) fn columns<'py>(object: &Bound<'py, PyAny>, purpose: Purpose) -> Result<Bound<'py, PyAny>> {
    if recognise(object)?.kind() == Recognised::Pandas {
        return pandas::columns(object);
    }
    read_for(object, purpose, &Selection::ALL, &ArrowOptions::DEFAULT)
}

/// Reads the selected columns of an object with the Arrow C data interface.
fn read_for<'py>(
    object: &Bound<'py, PyAny>,
    purpose: Purpose,
    selection: &Selection,
    options: &ArrowOptions,
) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    if purpose == Purpose::Plan && capsules::is_unread_by_plans(object)? {
        let field = capsules::read_schema(object)?;
        return selection.build(py, &field, Vec::new(), &ArrowOptions { is_unread: true, ..*options });
    }
    let (field, chunks) = capsules::read(object)?;
    selection.build(py, &field, chunks, options)
}

/// Reads a column, or a dict of columns, for `ferry.arrow.to` or its plan. Errors name the column `name`, if x is one of several.
/// Integers count `unit`, if they were dates or times.
#[pyfunction]
#[pyo3(signature = (x, options, *, columns=None, stack=false, plan=false, name=None, unit=None))]
pub(crate) fn _arrow_read<'py>(
    x: &Bound<'py, PyAny>,
    options: &ArrowOptions,
    columns: Option<Vec<String>>,
    stack: bool,
    plan: bool,
    name: Option<String>,
    unit: Option<&str>,
) -> Result<Bound<'py, PyAny>> {
    let read = || {
        if recognise(x)?.kind() != Recognised::Arrow {
            return Err(not_arrow(x));
        }
        let purpose = if plan { Purpose::Plan } else { Purpose::Conversion };
        let options = ArrowOptions { counts: unit.and_then(TimeUnit::parse), ..*options };
        read_for(x, purpose, &Selection { columns, is_stacked: stack }, &options)
    };
    read().map_err(|failure| match &name {
        Some(name) => failure.within(&format!("column '{name}'")),
        None => failure,
    })
}

/// Which columns of a table are returned, and in which form.
pub(super) struct Selection {
    /// Their names; all columns without names.
    pub(super) columns: Option<Vec<String>>,
    /// Whether they are one matrix.
    pub(super) is_stacked: bool,
}

impl Selection {
    /// All columns, one by one.
    const ALL: Self = Self { columns: None, is_stacked: false };

    /// A column, a dict of columns, or a matrix, as an object that `to` converts.
    pub(super) fn build<'py>(
        &self,
        py: Python<'py>,
        field: &Field,
        chunks: Vec<Array>,
        options: &ArrowOptions,
    ) -> Result<Bound<'py, PyAny>> {
        let selected = match &self.columns {
            Some(names) => Some(select(field, &chunks, names)?),
            None => None,
        };
        let (field, chunks) = match &selected {
            Some((field, chunks)) => (field, chunks.clone()),
            None => (field, chunks),
        };
        match self.is_stacked {
            true => build_matrix(py, field, &chunks, options),
            false => build(py, field, chunks, options),
        }
    }
}

/// How a library's object is read with `ferry.arrow`, if it can be.
pub(super) fn arrow_hint(x: &Bound<'_, PyAny>) -> Option<String> {
    library_hint(x).filter(|hint| hint.contains("ferry.arrow."))
}

/// The error for an object without the interface, or whose interface is not used.
pub(super) fn not_arrow(x: &Bound<'_, PyAny>) -> Failure {
    let has = |name: &str| x.hasattr(name).unwrap_or(false);
    let (fact, hint) =
        if ["__arrow_c_array__", "__arrow_c_stream__", "__arrow_c_device_array__"].into_iter().any(has) {
            ("is not read through its Arrow interface, which may change values", "use ferry.to")
        } else {
            (
                "has neither __arrow_c_array__ nor __arrow_c_stream__ nor __arrow_c_device_array__",
                "pass a column or a table of Arrow, or use ferry.to",
            )
        };
    let hint = arrow_hint(x).unwrap_or_else(|| hint.to_owned());
    fail(ErrorKind::NotATensor, format!("an object of type {} {fact}", type_name(x)), hint)
}

/// A table with some of its columns.
fn select(field: &Field, chunks: &[Array], names: &[String]) -> Result<(Field, Vec<Array>)> {
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
    Ok((Field { name: field.name.clone(), column: Column::Structs(chosen) }, chunks))
}

fn two_columns(name: &str) -> Failure {
    fail(ErrorKind::InvalidArgument, format!("the table has two columns '{name}'"), "rename one of them")
}

/// A column as an object that `to` converts, or a dict of the columns of a table.
fn build<'py>(
    py: Python<'py>,
    field: &Field,
    chunks: Vec<Array>,
    options: &ArrowOptions,
) -> Result<Bound<'py, PyAny>> {
    check_readable(&chunks)?;
    let fields = match &field.column {
        Column::Structs(fields) => fields,
        Column::Lists { child, .. } if options.ragged == Ragged::Offsets => {
            let values = build(py, child, list_elements(&chunks)?, options)?;
            let lists = chunks.iter().map(Array::len).sum::<usize>() as i64;
            let content = ColumnContent::Offsets(chunks);
            let offsets = ArrowColumn {
                dtype: DType::Int64,
                shape: vec![lists + 1],
                content,
                counts: None,
                is_unread: options.is_unread,
            };
            return Ok(PyTuple::new(py, [values, Bound::new(py, offsets)?.into_any()])?.into_any());
        }
        _ => return build_column(py, field, chunks, options),
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

/// A column that is one tensor, or values and a mask.
fn build_column<'py>(
    py: Python<'py>,
    field: &Field,
    chunks: Vec<Array>,
    options: &ArrowOptions,
) -> Result<Bound<'py, PyAny>> {
    let Prepared { dtype, shape, counts, values, padding } = prepare(field, chunks, options)?;
    let new = |content: ColumnContent, dtype: DType, pad: Fill| {
        let content = match &padding {
            Some((lists, _)) => {
                ColumnContent::Padded { lists: lists.clone(), elements: Box::new(content), pad }
            }
            None => content,
        };
        // A mask counts nothing.
        let counts = counts.filter(|_| dtype != DType::Bool);
        let column =
            ArrowColumn { dtype, shape: shape.clone(), content, counts, is_unread: options.is_unread };
        Bound::new(py, column).map(Bound::into_any)
    };
    let pad = padding.as_ref().map_or(Fill::ZERO, |(_, pad)| *pad);
    if options.nulls != Nulls::Mask {
        return Ok(new(ColumnContent::Values(values), dtype, pad)?);
    }
    check_on_host(&values.chunks, "nulls=\"mask\"")?;
    // Padding counts as not valid.
    let mask = new(ColumnContent::Validity(values.chunks.clone()), DType::Bool, Fill::ZERO)?;
    let values = new(ColumnContent::Values(values), dtype, pad)?;
    Ok(PyTuple::new(py, [values, mask])?.into_any())
}

/// The columns of a table as one matrix.
fn build_matrix<'py>(
    py: Python<'py>,
    field: &Field,
    chunks: &[Array],
    options: &ArrowOptions,
) -> Result<Bound<'py, PyAny>> {
    let Column::Structs(fields) = &field.column else {
        let fact = "stack=True needs a table, and x is one column";
        return Err(fail(ErrorKind::InvalidArgument, fact, "leave out stack"));
    };
    check_no_null_structs(chunks)?;
    let rows = chunks.iter().map(Array::len).sum::<usize>();
    let columns =
        fields.iter().enumerate().map(|(index, field)| (field.clone(), column_chunks(chunks, index)));
    matrix::stack(py, &columns.collect::<Vec<_>>(), rows, options)
}

/// Columns that are objects of their own as one matrix, by name.
#[pyfunction]
pub(crate) fn _arrow_stack<'py>(
    py: Python<'py>,
    columns: Vec<(String, Bound<'py, PyAny>)>,
    options: &ArrowOptions,
) -> Result<Bound<'py, PyAny>> {
    let read = columns.into_iter().map(|(name, object)| {
        let (field, chunks) = capsules::read(&object)?;
        Ok((Field { name, ..field }, chunks))
    });
    let read = read.collect::<Result<Vec<_>>>()?;
    let rows = read.first().map_or(0, |(_, chunks)| chunks.iter().map(Array::len).sum());
    matrix::stack(py, &read, rows, options)
}
