//! The file formats: one module reads and writes the headers of each.

pub(crate) mod json;
pub(crate) mod npy;
pub(crate) mod npz;
pub(crate) mod protobuf;
pub(crate) mod raw;
pub(crate) mod safetensors;
pub(crate) mod safetensors_index;
