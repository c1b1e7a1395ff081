//! Tensors in files: checked readers, writers that leave a whole file or none, and memory maps.
//!
//! A file is opened ([`open()`]), which reads its headers and checks them, and then its tensors are mapped, read or streamed
//! one by one ([`TensorFile`]). Every file is treated as hostile: nothing in it is executed, no length in it is believed before
//! it was compared with the file's, and no name in it leads anywhere else. What is wrong is said in one line.
//!
//! - [`mod@format`]: which format a file has;
//! - one file for each: npy (with literal, its header's text), npz (with inflate), safetensors (with json), index,
//!   proto (with wire and dialect), raw;
//! - [`entry`]: what a tensor in a file is; [`mod@open`], [`map`], [`stream`]: how to come by its bytes;
//! - [`write`](mod@write), over atomic: how files come about.

mod atomic;
pub mod dialect;
pub mod entry;
mod fault;
pub mod format;
mod index;
mod inflate;
mod json;
mod literal;
pub mod map;
mod npy;
mod npz;
pub mod open;
mod proto;
mod raw;
mod safetensors;
mod source;
pub mod stream;
mod wire;
pub mod write;
mod writeback;

pub use dialect::Dialect;
pub use entry::{FileEntry, TensorSpec};
pub use format::FileFormat;
pub use map::{MapMode, MappedTensor};
pub use open::{OpenOptions, TensorFile, open, open_file};
pub use stream::TensorReader;
pub use write::{FileWriter, WriteOptions};
