//! Writing files that appear complete or not at all.

pub(crate) mod atomic_file;
pub(crate) mod file_writer;
pub(crate) mod writeback;
