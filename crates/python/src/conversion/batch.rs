//! Several tensors on one journey, which are waited for together.

use crate::conversion::request::ConversionRequest;
use crate::errors::Result;
use pyo3::prelude::*;
use tensorferry_cuda::TransferBatch;

/// Carries several on one journey, and waits for those that went to a GPU together.
pub(crate) fn batched<T>(
    py: Python<'_>,
    request: &ConversionRequest,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let batch = TransferBatch::begin();
    request.batched.set(true);
    let done = work();
    request.batched.set(false);
    if batch.is_settled() {
        return done;
    }
    // The thread is the same; a batch belongs to it.
    let batch = Here(batch);
    let waited = py.detach(|| { batch }.0.finish());
    let done = done?;
    waited?;
    Ok(done)
}

/// Crosses the border of `detach`, on one thread.
struct Here(TransferBatch);

// SAFETY: `detach` runs what it is given on the calling thread.
unsafe impl Send for Here {}
