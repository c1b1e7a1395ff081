//! `stack=True`: columns as one matrix.

use super::column::{ArrowColumn, ColumnContent, ColumnValues, different_types};
use super::options::{ArrowOptions, Nulls};
use super::prepare::{Prepared, at_column, check_on_host, prepare};
use crate::errors::{Result, fail};
use pyo3::prelude::*;
use std::collections::BTreeSet;
use tensorferry_arrow::{Array, Field};
use tensorferry_core::{DType, ErrorKind};

/// Columns as one matrix, which is an object that `to` converts. They have the same number of rows.
pub(super) fn stack<'py>(
    py: Python<'py>,
    columns: &[(Field, Vec<Array>)],
    rows: usize,
    options: &ArrowOptions,
) -> Result<Bound<'py, PyAny>> {
    let invalid = |fact: String, hint: &'static str| fail(ErrorKind::InvalidArgument, fact, hint);
    if options.nulls == Nulls::Mask {
        let hint = "pass a number or \"nan\" for nulls, or leave out stack";
        return Err(invalid("nulls=\"mask\" and stack=True cannot be combined".to_owned(), hint));
    }
    let mut stacked = Vec::new();
    let mut common: Option<DType> = None;
    for (field, chunks) in columns {
        let prepared =
            check_on_host(chunks, "stack=True").and_then(|()| prepare(field, chunks.clone(), options));
        let Prepared { dtype, shape, values, .. } = prepared.map_err(|failure| at_column(failure, field))?;
        if shape.len() != 1 {
            let fact = format!("column '{}' has rows of shape {:?}", field.name, &shape[1..]);
            return Err(invalid(fact, "leave the column out, or leave out stack"));
        }
        if shape[0] != rows as i64 {
            let fact = format!("column '{}' has {} rows, and the first one {rows}", field.name, shape[0]);
            return Err(invalid(fact, "pass columns of one length"));
        }
        match common {
            Some(first) if first != dtype && options.dtype.is_none() => {
                return Err(different_types(first, dtype));
            }
            _ => common = common.or(Some(dtype)),
        }
        stacked.push(values);
    }
    let Some(dtype) = common else {
        return Err(invalid("the table has no columns".to_owned(), "pass a table with columns"));
    };
    if rows == 0 {
        stacked.iter_mut().for_each(|column| column.chunks.clear());
    }
    align_chunks(&mut stacked);
    let shape = vec![rows as i64, stacked.len() as i64];
    // Columns of different types have the type of the result in common.
    let dtype = options.dtype.unwrap_or(dtype);
    let matrix = ArrowColumn {
        dtype,
        shape,
        content: ColumnContent::Stack(stacked),
        counts: None,
        is_unread: options.is_unread,
    };
    Ok(Bound::new(py, matrix)?.into_any())
}

/// Cuts the chunks of all columns where one of them has a border.
fn align_chunks(columns: &mut [ColumnValues]) {
    let borders = |column: &ColumnValues| {
        let mut end = 0;
        let ends = column.chunks.iter().map(|chunk| {
            end += chunk.len();
            end
        });
        ends.collect::<BTreeSet<usize>>()
    };
    let all: BTreeSet<usize> = columns.iter().flat_map(borders).collect();
    for column in columns.iter_mut().filter(|column| column.chunks.len() != all.len()) {
        let mut start = 0;
        let cut = column.chunks.iter().flat_map(|chunk| {
            let first = start;
            start += chunk.len();
            let mut from = first;
            let ends = all.range(first + 1..=start).copied().collect::<Vec<_>>();
            ends.into_iter().map(move |end| {
                let part = chunk.slice(from - first, end - from);
                from = end;
                part
            })
        });
        column.chunks = cut.collect();
    }
}
