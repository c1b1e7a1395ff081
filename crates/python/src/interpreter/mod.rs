//! Entering the interpreter, owning Python objects and releasing them.

pub(crate) mod call;
pub(crate) mod deferred_drop;
pub(crate) mod guard;
pub(crate) mod once;
pub(crate) mod owner;
pub(crate) mod slots;
pub(crate) mod type_cache;
