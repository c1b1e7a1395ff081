//! Advice for the hint keys of `tensorferry_core`.

use super::Advice;
use tensorferry_core::hints;

pub(super) const ADVICE: &[Advice] = &[
    (hints::USE_CPU_OR_VIEW_AS_BYTES, "pass device=\"cpu\", or view the source as uint8 first"),
    (hints::TAKE_REAL_PART, "pass {}"),
    (
        hints::USE_DEFAULT_DTYPE,
        "pass dtype=\"default\" to get {} (values that it cannot hold change), or turn on jax_enable_x64",
    ),
    (
        hints::CAST_TO_SUPPORTED_DTYPE,
        "pass dtype=\"{}\", or another type that the framework has, to convert the values",
    ),
    (
        hints::OMIT_DEVICE_OR_CHOOSE_GPU_FRAMEWORK,
        "leave device out, or convert to a build of torch, cupy, jax or tensorflow with CUDA",
    ),
    (
        hints::OMIT_DEVICE_OR_CHOOSE_HOST_FRAMEWORK,
        "leave device out, or convert to numpy or torch, which hold host memory",
    ),
    (hints::OMIT_DEVICE_OR_NAME_ONE, "leave device out, or pass device=\"cpu\" or device=\"cuda:0\""),
    (hints::OMIT_DEVICE_OR_NAME_CPU, "leave device out, or pass one that it has, such as device=\"{}\""),
    (hints::CHOOSE_WRITABLE_FRAMEWORK, "leave writable out, or convert to numpy or torch"),
    (hints::CHOOSE_READ_ONLY_FRAMEWORK, "leave writable out, or convert to numpy or jax"),
    (hints::ALLOW_COPY, ALLOW_COPY),
    (hints::CHOOSE_SPARSE_FORMAT, "pass format= one of {}"),
    (hints::OMIT_BLOCK_SIZE, "leave blocksize out, or pass format='bsr'"),
    (hints::GIVE_BLOCK_SIZE, "pass blocksize=(rows, columns)"),
    (hints::DIVIDE_SHAPE, "pass a blocksize that divides the shape"),
    (hints::USE_CSR, "pass format='csr'"),
    (hints::SPLIT_BATCH, "use ferry.sparse.to_dense, or pass the tensors of the batch one by one"),
    (
        hints::MAKE_AXES_SPARSE,
        "use ferry.sparse.to_dense, or make every axis sparse where the tensor is made",
    ),
    (hints::USE_SPARSE_VALUES, "use ferry.sparse.to_dense, or pass its values"),
    (
        hints::RESHAPE_TO_TWO_AXES,
        "reshape it to two axes first, or pass format='coo' if the target supports more axes",
    ),
    (hints::REMOVE_DENSE_AXES, "use ferry.sparse.to_dense, or pass a tensor without dense axes"),
    (
        hints::SORT_BATCH_AT_SOURCE,
        "sort and sum the elements where the tensor is made, or use ferry.sparse.to_dense",
    ),
    (hints::USE_PART_OR_ENABLE_64_BIT, "convert a part of it, or turn on jax_enable_x64"),
];

/// How the caller permits a copy.
pub(super) const ALLOW_COPY: &str = "leave out copy=False to allow the copy";

/// Advice that avoids a copy. Plans show it as it is; errors show it as the alternative to allowing the copy.
pub(super) const COPY_ADVICE: &[Advice] = &[
    (hints::OMIT_COPY, "leave out copy=True"),
    (hints::OMIT_DTYPE, "leave out dtype"),
    (hints::CREATE_WITH_DTYPE, "create the source with the type of the result"),
    (hints::OMIT_DEVICE, "leave out device"),
    (hints::OMIT_WRITABLE, "leave out writable=True"),
    (hints::CHOOSE_HOST_FRAMEWORK, "convert to a framework that holds host memory"),
    (hints::CHOOSE_GPU_FRAMEWORK, "convert to a framework that holds GPU memory"),
    (hints::USE_NATIVE_BYTE_ORDER, "keep the source in native byte order"),
    (hints::MAKE_CONTIGUOUS, "make the source contiguous where it is made"),
    (hints::ALIGN_SOURCE, "allocate the source at a multiple of {} bytes"),
    (
        hints::REQUEST_SHARE_OR_ALIGN,
        "pass copy=False to share the memory if it is aligned, or allocate the source with ferry.empty_aligned or \
         ferry.empty_shared",
    ),
    (hints::USE_WRITABLE_SOURCE, "pass a source that may be written"),
    (hints::USE_SHARED_MEMORY, "make it with ferry.empty_shared(...)"),
    (hints::EXPOSE_ALLOCATION, "pass copy=False to share all of it"),
];
