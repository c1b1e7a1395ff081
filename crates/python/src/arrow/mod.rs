//! Columns and tables that other libraries export through the Arrow C data interface.
//!
//! A table is read as a dict of columns, and a column is a source like any other: the planner decides whether its memory is shared
//! or copied. `export` is the other direction. A column in several chunks, with bits, codes or nulls to be filled, is gathered in one pass when the plan runs.

mod capsules;
pub(crate) mod column;
pub(crate) mod export;
mod options;
pub(crate) mod read;
