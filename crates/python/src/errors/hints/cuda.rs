//! Advice for the hint keys of `tensorferry_cuda`.

use super::Advice;
use tensorferry_cuda::hints;

pub(super) const ADVICE: &[Advice] = &[
    (hints::RAISE_BUDGET, "raise budget, or leave it out"),
    (hints::REDUCE_BUFFERS, "free something first, or set TENSORFERRY_THREADS to fewer threads"),
    (hints::RESTART_TRANSFER, "start the transfer again if its result is still needed"),
    (
        hints::UPLOAD_BEFORE_CAPTURE,
        "upload the data before the capture begins, and copy it on the GPU inside",
    ),
    (
        hints::ORDER_BEFORE_CAPTURE,
        "wait for that work before the capture begins, or queue it on the captured stream",
    ),
    (
        hints::SHARE_OUTSIDE_CAPTURE,
        "share with JAX or TensorFlow before the capture begins, or after it ends",
    ),
    (hints::INSTALL_DRIVER, "install the NVIDIA driver, or keep the tensor on the CPU"),
    (hints::UPDATE_DRIVER, "update the NVIDIA driver"),
    (hints::SPAWN_CHILD, "start the child with multiprocessing's \"spawn\" method"),
    (
        hints::CHECK_VISIBLE_DEVICES,
        "check CUDA_VISIBLE_DEVICES and nvidia-smi, or keep the tensor on the CPU",
    ),
    (hints::CHOOSE_VISIBLE_DEVICE, "choose a GPU that nvidia-smi lists, and check CUDA_VISIBLE_DEVICES"),
    (
        hints::FIND_FAILED_KERNEL,
        "run with CUDA_LAUNCH_BLOCKING=1 to find out whether an earlier kernel failed, and which",
    ),
    (hints::MOVE_TO_GPU, "move the tensor to the GPU first, or publish it from the CPU"),
    (hints::PUBLISH_COPY, "publish a copy"),
    (hints::PUBLISH_AFTER_CAPTURE, "publish after the capture has ended"),
    (hints::PUBLISH_WRITABLE, "update the NVIDIA driver, or publish for writing"),
    (hints::ATTACH_BEFORE_CAPTURE, "attach before the capture begins"),
    (
        hints::EXPOSE_PRODUCER_GPU,
        "add that GPU to CUDA_VISIBLE_DEVICES of this process; nvidia-smi -L lists the GPUs",
    ),
    (hints::CHECK_PRODUCER, "check that the producer still runs, and that both processes see the same GPU"),
    (hints::USE_SAME_VERSION, "use the same version of tensorferry in both processes"),
    (
        hints::RAISE_DESCRIPTOR_LIMIT,
        "release some shared tensors, or raise the limit on open files: ulimit -n",
    ),
];
