//! Trees: nested containers of tensors.

pub(crate) mod registered_nodes;
pub(crate) mod traverse;
