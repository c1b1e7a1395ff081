//! The rows of the register. ARCHITECTURE.md has the same table, and a test compares the two.

/// A fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FastPath {
    NumpyArrayStruct,
    TorchExchangeApi,
    TorchExchangeStream,
    TorchRawStream,
    TorchTensorBase,
    TorchLazyBits,
    TorchFunctionMode,
    TorchFunctionStack,
    TorchAllocator,
    TorchPytree,
    TorchFakeTensor,
    JaxDlpackImport,
    JaxDlpackExport,
    JaxBufferProtocol,
    JaxEnableX64,
    JaxShards,
    JaxReadyStream,
    JaxTreeUnflatten,
    TensorflowDlpackImport,
    TensorflowDlpackExport,
    TensorflowNumpyInternal,
    TensorflowEagerTensor,
    TensorflowTensorSlots,
    TensorflowGraphStack,
    TensorflowContext,
    CupyContiguous,
    CupyCurrentHandle,
    PaddleExchangeApi,
    ScipyWithoutConstructor,
}

impl FastPath {
    pub(crate) const COUNT: usize = Self::ScipyWithoutConstructor as usize + 1;
}

pub(super) struct Row {
    pub(super) path: FastPath,
    /// `framework.what`.
    pub(super) name: &'static str,
    /// The private API.
    pub(super) calls: &'static str,
    /// The public functions that do the same.
    pub(super) fallback: &'static str,
    /// What is compared when it is first used.
    pub(super) probe: &'static str,
}

impl Row {
    /// The framework in its name.
    pub(super) fn framework(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(framework, _)| framework)
    }
}

const fn row(
    path: FastPath,
    name: &'static str,
    calls: &'static str,
    fallback: &'static str,
    probe: &'static str,
) -> Row {
    Row { path, name, calls, fallback, probe }
}

pub(super) static ROWS: [Row; FastPath::COUNT] = [
    row(
        FastPath::NumpyArrayStruct,
        "numpy.array_struct",
        "the fields `base` and `weakreflist` of the C struct of an array",
        "`PyArray_SetBaseObject`, `weakref.getweakrefcount`",
        "the fields of a view and of an array with a weak reference, against `.base` and `weakref`",
    ),
    row(
        FastPath::TorchExchangeApi,
        "torch.exchange_api",
        "the C functions in `torch.Tensor.__dlpack_c_exchange_api__`",
        "`torch.utils.dlpack.to_dlpack`, `torch.from_dlpack`",
        "address, shape, strides and type of a transposed tensor; address and shape of a tensor over our memory",
    ),
    row(
        FastPath::TorchExchangeStream,
        "torch.exchange_stream",
        "`current_work_stream` of the same table",
        "`torch.raw_stream`, or `torch.cuda.current_stream`",
        "the handle of `torch.cuda.current_stream`, on a GPU that PyTorch uses already",
    ),
    row(
        FastPath::TorchRawStream,
        "torch.raw_stream",
        "`torch._C._cuda_getCurrentRawStream`, where `torch.exchange_stream` is not used",
        "`torch.cuda.current_stream`",
        "the handle of `torch.cuda.current_stream`, on a GPU that PyTorch uses already",
    ),
    row(
        FastPath::TorchTensorBase,
        "torch.tensor_base",
        "the C functions of methods and attributes of `torch._C.TensorBase`",
        "the same methods and attributes of `torch.Tensor`, by name",
        "each of them on leaves, on results of autograd and on tensors with lazy bits",
    ),
    row(
        FastPath::TorchLazyBits,
        "torch.lazy_bits",
        "`at::native::is_neg` and `is_conj` by mangled name, on the C++ tensor at `_cdata`",
        "`Tensor.is_neg`, `Tensor.is_conj`",
        "both on a plain, a negated and a conjugated tensor, each of which has its address in one place",
    ),
    row(
        FastPath::TorchFunctionMode,
        "torch.function_mode",
        "`at::impl::torch_function_mode_enabled` by mangled name",
        "`torch.function_stack`, or `UntypedStorage.data_ptr` and `nbytes` of every tensor",
        "false outside of a `TorchFunctionMode`, true inside of one",
    ),
    row(
        FastPath::TorchFunctionStack,
        "torch.function_stack",
        "`torch._C._len_torch_function_stack`, where `torch.function_mode` is not used",
        "`UntypedStorage.data_ptr` and `nbytes` of every tensor",
        "zero outside of a `TorchFunctionMode`, not zero inside of one",
    ),
    row(
        FastPath::TorchAllocator,
        "torch.allocator",
        "three words of the C++ storage at `_cdata` of a `torch._C.StorageBase`",
        "`UntypedStorage.resizable`",
        "the words differ between storages of PyTorch and of NumPy memory, and hold the data pointer",
    ),
    row(
        FastPath::TorchPytree,
        "torch.pytree",
        "nodes that were registered with `torch.utils._pytree`",
        "nodes that were registered with `ferry.register_container`",
        "a dict that is taken apart is put together again",
    ),
    row(
        FastPath::TorchFakeTensor,
        "torch.fake_tensor",
        "`torch._subclasses.fake_tensor`, for the shapes of results in `via(grad=True)`",
        "tensors on the meta device, which do not mix with those that a function brings",
        "the shape and type of a product of two tensors",
    ),
    row(
        FastPath::JaxDlpackImport,
        "jax.dlpack_import",
        "`dlpack_managed_tensor_to_buffer` of `jaxlib._jax` or `jaxlib.xla_extension`",
        "`jax.dlpack.from_dlpack`",
        "address and shape of an array over our memory",
    ),
    row(
        FastPath::JaxDlpackExport,
        "jax.dlpack_export",
        "`buffer_to_dlpack_managed_tensor` of the same modules",
        "`Array.__dlpack__`",
        "address, shape and type of an array, against `__dlpack__`",
    ),
    row(
        FastPath::JaxBufferProtocol,
        "jax.buffer_protocol",
        "the buffer protocol of arrays in host memory",
        "`Array.__dlpack__`",
        "address, shape and type of an array, against `__dlpack__`",
    ),
    row(
        FastPath::JaxEnableX64,
        "jax.enable_x64",
        "`jax._src.config.enable_x64.value`",
        "`jax.config.jax_enable_x64`",
        "both with 64-bit types as they are, on and off",
    ),
    row(
        FastPath::JaxShards,
        "jax.shards",
        "`Array._arrays`",
        "`Array.sharding.device_set`",
        "the number of pieces of an array on one device",
    ),
    row(
        FastPath::JaxReadyStream,
        "jax.ready_stream",
        "`Device.get_stream_for_external_ready_events`",
        "all later work in the CUDA context waits",
        "the stream is one that `jax.dlpack.from_dlpack` names to `__dlpack__`",
    ),
    row(
        FastPath::JaxTreeUnflatten,
        "jax.tree_unflatten",
        "`tree_unflatten` of `BCOO` and `BCSR`",
        "their constructors",
        "attributes of an object made by each",
    ),
    row(
        FastPath::TensorflowDlpackImport,
        "tensorflow.dlpack_import",
        "`TFE_FromDlpackCapsule` of `tensorflow.python.pywrap_tfe`, with `context()._handle` of `tensorflow.python.eager.context`",
        "`tf.experimental.dlpack.from_dlpack`",
        "address and shape of a tensor over our memory",
    ),
    row(
        FastPath::TensorflowDlpackExport,
        "tensorflow.dlpack_export",
        "`TFE_ToDlpackCapsule` of `tensorflow.python.pywrap_tfe`",
        "`tf.experimental.dlpack.to_dlpack`",
        "address, shape and type of a tensor, against `numpy.asarray`",
    ),
    row(
        FastPath::TensorflowNumpyInternal,
        "tensorflow.numpy_internal",
        "the C functions of `_numpy_internal` and `_datatype_enum` of eager tensors",
        "`numpy.asarray`, `Tensor.dtype.as_datatype_enum`",
        "address, shape and type of tensors of two types, against `numpy.asarray`",
    ),
    row(
        FastPath::TensorflowEagerTensor,
        "tensorflow.eager_tensor",
        "`EagerTensor` of `tensorflow.python.framework.ops`, for types that DLPack lacks there",
        "`tf.constant`",
        "type and values of a tensor made by each",
    ),
    row(
        FastPath::TensorflowTensorSlots,
        "tensorflow.tensor_slots",
        "the C function of the attribute `backing_device`",
        "the attribute, by name",
        "both on a tensor in host memory",
    ),
    row(
        FastPath::TensorflowGraphStack,
        "tensorflow.graph_stack",
        "`_default_graph_stack` of `tensorflow.python.framework.ops`, `default_execution_mode` of `tensorflow.python.eager.context`",
        "`tf.executing_eagerly`",
        "both outside and inside of a `tf.Graph`",
    ),
    row(
        FastPath::TensorflowContext,
        "tensorflow.context",
        "`eager_mode` and `context().device_name` of `tensorflow.python.eager.context`",
        "a thread outside of any graph, and the `device` of a new `tf.constant`",
        "eager execution inside of a `tf.Graph`, and the name of the device inside of `tf.device`",
    ),
    row(
        FastPath::CupyContiguous,
        "cupy.contiguous",
        "`ndarray._c_contiguous`",
        "`ndarray.strides`",
        "true of a dense array, false of a transposed one",
    ),
    row(
        FastPath::CupyCurrentHandle,
        "cupy.current_handle",
        "`get_current_stream_ptr` of `cupy_backends.cuda.stream`, where there is one GPU",
        "`cupy.cuda.get_current_stream`",
        "the handle of `cupy.cuda.get_current_stream`",
    ),
    row(
        FastPath::PaddleExchangeApi,
        "paddle.exchange_api",
        "the C functions in `paddle.Tensor.__dlpack_c_exchange_api__`",
        "`paddle.utils.dlpack.to_dlpack`, `paddle.utils.dlpack.from_dlpack`",
        "address, shape and type of a tensor over our memory, against `to_dlpack`",
    ),
    row(
        FastPath::ScipyWithoutConstructor,
        "scipy.without_constructor",
        "`__dict__` of sparse arrays and matrices that are made without their constructor",
        "the constructor",
        "attributes of an object made by each, for each class",
    ),
];

const _: () = {
    let mut index = 0;
    while index < ROWS.len() {
        assert!(ROWS[index].path as usize == index, "the rows are in the order of the enum");
        index += 1;
    }
};
