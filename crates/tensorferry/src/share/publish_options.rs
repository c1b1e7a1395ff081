//! How a publication may be used.

use std::time::Duration;
use tensorferry_core::Access;

/// How a publication may be used. Without options, any number of consumers can attach it for reading, as long as the
/// publication lives.
#[derive(Clone, Copy, Debug)]
pub struct PublishOptions(tensorferry_share::PublishOptions);

impl PublishOptions {
    /// Any number of consumers, for reading, as long as the publication lives.
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

    /// Lets consumers write.
    ///
    /// ```compile_fail,E0133
    /// use tensorferry::share::PublishOptions;
    ///
    /// let options = PublishOptions::new().writable();
    /// ```
    ///
    /// # Safety
    /// For each tensor that is published with these options, from then on until the ticket is invalid and all leases have
    /// ended:
    ///
    /// - This process reads and writes the elements, through the tensor or any handle on its memory, only while no consumer
    ///   writes them, and writes them only while no consumer reads them. How the processes agree on that is up to them. A
    ///   tensor whose memory is not shared is published as a copy, for which this holds by itself.
    /// - Consumers write nothing but the elements. Tensors below 16 MiB share one mapping with others.
    #[must_use]
    pub unsafe fn writable(mut self) -> Self {
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
