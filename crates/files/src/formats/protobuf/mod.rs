//! TensorProto: one tensor as a protobuf message of ONNX or TensorFlow.

pub(crate) mod dialect;
pub(crate) mod encode;
pub(crate) mod tensor_proto;
pub(crate) mod values;
mod wire;
