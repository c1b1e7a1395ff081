from collections.abc import Callable, ItemsView, Iterator, KeysView, Sequence, ValuesView
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol, Self, SupportsIndex, final, overload

from typing_extensions import Buffer

from tensorferry._framework_types import (
    JaxArray,
    JaxName,
    MlxArray,
    MlxName,
    NumpyArray,
    NumpyName,
    PaddleName,
    PaddleTensor,
    TorchName,
    TorchTensor,
)
from tensorferry.jobs import Job
from tensorferry.traces import Trips

__version__: str
_C_API: object

def _fast_paths() -> list[dict[str, str | None]]: ...
def _fast_path_enabled(name: str) -> bool: ...
def _fast_path_probed(name: str, reason: str | None = None) -> None: ...

class _Array(Protocol):
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

class _DLPack(Protocol):
    def __dlpack__(self) -> Any: ...

class _Convertible(Protocol):
    def __array__(self) -> Any: ...

# What `to` makes one tensor of, as far as types tell. Other objects may be dataclasses, containers
# that were registered, or tensors of a framework that was; their results have the type Any.
_Tensor = _Array | Buffer | _DLPack | _Convertible

# Sparse tensors of SciPy, CuPy, JAX and the package `sparse`, and those of TensorFlow. A sparse
# tensor of PyTorch has the type of a dense one, so a checker expects a dense result of it.
class _ToDense(Protocol):
    @property
    def todense(self) -> Any: ...

class _DenseShape(Protocol):
    @property
    def dense_shape(self) -> Any: ...

_Sparse = _ToDense | _DenseShape

class FerryError(Exception):
    @property
    def hint(self) -> str | None: ...

class NotATensorError(FerryError, TypeError): ...
class UnsupportedDTypeError(FerryError, TypeError): ...
class UnsupportedError(FerryError, ValueError): ...
class CopyRequiredError(FerryError, BufferError, ValueError): ...
class OutOfMemoryError(FerryError, MemoryError): ...
class FrameworkNotFoundError(FerryError, ImportError): ...
class InvalidTensorError(FerryError, BufferError): ...
class BorrowError(FerryError, BufferError): ...
class InvalidArgumentError(FerryError, ValueError): ...
class FrameworkError(FerryError, RuntimeError): ...
class DeadlineError(FerryError, TimeoutError): ...
class FileFormatError(FerryError, ValueError): ...
class TicketError(FerryError, ConnectionError): ...

def _os_error(errno: int | None, message: str) -> OSError: ...
def _check_import(module: str) -> None: ...
def _import_orders() -> list[tuple[str, str, str, str]]: ...

@final
class FileTensor:
    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def bytes(self) -> int: ...
    @property
    def offset(self) -> int | None: ...
    @property
    def native(self) -> bool: ...
    @property
    def fortran(self) -> bool: ...

@final
class File:
    def __new__(
        cls,
        path: str,
        *,
        format: str | None = None,
        dtype: Any = None,
        shape: list[int] | None = None,
        dialect: str | None = None,
        max_decompressed_bytes: int | None = None,
    ) -> File: ...
    @property
    def format(self) -> str: ...
    @property
    def is_single(self) -> bool: ...
    @property
    def path(self) -> Path: ...
    @property
    def metadata(self) -> dict[str, str]: ...
    @property
    def _tree(self) -> str | None: ...
    @property
    def tensors(self) -> list[FileTensor]: ...
    @property
    def skipped(self) -> list[tuple[str, str]]: ...
    def load(
        self, name: str, framework: str | ModuleType, mmap: bool = True, **options: Any
    ) -> Any: ...
    def load_several(
        self, names: list[str], framework: str | ModuleType, mmap: bool = True, **options: Any
    ) -> dict[str, Any]: ...
    def _repr_html_(self) -> str: ...

@final
class Writer:
    def __new__(
        cls,
        path: str,
        tensors: list[tuple[str, str, list[int]]],
        *,
        format: str | None = None,
        metadata: list[tuple[str, str]] = ...,
        compression: int | None = None,
        dialect: str = "onnx",
        durable: bool = True,
    ) -> Writer: ...
    def begin(self, number: int) -> None: ...
    def write(self, x: Any) -> None: ...
    def finish(self) -> None: ...
    def abandon(self) -> None: ...

@final
class _Framework:
    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def module(self) -> str: ...
    @property
    def distributions(self) -> list[str]: ...
    @property
    def aliases(self) -> list[str]: ...
    @property
    def has_dense(self) -> bool: ...
    @property
    def has_sparse(self) -> bool: ...
    @property
    def has_cuda(self) -> bool: ...
    @property
    def namespace(self) -> str | None: ...

def register() -> list[_Framework]: ...
def canonical(framework: str | ModuleType) -> str: ...
def classify(x: object) -> tuple[str, str] | None: ...
def classify_type(kind: type) -> tuple[str, str] | None: ...
def _is_refused(x: object) -> bool: ...

@final
class FrameworkInfo:
    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def version(self) -> str | None: ...
    @property
    def installed(self) -> bool: ...
    @property
    def loaded(self) -> bool: ...

@final
class MemoryStats:
    @property
    def used_bytes(self) -> int: ...
    @property
    def used_blocks(self) -> int: ...
    @property
    def idle_bytes(self) -> int: ...
    @property
    def idle_blocks(self) -> int: ...
    @property
    def idle_shared_bytes(self) -> int: ...
    @property
    def pinned_bytes(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...
    @property
    def limit_bytes(self) -> int: ...
    @property
    def hits(self) -> int: ...
    @property
    def misses(self) -> int: ...
    def _repr_html_(self) -> str: ...

@final
class Plan:
    @property
    def kind(self) -> Literal["tensor", "tree", "sparse", "array"]: ...
    @property
    def name(self) -> str | None: ...
    @property
    def parts(self) -> list[Plan]: ...
    @property
    def source(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def action(self) -> Literal["itself", "share", "copy"]: ...
    @property
    def shares(self) -> bool: ...
    @property
    def source_dtype(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def source_device(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def bytes_moved(self) -> int: ...
    @property
    def extra_bytes(self) -> int: ...
    @property
    def expected_seconds(self) -> float | None: ...
    @property
    def writable(self) -> bool: ...
    @property
    def steps(self) -> list[tuple[str, str]]: ...
    @property
    def transfer_path(self) -> str | None: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def advice(self) -> str | None: ...
    @property
    def source_format(self) -> str: ...
    @property
    def format(self) -> str | None: ...
    @property
    def nnz(self) -> int: ...
    def as_dict(self) -> dict[str, Any]: ...
    def _repr_html_(self) -> str: ...

@final
class Trip:
    @property
    def plan(self) -> Plan: ...
    @property
    def seconds(self) -> float: ...
    @property
    def bytes_moved(self) -> int: ...
    @property
    def shares(self) -> bool: ...
    def _repr_html_(self) -> str: ...

# The native part of a Job.
@final
class _Transfer:
    @property
    def bytes_moved(self) -> int: ...
    @property
    def bytes_total(self) -> int: ...
    @property
    def seconds_queued(self) -> float: ...
    def cancel(self) -> bool: ...
    def why_abandoned(self) -> tuple[str, str] | None: ...

@final
class Ticket:
    def __new__(cls, claim: Ticket | str | bytes) -> Self: ...
    @property
    def leases(self) -> int | None: ...
    @property
    def consumers(self) -> int | None: ...
    @property
    def pid(self) -> int: ...
    def withdraw(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_error: object) -> None: ...
    def __bytes__(self) -> bytes: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Ticket], tuple[bytes]]: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object) -> Self: ...

@final
class ExportedTensor:
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

# The overloads of `to` and `to_async`: containers first, because their result does not depend on
# the framework; then sparse tensors; then each framework that has types. An argument of the type
# Any matches several of them, and the result is Any. The last overload takes everything else.
@overload
def to(
    x: dict[Any, Any],
    framework: str | ModuleType,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> dict[Any, Any]: ...
@overload
def to(
    x: list[Any],
    framework: str | ModuleType,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> list[Any]: ...
@overload
def to(
    x: tuple[Any, ...],
    framework: str | ModuleType,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> tuple[Any, ...]: ...
@overload
def to(
    x: _Sparse,
    framework: str | ModuleType,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> Any: ...
@overload
def to(
    x: _Tensor,
    framework: NumpyName,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> NumpyArray: ...
@overload
def to(
    x: _Tensor,
    framework: TorchName,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> TorchTensor: ...
@overload
def to(
    x: _Tensor,
    framework: JaxName,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> JaxArray: ...
@overload
def to(
    x: _Tensor,
    framework: PaddleName,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> PaddleTensor: ...
@overload
def to(
    x: _Tensor,
    framework: MlxName,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> MlxArray: ...
@overload
def to(
    x: Any,
    framework: str | ModuleType,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> Any: ...
def _to_any(x: Any, framework: str | ModuleType, **options: Any) -> Any: ...
def _to_results(x: Any, framework: str | ModuleType, **options: Any) -> Any: ...
def _plan_any(x: Any, framework: str | ModuleType) -> Plan: ...
@overload
def to_async(
    x: dict[Any, Any],
    framework: str | ModuleType,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
) -> Job[dict[Any, Any]]: ...
@overload
def to_async(
    x: list[Any],
    framework: str | ModuleType,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
) -> Job[list[Any]]: ...
@overload
def to_async(
    x: tuple[Any, ...],
    framework: str | ModuleType,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
) -> Job[tuple[Any, ...]]: ...
@overload
def to_async(
    x: _Sparse,
    framework: str | ModuleType,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
) -> Job[Any]: ...
@overload
def to_async(
    x: _Tensor,
    framework: NumpyName,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
) -> Job[NumpyArray]: ...
@overload
def to_async(
    x: _Tensor,
    framework: TorchName,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
) -> Job[TorchTensor]: ...
@overload
def to_async(
    x: _Tensor,
    framework: JaxName,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
) -> Job[JaxArray]: ...
@overload
def to_async(
    x: _Tensor,
    framework: PaddleName,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
) -> Job[PaddleTensor]: ...
@overload
def to_async(
    x: _Tensor,
    framework: MlxName,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
) -> Job[MlxArray]: ...
@overload
def to_async(
    x: Any,
    framework: str | ModuleType,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    out: Any = None,
) -> Job[Any]: ...
def plan(
    x: Any,
    framework: str | ModuleType,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
) -> Plan: ...
def publish(
    x: Any,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    budget: int | None = None,
    once: bool = False,
    timeout: float | None = None,
) -> Ticket: ...

# A ticket may lead to a tree, and its type does not say so. The overloads assume one tensor. Who
# attaches a tree passes the framework's module or a plain str, for which the result is Any.
@overload
def attach(
    ticket: Ticket | str | bytes,
    framework: NumpyName = "numpy",
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    timeout: float | None = None,
) -> NumpyArray: ...
@overload
def attach(
    ticket: Ticket | str | bytes,
    framework: TorchName,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    timeout: float | None = None,
) -> TorchTensor: ...
@overload
def attach(
    ticket: Ticket | str | bytes,
    framework: JaxName,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    timeout: float | None = None,
) -> JaxArray: ...
@overload
def attach(
    ticket: Ticket | str | bytes,
    framework: PaddleName,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    timeout: float | None = None,
) -> PaddleTensor: ...
@overload
def attach(
    ticket: Ticket | str | bytes,
    framework: MlxName,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    timeout: float | None = None,
) -> MlxArray: ...
@overload
def attach(
    ticket: Ticket | str | bytes,
    framework: str | ModuleType = "numpy",
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
    timeout: float | None = None,
) -> Any: ...
@overload
def empty_shared(
    shape: int | Sequence[int],
    dtype: Any,
    *,
    framework: NumpyName = "numpy",
    device: Any = None,
) -> NumpyArray: ...
@overload
def empty_shared(
    shape: int | Sequence[int],
    dtype: Any,
    *,
    framework: TorchName,
    device: Any = None,
) -> TorchTensor: ...
@overload
def empty_shared(
    shape: int | Sequence[int],
    dtype: Any,
    *,
    framework: JaxName,
    device: Any = None,
) -> JaxArray: ...
@overload
def empty_shared(
    shape: int | Sequence[int],
    dtype: Any,
    *,
    framework: PaddleName,
    device: Any = None,
) -> PaddleTensor: ...
@overload
def empty_shared(
    shape: int | Sequence[int],
    dtype: Any,
    *,
    framework: MlxName,
    device: Any = None,
) -> MlxArray: ...
@overload
def empty_shared(
    shape: int | Sequence[int],
    dtype: Any,
    *,
    framework: str | ModuleType = "numpy",
    device: Any = None,
) -> Any: ...
@overload
def empty_aligned(
    shape: int | Sequence[int],
    dtype: Any,
    *,
    framework: NumpyName = "numpy",
    device: Any = None,
) -> NumpyArray: ...
@overload
def empty_aligned(
    shape: int | Sequence[int],
    dtype: Any,
    *,
    framework: TorchName,
    device: Any = None,
) -> TorchTensor: ...
@overload
def empty_aligned(
    shape: int | Sequence[int],
    dtype: Any,
    *,
    framework: JaxName,
    device: Any = None,
) -> JaxArray: ...
@overload
def empty_aligned(
    shape: int | Sequence[int],
    dtype: Any,
    *,
    framework: PaddleName,
    device: Any = None,
) -> PaddleTensor: ...
@overload
def empty_aligned(
    shape: int | Sequence[int],
    dtype: Any,
    *,
    framework: MlxName,
    device: Any = None,
) -> MlxArray: ...
@overload
def empty_aligned(
    shape: int | Sequence[int],
    dtype: Any,
    *,
    framework: str | ModuleType = "numpy",
    device: Any = None,
) -> Any: ...
def memory_stats() -> MemoryStats: ...
def empty_cache() -> int: ...
def trace() -> AbstractContextManager[Trips]: ...
def _trips_text(trips: list[Trip], notes: list[str]) -> str: ...
def _trips_html(trips: list[Trip], notes: list[str]) -> str: ...
def register_framework(
    name: str,
    *,
    types: Sequence[type | str],
    read: Callable[[Any], Any] | None,
    write: Callable[[ExportedTensor], Any] | None,
    dtypes: Sequence[str] | None = None,
    strides: Literal["dense", "permuted", "forward", "any"] = "dense",
    alignment: int = 64,
    immutable: bool = False,
    max_rank: int = 64,
) -> None: ...
def register_container(
    kind: type,
    flatten: Callable[[Any], tuple[Sequence[Any], Any]],
    unflatten: Callable[[Any, Sequence[Any]], Any],
) -> None: ...
def frameworks() -> list[FrameworkInfo]: ...

@final
class _ArrowColumn: ...

@final
class _Payload:
    def __call__(
        self,
        framework: str,
        device: Any = None,
        flags: int = 0,
        attributes: dict[str, Any] | None = None,
    ) -> Any: ...
    def __reduce_ex__(self, protocol: SupportsIndex, /) -> Any: ...

@final
class _SparseStart:
    def __reduce__(self) -> Any: ...

@final
class _OwnReduction:
    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]: ...
    def __reduce_ex__(self, protocol: SupportsIndex, /) -> Any: ...

@final
class _DispatchTable:
    def __new__(cls, fallback: dict[type, Any] | None = None) -> _DispatchTable: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __getitem__(self, key: type, /) -> Callable[[Any], Any]: ...
    def __iter__(self) -> Iterator[type]: ...
    def __len__(self) -> int: ...
    def get(self, key: Any, default: Any = None) -> Any: ...
    def items(self) -> ItemsView[type, Callable[[Any], Any]]: ...
    def keys(self) -> KeysView[type]: ...
    def values(self) -> ValuesView[Callable[[Any], Any]]: ...

@final
class _LoadOptions:
    def __new__(
        cls, framework: Any = None, device: Any = None, writable: Any = None
    ) -> _LoadOptions: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_error: object) -> None: ...

def _rebuild(
    version: int,
    buffer: Any = None,
    dtype: Any = None,
    shape: Any = None,
    order: Any = None,
    *_newer: Any,
) -> Any: ...
def _reduce(object: Any) -> Any: ...
def _plan_payloads(pickle: Callable[[], object]) -> Plan: ...

@final
class _BatchOptions:
    def __new__(
        cls, loader: Any, framework: Any, device: Any, dtype: Any, copy: bool | None, stable: bool
    ) -> _BatchOptions: ...
    def start(self, batch: Any, memory: _BatchMemory) -> _StartedBatch: ...

@final
class _BatchMemory:
    def __new__(cls, prefetch: int) -> _BatchMemory: ...
    def close(self) -> None: ...

@final
class _StartedBatch:
    @property
    def job(self) -> Job[Any]: ...
    def run(self) -> None: ...
    def order_for_consumer(self, result: Any) -> Any: ...

@final
class _ArrowOptions:
    def __new__(
        cls, *, nulls: Any, ragged: Any, pad: Any, dictionary: Any, temporal: Any, dtype: Any
    ) -> _ArrowOptions: ...
    @property
    def is_decoded(self) -> bool: ...
    @property
    def has_times(self) -> bool: ...
    @property
    def has_mask(self) -> bool: ...

@final
class _ArrowBatches:
    def __iter__(self) -> _ArrowBatches: ...
    def __next__(self) -> Any: ...

@final
class _ExportedColumn:
    @property
    def plan(self) -> Plan: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...
    def __arrow_c_device_array__(
        self, requested_schema: object | None = None, **kwargs: object
    ) -> tuple[object, object]: ...

@final
class _ExportedTable:
    @property
    def plan(self) -> Plan: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...
    def __arrow_c_device_array__(
        self, requested_schema: object | None = None, **kwargs: object
    ) -> tuple[object, object]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

def _arrow_export_column(
    x: Any, validity: Any = None, *, traced: bool = False
) -> _ExportedColumn: ...
def _arrow_export_table(
    columns: list[tuple[str, Any]], *, traced: bool = False
) -> _ExportedTable: ...
def _stored(x: Any) -> Any: ...
def _library_hint(x: Any) -> str | None: ...
def _arrow_read(
    x: Any,
    options: _ArrowOptions,
    *,
    columns: list[str] | None = None,
    stack: bool = False,
    plan: bool = False,
    name: str | None = None,
    unit: str | None = None,
) -> Any: ...
def _arrow_stack(columns: list[tuple[str, Any]], options: _ArrowOptions) -> Any: ...
def _arrow_batches(
    x: Any,
    rows: int,
    options: _ArrowOptions,
    *,
    columns: list[str] | None,
    stack: bool,
    drop_last: bool,
) -> _ArrowBatches: ...
def _sparse_to(
    x: Any,
    framework: str | ModuleType,
    format: Any,
    blocksize: Any,
    device: Any,
    dtype: Any,
    copy: Any,
    writable: Any,
    stream: Any,
    /,
) -> Any: ...
def _sparse_to_dense(
    x: Any,
    framework: str | ModuleType,
    device: Any,
    dtype: Any,
    copy: Any,
    writable: Any,
    stream: Any,
    /,
) -> Any: ...
def _sparse_plan(
    x: Any,
    framework: str | ModuleType,
    format: Any,
    blocksize: Any,
    dense: bool,
    device: Any,
    dtype: Any,
    copy: Any,
    writable: Any,
    stream: Any,
    /,
) -> Plan: ...
def _sparse_use_framework_engine(is_on: bool) -> None: ...
