//! The consumer: from a ticket to tensors in this process.

pub(crate) mod attach;
