//! Three cycles: one through a re-export, one between a parent and its child, one around a ring of three.

mod api;
mod engine;
mod parent;
mod ring;

pub use engine::Engine;
