//! The hint keys of this crate, with the advice that is the same in every front end.

tensorferry_core::hint_keys! {
    /// The memory budget is too small for the buffers of a transfer.
    RAISE_BUDGET = "cuda.raise_budget" => "raise budget, or leave it out";
    /// The host has no memory for the buffers of a transfer.
    REDUCE_BUFFERS = "cuda.reduce_buffers";
    /// A transfer was cancelled.
    RESTART_TRANSFER = "cuda.restart_transfer" => "start the transfer again if its result is still needed";
    /// An upload was requested on a captured stream.
    UPLOAD_BEFORE_CAPTURE = "cuda.upload_before_capture"
        => "upload the data before the capture begins, and copy it on the GPU inside";
    /// A captured stream would have to wait for a stream that is not captured.
    ORDER_BEFORE_CAPTURE = "cuda.order_before_capture"
        => "wait for that work before the capture begins, or queue it on the captured stream";
    /// A framework that does not name its stream would have to wait for a captured stream.
    SHARE_OUTSIDE_CAPTURE = "cuda.share_outside_capture";
    /// The machine has no usable driver.
    INSTALL_DRIVER = "cuda.install_driver" => "install the NVIDIA driver, or keep the tensor on the CPU";
    /// The driver lacks a function.
    UPDATE_DRIVER = "cuda.update_driver" => "update the NVIDIA driver";
    /// The process is a forked child of one that used CUDA.
    SPAWN_CHILD = "cuda.spawn_child";
    /// The process sees no GPU.
    CHECK_VISIBLE_DEVICES = "cuda.check_visible_devices"
        => "check CUDA_VISIBLE_DEVICES and nvidia-smi, or keep the tensor on the CPU";
    /// The process does not see the GPU that was requested.
    CHOOSE_VISIBLE_DEVICE = "cuda.choose_visible_device"
        => "choose a GPU that nvidia-smi lists, and check CUDA_VISIBLE_DEVICES";
    /// A CUDA call failed, perhaps because of an earlier kernel.
    FIND_FAILED_KERNEL = "cuda.find_failed_kernel"
        => "run with CUDA_LAUNCH_BLOCKING=1 to find out whether an earlier kernel failed, and which";
    /// The memory to export is not GPU memory.
    MOVE_TO_GPU = "cuda.move_to_gpu" => "move the tensor to the GPU first, or publish it from the CPU";
    /// The allocation cannot be exported.
    PUBLISH_COPY = "cuda.publish_copy" => "publish a copy";
    /// The work to publish is being captured.
    PUBLISH_AFTER_CAPTURE = "cuda.publish_after_capture" => "publish after the capture has ended";
    /// The driver cannot map memory as read-only.
    PUBLISH_WRITABLE = "cuda.publish_writable" => "update the NVIDIA driver, or publish for writing";
    /// A captured stream would have to wait for another process.
    ATTACH_BEFORE_CAPTURE = "cuda.attach_before_capture" => "attach before the capture begins";
    /// The producer's GPU is not visible to this process.
    EXPOSE_PRODUCER_GPU = "cuda.expose_producer_gpu"
        => "add that GPU to CUDA_VISIBLE_DEVICES of this process; nvidia-smi -L lists the GPUs";
    /// The producer's memory cannot be opened.
    CHECK_PRODUCER = "cuda.check_producer"
        => "check that the producer still runs, and that both processes see the same GPU";
    /// The producer sent data that contradicts itself.
    USE_SAME_VERSION = "cuda.use_same_version" => "use the same version of tensorferry in both processes";
    /// The process has no file descriptor left.
    RAISE_DESCRIPTOR_LIMIT = "cuda.raise_descriptor_limit"
        => "release some shared tensors, or raise the limit on open files: ulimit -n";
}
