//! Writing files that appear complete or not at all.

mod atomic_file;
pub(crate) mod file_writer;
mod parallel;
mod writeback;
mod zip_output;
