//! .npy: one NumPy array, after a header whose text is a Python dict literal.

pub(crate) mod dict_literal;
pub(crate) mod header;
mod type_string;
