//! Opening files, and mapping, reading or streaming the tensors in them.

mod checksum;
pub(crate) mod file_source;
pub(crate) mod inflate;
pub(crate) mod map;
pub(crate) mod open;
pub(crate) mod tensor_file;
pub(crate) mod tensor_reader;
