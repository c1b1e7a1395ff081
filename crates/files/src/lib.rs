//! Tensors in files: validating readers, atomic writers and memory maps.
//!
//! [`open()`] reads and validates a file's headers. A [`TensorFile`] then maps, reads or streams its tensors one by one.
//! A [`FileWriter`] writes a file that appears complete or not at all.
//!
//! Every file is treated as hostile. Nothing in a file is executed, no length is used before it was compared with the
//! file's size, and no name in a file leads to a path outside its folder.
//!
//! - `formats` parses and writes the headers of each format, and detects the format of a file.
//! - `reading` opens files and gives access to the bytes of their tensors.
//! - `writing` creates files.
//!
//! The interface of this crate changes with any version. Programs use the crate `tensorferry`, whose interface is stable.

mod entry;
mod errors;
mod format;
mod formats;
pub mod hints;
mod options;
mod reading;
mod spec;
mod writing;

pub use entry::FileEntry;
pub use format::FileFormat;
pub use formats::protobuf::dialect::Dialect;
pub use options::{OpenOptions, WriteOptions};
pub use reading::map::{MapMode, MappedTensor};
pub use reading::open::{open, open_file};
pub use reading::tensor_file::TensorFile;
pub use reading::tensor_reader::TensorReader;
pub use spec::{MAX_DIMENSIONS, TensorSpec};
pub use writing::file_writer::FileWriter;

/// Runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
