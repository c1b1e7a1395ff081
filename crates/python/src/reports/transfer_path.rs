//! How bytes cross between a GPU and the host, in words.

use crate::settings;
use crate::text::format_bytes;
use tensorferry_core::ByteOrder;
use tensorferry_core::plan::{Plan, Reason, SourceDescription};
use tensorferry_cuda::{DownloadBuffer, RingOptions};

/// The transfer path between a GPU and the host, if it is one of those trips, as things stand now.
pub(super) fn transfer_path(source: &SourceDescription<'_>, plan: &Plan) -> Option<String> {
    let bytes = source.layout.count().saturating_mul(plan.dtype.size());
    let RingOptions { threads, chunk, .. } = settings::transfer();
    let lanes = |why: &str| {
        format!(
            "through pinned buffers of up to {} on up to {threads} threads: {why}",
            format_bytes(2 * threads * chunk)
        )
    };
    let small = || "by one call of the driver's: it is small".to_owned();
    let words = match (source.device.is_cuda(), plan.device.is_cuda()) {
        (true, false) => match tensorferry_cuda::choose_download_buffer(bytes) {
            DownloadBuffer::Small => small(),
            DownloadBuffer::Unpinned => {
                "by one call of the driver's: it is not large, and its memory is not pinned".to_owned()
            }
            DownloadBuffer::Kept => {
                "by the GPU itself, into pinned memory that an earlier result left".to_owned()
            }
            DownloadBuffer::Pin => {
                "by the GPU itself, into memory that is pinned for this and later results".to_owned()
            }
            DownloadBuffer::Fresh => lanes("the result's memory is fresh"),
        },
        (false, true) => {
            let as_it_is =
                source.layout.is_dense() && source.dtype == plan.dtype && source.order == ByteOrder::Native;
            if bytes < tensorferry_cuda::STAGING_THRESHOLD_BYTES {
                "by one call of the driver's: it is small; with others in a tree by way of pinned memory"
                    .to_owned()
            } else if bytes < tensorferry_cuda::SMALL_UPLOAD_BYTES {
                "by way of pinned memory of ours, from which the GPU fetches it: it is not large".to_owned()
            } else if as_it_is
                && tensorferry_cuda::is_pinned(std::ptr::with_exposed_provenance(source.address), bytes)
            {
                "by the GPU itself, out of pinned memory".to_owned()
            } else {
                lanes(if as_it_is {
                    "the source's memory is not pinned"
                } else {
                    "it is packed or cast on the way"
                })
            }
        }
        _ => return None,
    };
    // Memory of the caller's may be anything.
    let ours = !plan.shares() && !plan.reasons().contains(&Reason::Into);
    ours.then_some(words)
}
