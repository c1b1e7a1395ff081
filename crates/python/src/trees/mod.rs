//! Trees: nested containers of tensors.

pub(crate) mod path;
pub(crate) mod registered_nodes;
pub(crate) mod traverse;
