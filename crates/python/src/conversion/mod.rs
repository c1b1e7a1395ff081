//! Conversion of one tensor: recognise the object, read it, plan, move bytes, wrap the result.

pub(crate) mod alignment;
pub(crate) mod batch;
pub(crate) mod convert;
pub(crate) mod epoch_memory;
pub(crate) mod fast_path;
pub(crate) mod fill_out;
pub(crate) mod gpu_transfer;
pub(crate) mod gradient_warning;
pub(crate) mod host_copy;
pub(crate) mod object_kinds;
pub(crate) mod progress;
pub(crate) mod read_only;
pub(crate) mod reading;
pub(crate) mod recognise;
pub(crate) mod request;
pub(crate) mod sharded;
pub(crate) mod source;
pub(crate) mod streams;
pub(crate) mod to_gpu;
pub(crate) mod to_host;
pub(crate) mod transfer;
pub(crate) mod tree_memory;
