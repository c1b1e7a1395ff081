//! Array protocols: reading objects of unknown types through them, and exporting tensors with `__dlpack__`.

pub(crate) mod array_interface;
pub(crate) mod array_method;
pub(crate) mod buffer;
pub(crate) mod capsule;
pub(crate) mod dlpack_export;
pub(crate) mod image;
pub(crate) mod onnx_runtime;
pub(crate) mod reader;
