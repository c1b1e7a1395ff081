//! The messages on the socket between consumer and producer.

mod reply;
mod tree_structure;

pub use reply::*;
pub(crate) use reply::{Reader, bound};
pub use tree_structure::*;
