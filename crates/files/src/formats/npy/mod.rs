//! .npy: one NumPy array.

pub(crate) mod dict_literal;
pub(crate) mod header;
