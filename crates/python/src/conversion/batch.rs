//! Batches: several transfers to GPUs that are waited for together.

use crate::conversion::request::ConversionRequest;
use crate::errors::Result;
use pyo3::prelude::*;
use tensorferry_cuda::TransferBatch;

/// Runs conversions with one request, and waits for their transfers to GPUs together.
pub(crate) fn batched<T>(
    py: Python<'_>,
    request: &ConversionRequest,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let batch = TransferBatch::begin();
    request.batched.set(true);
    let result = work();
    request.batched.set(false);
    if batch.is_settled() {
        return result;
    }
    let batch = SameThread(batch);
    let waited = py.detach(|| { batch }.0.finish());
    let result = result?;
    waited?;
    Ok(result)
}

/// A batch that crosses the boundary of `detach`, which stays on the thread that the batch belongs to.
struct SameThread(TransferBatch);

// SAFETY: a `TransferBatch` must stay on the thread that began it. `batched` alone makes this struct, and gives it to `detach`, which
// runs its closure on the calling thread.
unsafe impl Send for SameThread {}
