//! Trees: nested containers of tensors.

mod copies;
mod passed_objects;
pub(crate) mod path;
pub(crate) mod registered_nodes;
pub(crate) mod traverse;
