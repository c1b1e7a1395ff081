//! The file formats: one module parses and writes the headers of each, and [`detect`] tells them apart.

pub(crate) mod detect;
pub(crate) mod json;
pub(crate) mod names;
pub(crate) mod npy;
pub(crate) mod npz;
pub(crate) mod protobuf;
pub(crate) mod raw;
pub(crate) mod safetensors;
pub(crate) mod safetensors_index;
