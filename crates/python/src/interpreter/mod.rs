//! The Python interpreter: guards against its exit, owners of memory, deferred drops and direct calls.

pub(crate) mod call;
pub(crate) mod deferred_drop;
pub(crate) mod fork_lock;
pub(crate) mod guard;
pub(crate) mod objects;
pub(crate) mod once;
pub(crate) mod owned_tensor;
pub(crate) mod owner;
pub(crate) mod slots;
pub(crate) mod type_cache;
