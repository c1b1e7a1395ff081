//! Containers of tensors.

pub(crate) mod registered_nodes;
pub(crate) mod traverse;
