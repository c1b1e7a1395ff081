//! The hint keys of this crate, with the advice that is the same in every front end.

crate::hint_keys! {
    /// Memory ran out: use less of it.
    FREE_MEMORY = "core.free_memory" => "free something first, or convert a slice at a time";
    /// Memory for bookkeeping ran out: convert fewer tensors at a time.
    CONVERT_FEWER_TENSORS = "core.convert_fewer_tensors"
        => "free something first, or convert fewer tensors at a time";
    /// The copy cannot be addressed: convert slices.
    CONVERT_SLICES = "core.convert_slices" => "convert a slice at a time";
    /// The copy exceeds the budget: raise it, or convert slices.
    RAISE_BUDGET = "core.raise_budget" => "raise the budget, or convert a slice at a time";

    /// A tensor from another library violates its own contract.
    REPORT_INVALID_TENSOR = "core.report_invalid_tensor"
        => "pass a plain copy of the tensor, and report this to the library that made it";
    /// The tensor has no values in memory: materialise it.
    MATERIALISE = "core.materialise"
        => "materialise it first: fake, meta and wrapper tensors have a shape but no values";
    /// The framework exports another major version of DLPack; the value is the version that is supported.
    UPDATE_DLPACK = "core.update_dlpack" => "use a version of the framework that supports DLPack {}";
    /// The element type is unsupported: view the tensor as bytes.
    VIEW_AS_BYTES = "core.view_as_bytes" => "view the tensor as uint8 first";
    /// The element type is unsupported: cast it, or view the tensor as bytes.
    CAST_OR_VIEW_AS_BYTES = "core.cast_or_view_as_bytes"
        => "cast it to a common type, or view it as uint8, first";
    /// The elements are packed: unpack them, or view the tensor as bytes.
    UNPACK_OR_VIEW_AS_BYTES = "core.unpack_or_view_as_bytes"
        => "unpack to one element per byte, or view the tensor as uint8, first";

    /// A cast would drop imaginary parts; the value is how the framework of the source takes the real parts.
    TAKE_REAL_PART = "core.take_real_part";

    /// The device of the source cannot be read: move it to the CPU.
    MOVE_TO_CPU = "core.move_to_cpu" => "move it to the CPU with its own framework first";
    /// The target supports fewer dimensions.
    REDUCE_DIMENSIONS = "core.reduce_dimensions" => "reshape it to fewer dimensions first";
    /// The target supports the type only on the CPU.
    USE_CPU_OR_VIEW_AS_BYTES = "core.use_cpu_or_view_as_bytes";
    /// The target has no 64-bit types at present; the value is the default type.
    USE_DEFAULT_DTYPE = "core.use_default_dtype";
    /// The target does not have the type; the value is one that it has.
    CAST_TO_SUPPORTED_DTYPE = "core.cast_to_supported_dtype";
    /// The target supports only host memory, always or in this build.
    OMIT_DEVICE_OR_CHOOSE_GPU_FRAMEWORK = "core.omit_device_or_choose_gpu_framework";
    /// The target supports only GPU memory.
    OMIT_DEVICE_OR_CHOOSE_HOST_FRAMEWORK = "core.omit_device_or_choose_host_framework";
    /// The target supports host and GPU memory, and neither was requested.
    OMIT_DEVICE_OR_NAME_ONE = "core.omit_device_or_name_one";
    /// The target does not have that CPU device; the value is one that it has.
    OMIT_DEVICE_OR_NAME_CPU = "core.omit_device_or_name_cpu";
    /// The tensors of the target are immutable.
    CHOOSE_WRITABLE_FRAMEWORK = "core.choose_writable_framework";
    /// The target has no read-only tensors.
    CHOOSE_READ_ONLY_FRAMEWORK = "core.choose_read_only_framework";

    /// Sharing was requested, and only a copy is possible.
    ALLOW_COPY = "core.allow_copy";
    /// The copy was requested.
    OMIT_COPY = "core.omit_copy";
    /// The element type was requested.
    OMIT_DTYPE = "core.omit_dtype";
    /// The element type was requested, and the target may lack that of the source.
    CREATE_WITH_DTYPE = "core.create_with_dtype";
    /// The device was requested.
    OMIT_DEVICE = "core.omit_device";
    /// The writable result was requested.
    OMIT_WRITABLE = "core.omit_writable";
    /// The target does not support host memory.
    CHOOSE_HOST_FRAMEWORK = "core.choose_host_framework";
    /// The target does not support GPU memory.
    CHOOSE_GPU_FRAMEWORK = "core.choose_gpu_framework";
    /// The source is not in native byte order.
    USE_NATIVE_BYTE_ORDER = "core.use_native_byte_order";
    /// The target does not support the strides.
    MAKE_CONTIGUOUS = "core.make_contiguous";
    /// The source is unaligned; the value is the alignment in bytes.
    ALIGN_SOURCE = "core.align_source";
    /// The source's allocator does not guarantee the alignment.
    REQUEST_SHARE_OR_ALIGN = "core.request_share_or_align";
    /// The source is read-only, and the target has only writable tensors.
    USE_WRITABLE_SOURCE = "core.use_writable_source";
    /// The memory cannot be shared with other processes.
    USE_SHARED_MEMORY = "core.use_shared_memory";
    /// Sharing would expose a larger allocation.
    EXPOSE_ALLOCATION = "core.expose_allocation";

    /// The framework does not have the sparse format; the value lists those that it has.
    CHOOSE_SPARSE_FORMAT = "core.choose_sparse_format";
    /// A block size was given for a format without blocks.
    OMIT_BLOCK_SIZE = "core.omit_block_size";
    /// The format needs a block size.
    GIVE_BLOCK_SIZE = "core.give_block_size";
    /// The block size does not divide the shape.
    DIVIDE_SHAPE = "core.divide_shape";
    /// The elements cannot be gathered into blocks: use compressed rows.
    USE_CSR = "core.use_csr";
    /// The format has no batch axes.
    SPLIT_BATCH = "core.split_batch";
    /// The format has no dense axes.
    MAKE_AXES_SPARSE = "core.make_axes_sparse";
    /// The tensor has no sparse axes.
    USE_SPARSE_VALUES = "core.use_sparse_values";
    /// The format has another number of axes.
    RESHAPE_TO_TWO_AXES = "core.reshape_to_two_axes";
    /// Blocks with dense axes cannot change their format.
    REMOVE_DENSE_AXES = "core.remove_dense_axes";
    /// The elements of a batch cannot be sorted or summed.
    SORT_BATCH_AT_SOURCE = "core.sort_batch_at_source";
    /// The index types of the target are too narrow.
    USE_PART_OR_OTHER_FRAMEWORK = "core.use_part_or_other_framework"
        => "convert a part of it, or choose another framework";
    /// The index types of the target are too narrow while its 64-bit types are off.
    USE_PART_OR_ENABLE_64_BIT = "core.use_part_or_enable_64_bit";
}
