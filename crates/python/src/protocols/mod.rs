//! Tensors of objects that belong to no known framework, through the protocols that they implement.

pub(crate) mod array_method;
pub(crate) mod buffer;
pub(crate) mod capsule;
pub(crate) mod cuda_array;
pub(crate) mod dlpack_export;
pub(crate) mod reader;
