//! The consumer: from a ticket to tensors in this process.

pub(crate) mod attach;
pub(crate) mod attached_tensor;
mod producer_connection;
pub(crate) mod ready_state;
mod ticket_errors;
