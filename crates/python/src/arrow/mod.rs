//! Columns and tables that other libraries export through the Arrow C data interface.
//!
//! A table is read as a dict of columns, and a column is a source like any other: the planner decides whether its memory is shared
//! or copied. A column in several chunks, with bits, codes or nulls to be filled, is gathered in one pass when the plan runs.
//! `export` is the other direction.

pub(crate) mod batches;
mod capsules;
pub(crate) mod column;
pub(crate) mod export;
pub(crate) mod options;
mod pandas;
pub(crate) mod read;
