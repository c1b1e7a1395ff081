//! No cycle, for all that looks like one: see [`shapes::Shape`] and [`units`].

pub mod fmt;
pub mod shapes;
pub mod text;
mod units;

pub use shapes::Shape;
