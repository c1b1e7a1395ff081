//! How a publication may be used.

use std::time::Duration;
use tensorferry_core::Access;

/// How a publication may be used. Without options, any number of consumers can attach it, as long as the publication lives.
/// [`publish`](super::publish()) lets them read, and [`publish_writable`](super::publish_writable) write.
#[derive(Clone, Copy, Debug)]
pub struct PublishOptions(tensorferry_share::PublishOptions);

impl PublishOptions {
    /// Any number of consumers, as long as the publication lives.
    pub fn new() -> Self {
        let access = Access::ReadOnly;
        Self(tensorferry_share::PublishOptions { once: false, timeout: None, access })
    }

    /// Makes the ticket valid for one consumer only.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.0.once = true;
        self
    }

    /// Makes the ticket invalid after this time. Leases that exist then last longer.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.0.timeout = Some(timeout);
        self
    }

    /// Lets consumers write, for the functions whose callers promise what that requires.
    pub(super) fn writable(mut self) -> Self {
        self.0.access = Access::ReadWrite;
        self
    }

    /// The options in the terms of the crate below.
    pub(super) fn lower(&self) -> &tensorferry_share::PublishOptions {
        &self.0
    }

    /// The access of consumers.
    pub(super) fn access(&self) -> Access {
        self.0.access
    }
}

impl Default for PublishOptions {
    fn default() -> Self {
        Self::new()
    }
}
