//! Descriptions of the transfer path between a GPU and the host, for plans.

use crate::settings;
use crate::text::format_bytes;
use tensorferry_core::ByteOrder;
use tensorferry_core::plan::{Plan, Reason, SourceDescription};
use tensorferry_cuda::{DownloadBuffer, RingOptions};

/// The transfer path that a conversion would use now; None if it does not cross between a GPU and the host.
pub(super) fn transfer_path(source: &SourceDescription<'_>, plan: &Plan) -> Option<String> {
    let bytes = source.layout.count().saturating_mul(plan.dtype.size());
    let RingOptions { threads, chunk, .. } = settings::ring_options();
    let ring = |why: &str| {
        format!(
            "through pinned buffers of up to {} on up to {threads} threads: {why}",
            format_bytes(2 * threads * chunk)
        )
    };
    let small = || "one driver call: the tensor is small".to_owned();
    let text = match (source.device.is_cuda(), plan.device.is_cuda()) {
        (true, false) => match tensorferry_cuda::choose_download_buffer(bytes) {
            DownloadBuffer::Small => small(),
            DownloadBuffer::Unpinned => {
                "one driver call: the tensor is not large, and its memory is not pinned".to_owned()
            }
            DownloadBuffer::Recycled => {
                "direct copy by the GPU into pinned memory of an earlier result".to_owned()
            }
            DownloadBuffer::Pin => {
                "direct copy by the GPU into memory that is pinned for this and later results".to_owned()
            }
            DownloadBuffer::Fresh => ring("the result's memory is fresh"),
        },
        (false, true) => {
            let is_copied_unchanged =
                source.layout.is_dense() && source.dtype == plan.dtype && source.order == ByteOrder::Native;
            if bytes < tensorferry_cuda::STAGING_THRESHOLD_BYTES {
                "one driver call: the tensor is small; in a tree, through a pinned staging buffer".to_owned()
            } else if bytes < tensorferry_cuda::SMALL_UPLOAD_BYTES {
                "through a pinned staging buffer: the tensor is not large".to_owned()
            } else if is_copied_unchanged
                && tensorferry_cuda::is_pinned(std::ptr::with_exposed_provenance(source.address), bytes)
            {
                "direct copy by the GPU from pinned memory".to_owned()
            } else {
                ring(if is_copied_unchanged {
                    "the source's memory is not pinned"
                } else {
                    "the tensor is packed or cast on the way"
                })
            }
        }
        _ => return None,
    };
    // The path into a destination of the caller depends on its memory, which is not known here.
    let is_own_destination = !plan.shares() && !plan.reasons().contains(&Reason::Into);
    is_own_destination.then_some(text)
}
