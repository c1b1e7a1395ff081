//! The type of queued work.

/// Work that runs when a stream reaches it.
pub(crate) type Work = Box<dyn FnOnce() + Send>;
