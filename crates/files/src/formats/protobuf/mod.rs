//! TensorProto: one tensor as a protobuf message of ONNX or TensorFlow.

pub(crate) mod dialect;
pub(crate) mod encode;
pub(crate) mod message;
pub(crate) mod values;
mod wire;
