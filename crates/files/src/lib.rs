//! Tensors in files: checked readers, writers that leave a whole file or none, and memory maps.
//!
//! A file is opened ([`open()`]), which reads its headers and checks them, and then its tensors are mapped, read or streamed
//! one by one ([`TensorFile`]). Every file is treated as hostile: nothing in it is executed, no length in it is believed before
//! it was compared with the file's, and no name in it leads anywhere else. What is wrong is said in one line.
//!
//! - `format`: which format a file has;
//! - one file for each: npy (with literal, its header's text), npz (with inflate), safetensors (with json), index,
//!   proto (with wire and dialect), raw;
//! - `entry`: what a tensor in a file is; `reading`: how to come by its bytes;
//! - `writing`: how files come about.

pub mod entry;
mod errors;
pub mod format;
mod formats;
mod reading;
mod writing;

use errors as fault;
use formats::npy::{dict_literal as literal, header as npy};
use formats::protobuf::{dialect, message as proto, wire};
use formats::{json, npz, raw, safetensors, safetensors_index as index};
use reading::{file_source as source, inflate, map, open, tensor_reader as stream};
use writing::{atomic_file as atomic, file_writer as write, writeback};

pub use dialect::Dialect;
pub use entry::{FileEntry, TensorSpec};
pub use format::FileFormat;
pub use map::{MapMode, MappedTensor};
pub use open::{OpenOptions, TensorFile, open, open_file};
pub use stream::TensorReader;
pub use write::{FileWriter, WriteOptions};
