//! Columns and tables that other libraries export through the Arrow C data interface.
//!
//! A table is read as a dict of columns, and a column is a source like any other: the planner decides whether its memory is shared
//! or copied. A column in several chunks, with bits, codes or nulls to be filled, is gathered in one pass when the plan runs.
//! `export` is the other direction. Columns in GPU memory cross through the C device data interface in both directions; `device_memory`
//! orders the work on them.

pub(crate) mod batches;
mod capsules;
pub(crate) mod column;
mod device_memory;
pub(crate) mod export;
mod export_source;
mod matrix;
pub(crate) mod options;
mod pandas;
mod prepare;
pub(crate) mod read;
