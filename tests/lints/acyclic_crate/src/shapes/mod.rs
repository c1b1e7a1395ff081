//! Only declares and re-exports: its children may name each other through it.

mod circle;
mod shape;
#[cfg(test)]
mod checks;
#[cfg(test)]
mod tests;

pub use circle::Circle;
pub use shape::Shape;
