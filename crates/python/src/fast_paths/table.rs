//! The table of fast paths. ARCHITECTURE.md shows the same table, and a test compares the two.

/// A fast path, by the framework and the private API that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FastPath {
    NumpyArrayStruct,
    TorchExchangeApi,
    TorchExchangeStream,
    TorchRawStream,
    TorchTensorBase,
    TorchLazyBits,
    TorchRequiresGrad,
    TorchStorage,
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

/// One fast path: how users name it, what it calls, and how it is verified.
pub(super) struct Row {
    pub(super) path: FastPath,
    /// `framework.api`, as `TENSORFERRY_DISABLE` names it.
    pub(super) name: &'static str,
    /// The private API.
    pub(super) calls: &'static str,
    /// The public APIs that replace it.
    pub(super) fallback: &'static str,
    /// What the probe compares before the first use.
    pub(super) probe: &'static str,
}

impl Row {
    /// The part of the name before the dot.
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
        "address, shape, strides and dtype of a transposed tensor; address and shape of a tensor over the sample's memory",
    ),
    row(
        FastPath::TorchExchangeStream,
        "torch.exchange_stream",
        "`current_work_stream` of the same table",
        "`torch.raw_stream`, or `torch.cuda.current_stream`",
        "the handle of `torch.cuda.current_stream`, on a GPU that PyTorch has initialised",
    ),
    row(
        FastPath::TorchRawStream,
        "torch.raw_stream",
        "`torch._C._cuda_getCurrentRawStream`, where `torch.exchange_stream` is not used",
        "`torch.cuda.current_stream`",
        "the handle of `torch.cuda.current_stream`, on a GPU that PyTorch has initialised",
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
        "both on a tensor without lazy bits, a negated and a conjugated one; exactly one word of each object equals `_cdata`",
    ),
    row(
        FastPath::TorchRequiresGrad,
        "torch.requires_grad",
        "`c10::TensorImpl::requires_grad` by mangled name, on the C++ object at `_cdata`",
        "`Tensor.requires_grad`",
        "the attribute of an ordinary tensor, a leaf, a result of autograd and a detached one",
    ),
    row(
        FastPath::TorchStorage,
        "torch.storage",
        "four words of the C++ storage at `_cdata` of a `torch.UntypedStorage`",
        "`UntypedStorage.data_ptr`, `nbytes` and `resizable`",
        "the words hold the data pointer and the size, and differ between storages of PyTorch's allocator and of NumPy memory",
    ),
    row(
        FastPath::TorchPytree,
        "torch.pytree",
        "containers registered with `torch.utils._pytree`",
        "containers registered with `ferry.register_container`",
        "a dict survives flatten and unflatten",
    ),
    row(
        FastPath::TorchFakeTensor,
        "torch.fake_tensor",
        "`torch._subclasses.fake_tensor`, for the shapes of results in `via(grad=True)`",
        "tensors on the meta device, which do not mix with real tensors that the function uses",
        "shape and dtype of a product of two tensors",
    ),
    row(
        FastPath::JaxDlpackImport,
        "jax.dlpack_import",
        "`dlpack_managed_tensor_to_buffer` of `jaxlib._jax` or `jaxlib.xla_extension`",
        "`jax.dlpack.from_dlpack`",
        "address and shape of an array over the sample's memory",
    ),
    row(
        FastPath::JaxDlpackExport,
        "jax.dlpack_export",
        "`buffer_to_dlpack_managed_tensor` of the same modules",
        "`Array.__dlpack__`",
        "address, shape and dtype of an array, against `__dlpack__`",
    ),
    row(
        FastPath::JaxBufferProtocol,
        "jax.buffer_protocol",
        "the buffer protocol of arrays in host memory",
        "`Array.__dlpack__`",
        "address, shape and dtype of an array, against `__dlpack__`",
    ),
    row(
        FastPath::JaxEnableX64,
        "jax.enable_x64",
        "`jax._src.config.enable_x64.value`",
        "`jax.config.jax_enable_x64`",
        "both with the current setting, with x64 on and with x64 off",
    ),
    row(
        FastPath::JaxShards,
        "jax.shards",
        "`Array._arrays`",
        "`Array.sharding.device_set`",
        "the number of shards of an array on one device",
    ),
    row(
        FastPath::JaxReadyStream,
        "jax.ready_stream",
        "`Device.get_stream_for_external_ready_events`",
        "all later work in the CUDA context waits for the memory",
        "the stream is one that `jax.dlpack.from_dlpack` passes to `__dlpack__`",
    ),
    row(
        FastPath::JaxTreeUnflatten,
        "jax.tree_unflatten",
        "`tree_unflatten` of `BCOO` and `BCSR`",
        "their constructors",
        "attributes of an object created by each",
    ),
    row(
        FastPath::TensorflowDlpackImport,
        "tensorflow.dlpack_import",
        "`TFE_FromDlpackCapsule` of `tensorflow.python.pywrap_tfe`, with `context()._handle` of `tensorflow.python.eager.context`",
        "`tf.experimental.dlpack.from_dlpack`",
        "address and shape of a tensor over the sample's memory",
    ),
    row(
        FastPath::TensorflowDlpackExport,
        "tensorflow.dlpack_export",
        "`TFE_ToDlpackCapsule` of `tensorflow.python.pywrap_tfe`",
        "`tf.experimental.dlpack.to_dlpack`",
        "address, shape and dtype of a tensor, against `numpy.asarray`",
    ),
    row(
        FastPath::TensorflowNumpyInternal,
        "tensorflow.numpy_internal",
        "the C functions of `_numpy_internal` and `_datatype_enum` of eager tensors",
        "`numpy.asarray`, `Tensor.dtype.as_datatype_enum`",
        "address, shape and dtype of tensors of two types, against `numpy.asarray`",
    ),
    row(
        FastPath::TensorflowEagerTensor,
        "tensorflow.eager_tensor",
        "`EagerTensor` of `tensorflow.python.framework.ops`, for dtypes that TensorFlow's DLPack functions reject",
        "`tf.constant`",
        "dtype and values of a tensor created by each",
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
        "both outside and inside a `tf.Graph`",
    ),
    row(
        FastPath::TensorflowContext,
        "tensorflow.context",
        "`eager_mode` and `context().device_name` of `tensorflow.python.eager.context`",
        "a new thread outside any graph, and the `device` of a new `tf.constant`",
        "eager execution inside a `tf.Graph`, and the device name inside `tf.device`",
    ),
    row(
        FastPath::CupyContiguous,
        "cupy.contiguous",
        "`ndarray._c_contiguous`",
        "`ndarray.strides`",
        "true for a C-contiguous array, false for a transposed one",
    ),
    row(
        FastPath::CupyCurrentHandle,
        "cupy.current_handle",
        "`get_current_stream_ptr` of `cupy_backends.cuda.stream`, if there is only one GPU",
        "`cupy.cuda.get_current_stream`",
        "the handle of `cupy.cuda.get_current_stream`",
    ),
    row(
        FastPath::PaddleExchangeApi,
        "paddle.exchange_api",
        "the C functions in `paddle.Tensor.__dlpack_c_exchange_api__`",
        "`paddle.utils.dlpack.to_dlpack`, `paddle.utils.dlpack.from_dlpack`",
        "address, shape and dtype of a tensor over the sample's memory, against `to_dlpack`",
    ),
    row(
        FastPath::ScipyWithoutConstructor,
        "scipy.without_constructor",
        "`__dict__` of sparse arrays and matrices that are created without their constructor",
        "the constructor",
        "attributes of an object created by each, for each class",
    ),
];

const _: () = {
    let mut index = 0;
    while index < ROWS.len() {
        assert!(ROWS[index].path as usize == index, "the rows are in the order of the enum");
        index += 1;
    }
};
