//! The memory that dropped tensors leave for the next ones.
//!
//! The first touch of fresh pages takes several times as long as the copy that follows. Host memory of 4 MiB or more is therefore
//! not returned to the system when its last handle is dropped, nor is shared memory of 16 MiB or more.

use tensorferry_core::pool;

/// Returns the memory of dropped tensors to the system, and the number of its bytes.
///
/// Large blocks of host memory and shared memory are kept for the next tensor of about the same size, up to an eighth of the memory of
/// the machine or the container.
///
/// ```
/// use tensorferry::{DType, Tensor};
///
/// drop(Tensor::zeros(DType::Float32, &[4096, 4096])?.cast(DType::Float16)?);
/// println!("{} bytes were idle", tensorferry::empty_cache());
/// # Ok::<(), tensorferry::Error>(())
/// ```
pub fn empty_cache() -> usize {
    #[cfg(feature = "share")]
    let shared_bytes = tensorferry_share::release_idle();
    #[cfg(not(feature = "share"))]
    let shared_bytes = 0;
    #[cfg(any(feature = "cuda", feature = "share"))]
    tensorferry_cuda::ipc::release_idle();
    shared_bytes + pool::release_idle()
}
