//! `ferry.arrow.batches`: batches of rows across the borders of chunks.

use super::capsules;
use super::options::ArrowOptions;
use super::read::{Selection, arrow_hint, not_arrow};
use crate::conversion::object_kinds::Recognised;
use crate::conversion::recognise::recognise;
use crate::errors::{Result, fail, type_name};
use pyo3::prelude::*;
use pyo3::types::PyIterator;
use std::collections::VecDeque;
use std::sync::Mutex;
use tensorferry_arrow::{Array, ArrayStream, Field};
use tensorferry_core::ErrorKind;

/// An iterator of batches. The lock is taken while a batch is read, and never waited for.
#[pyclass(frozen, module = "tensorferry._native", name = "_ArrowBatches")]
pub(crate) struct ArrowBatches(Mutex<BatchReader>);

/// Reads batches. It holds the chunks of one batch at most, and those that the producer delivered with them.
struct BatchReader {
    rows: usize,
    drops_last: bool,
    options: ArrowOptions,
    selection: Selection,
    source: Chunks,
    /// The type of the chunks, once the first one was read.
    field: Option<Field>,
    /// Chunks, or the rest of one, that belong to the next batches.
    waiting: VecDeque<Array>,
    waiting_rows: usize,
    /// No rows of the first chunk, for its dictionary: codes of other ones have other meanings.
    first: Option<Array>,
    /// The chunks of the last batch. They are released without the GIL, because a producer may wait for a thread that needs it.
    previous: Vec<Array>,
}

/// Where the next chunk comes from.
enum Chunks {
    /// From a stream, and then from the next object of an iterator.
    Stream(ArrayStream, Option<Py<PyIterator>>),
    /// From the next object of an iterator.
    Objects(Py<PyIterator>),
    /// The source is at its end.
    End,
}

/// Makes batches of the rows of a column or a table, or of an iterable of them.
#[pyfunction]
#[pyo3(signature = (x, rows, options, *, columns, stack, drop_last))]
pub(crate) fn _arrow_batches(
    x: &Bound<'_, PyAny>,
    rows: usize,
    options: &ArrowOptions,
    columns: Option<Vec<String>>,
    stack: bool,
    drop_last: bool,
) -> Result<ArrowBatches> {
    let selection = Selection { columns, is_stacked: stack };
    let mut batches = BatchReader {
        rows,
        drops_last: drop_last,
        options: *options,
        selection,
        source: Chunks::End,
        field: None,
        waiting: VecDeque::new(),
        waiting_rows: 0,
        first: None,
        previous: Vec::new(),
    };
    match recognise(x)?.kind() {
        Recognised::Arrow => batches.open(x, None)?,
        _ => match x.try_iter() {
            Ok(iterator) if arrow_hint(x).is_none() => batches.source = Chunks::Objects(iterator.unbind()),
            _ => return Err(not_arrow(x)),
        },
    }
    Ok(ArrowBatches(Mutex::new(batches)))
}

#[pymethods]
impl ArrowBatches {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        match self.0.try_lock() {
            Ok(mut reader) => reader.next_batch(py),
            Err(_) => Err(fail(
                ErrorKind::InvalidArgument,
                "another thread is reading the next batch",
                "read the batches on one thread, or hold a lock while you read one",
            )),
        }
    }
}

impl Drop for BatchReader {
    fn drop(&mut self) {
        let chunks =
            (std::mem::take(&mut self.previous), std::mem::take(&mut self.waiting), self.first.take());
        let source = std::mem::replace(&mut self.source, Chunks::End);
        let (stream, _objects) = match source {
            Chunks::Stream(stream, objects) => (Some(stream), objects),
            Chunks::Objects(objects) => (None, Some(objects)),
            Chunks::End => (None, None),
        };
        Python::attach(|py| py.detach(|| drop((chunks, stream))));
    }
}

impl BatchReader {
    /// The next batch, as an object that `to` converts; `None` at the end.
    fn next_batch<'py>(&mut self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        let previous = std::mem::take(&mut self.previous);
        py.detach(|| drop(previous));
        while self.waiting_rows < self.rows {
            let is_open = self.read_more(py).inspect_err(|_| self.end())?;
            if !is_open {
                break;
            }
            py.check_signals()?;
        }
        let rows = self.waiting_rows.min(self.rows);
        let Some(field) = self.field.clone() else { return Ok(None) };
        if rows == 0 || (rows < self.rows && self.drops_last) {
            return Ok(None);
        }
        let chunks: Vec<Array> = self.first.clone().into_iter().chain(self.take(rows)).collect();
        self.previous.clone_from(&chunks);
        self.selection.build(py, &field, chunks, &self.options).map(Some)
    }

    /// Ends the batches after an error, so that rows before it are not returned as a last batch.
    fn end(&mut self) {
        self.source = Chunks::End;
        self.waiting.clear();
        self.waiting_rows = 0;
    }

    /// Reads the next chunk, or opens the next object. False at the end.
    fn read_more(&mut self, py: Python<'_>) -> Result<bool> {
        match std::mem::replace(&mut self.source, Chunks::End) {
            Chunks::Stream(stream, objects) => {
                let (chunk, stream) = capsules::next_chunk(py, stream)?;
                self.source = match (stream, objects) {
                    (Some(stream), objects) => Chunks::Stream(stream, objects),
                    (None, Some(objects)) => Chunks::Objects(objects),
                    (None, None) => Chunks::End,
                };
                if let Some(chunk) = chunk {
                    self.add(chunk);
                }
                Ok(true)
            }
            Chunks::Objects(objects) => {
                let Some(object) = objects.bind(py).clone().next().transpose()? else { return Ok(false) };
                if recognise(&object)?.kind() != Recognised::Arrow {
                    return Err(not_arrow(&object));
                }
                self.open(&object, Some(objects))?;
                Ok(true)
            }
            Chunks::End => Ok(false),
        }
    }

    /// Reads an array, or opens a stream.
    fn open(&mut self, object: &Bound<'_, PyAny>, objects: Option<Py<PyIterator>>) -> Result<()> {
        let opened = capsules::open(object)?;
        let field = match &opened {
            capsules::Opened::Array(field, _) => field,
            capsules::Opened::Stream(stream) => stream.field(),
        };
        // Chunks of another type must not wait with those of the first: batches are built by its type.
        match &self.field {
            Some(first) if !first.column.is_same_type(&field.column) => {
                return Err(fail(
                    ErrorKind::InvalidArgument,
                    format!("an object of type {} has other columns than the first one", type_name(object)),
                    "pass objects of one schema",
                ));
            }
            Some(_) => {}
            None => self.field = Some(field.clone()),
        }
        match opened {
            capsules::Opened::Array(_, chunk) => {
                self.source = objects.map_or(Chunks::End, Chunks::Objects);
                self.add(chunk);
            }
            capsules::Opened::Stream(stream) => self.source = Chunks::Stream(stream, objects),
        }
        Ok(())
    }

    /// Adds a chunk that belongs to the next batches.
    fn add(&mut self, chunk: Array) {
        if !self.options.is_decoded && self.first.is_none() {
            self.first = Some(chunk.slice(0, 0));
        }
        self.waiting_rows += chunk.len();
        if !chunk.is_empty() {
            self.waiting.push_back(chunk);
        }
    }

    /// Takes rows from the waiting chunks, which have as many.
    fn take(&mut self, rows: usize) -> Vec<Array> {
        let mut taken = Vec::new();
        let mut missing = rows;
        while missing > 0
            && let Some(chunk) = self.waiting.pop_front()
        {
            let count = chunk.len().min(missing);
            if count < chunk.len() {
                self.waiting.push_front(chunk.slice(count, chunk.len() - count));
                taken.push(chunk.slice(0, count));
            } else {
                taken.push(chunk);
            }
            missing -= count;
        }
        self.waiting_rows -= rows - missing;
        taken
    }
}
