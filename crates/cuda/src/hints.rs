//! The hint keys of this crate. A front end words the advice for each.

tensorferry_core::hint_keys! {
    /// The memory budget is too small for the buffers of a transfer.
    RAISE_BUDGET = "cuda.raise_budget";
    /// The host has no memory for the buffers of a transfer.
    REDUCE_BUFFERS = "cuda.reduce_buffers";
    /// A transfer was cancelled.
    RESTART_TRANSFER = "cuda.restart_transfer";
    /// An upload was requested on a captured stream.
    UPLOAD_BEFORE_CAPTURE = "cuda.upload_before_capture";
    /// A captured stream would have to wait for a stream that is not captured.
    ORDER_BEFORE_CAPTURE = "cuda.order_before_capture";
    /// A framework that does not name its stream would have to wait for a captured stream.
    SHARE_OUTSIDE_CAPTURE = "cuda.share_outside_capture";
    /// The machine has no usable driver.
    INSTALL_DRIVER = "cuda.install_driver";
    /// The driver lacks a function.
    UPDATE_DRIVER = "cuda.update_driver";
    /// The process is a forked child of one that used CUDA.
    SPAWN_CHILD = "cuda.spawn_child";
    /// The process sees no GPU.
    CHECK_VISIBLE_DEVICES = "cuda.check_visible_devices";
    /// The process does not see the GPU that was requested.
    CHOOSE_VISIBLE_DEVICE = "cuda.choose_visible_device";
    /// A CUDA call failed, perhaps because of an earlier kernel.
    FIND_FAILED_KERNEL = "cuda.find_failed_kernel";
    /// The memory to export is not GPU memory.
    MOVE_TO_GPU = "cuda.move_to_gpu";
    /// The allocation cannot be exported.
    PUBLISH_COPY = "cuda.publish_copy";
    /// The work to publish is being captured.
    PUBLISH_AFTER_CAPTURE = "cuda.publish_after_capture";
    /// The driver cannot map memory as read-only.
    PUBLISH_WRITABLE = "cuda.publish_writable";
    /// A captured stream would have to wait for another process.
    ATTACH_BEFORE_CAPTURE = "cuda.attach_before_capture";
    /// The producer's GPU is not visible to this process.
    EXPOSE_PRODUCER_GPU = "cuda.expose_producer_gpu";
    /// The producer's memory cannot be opened.
    CHECK_PRODUCER = "cuda.check_producer";
    /// The producer sent data that contradicts itself.
    USE_SAME_VERSION = "cuda.use_same_version";
    /// The process has no file descriptor left.
    RAISE_DESCRIPTOR_LIMIT = "cuda.raise_descriptor_limit";
}
