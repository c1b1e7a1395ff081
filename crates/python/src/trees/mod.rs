//! Containers of tensors.

pub(crate) mod nodes;
pub(crate) mod traverse;
