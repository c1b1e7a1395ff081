from collections import UserDict, UserList, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, ClassVar, Literal, Protocol, final, overload

__version__: str

class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]

class FerryError(Exception):
    hint: str | None

class NotATensor(FerryError, TypeError): ...
class UnsupportedDType(FerryError, TypeError): ...
class UnsupportedDevice(FerryError, ValueError): ...
class UnsupportedLayout(FerryError, ValueError): ...
class CopyRequired(FerryError, BufferError, ValueError): ...
class OutOfMemory(FerryError, MemoryError): ...
class FrameworkMissing(FerryError, ImportError): ...
class InvalidTensor(FerryError, BufferError): ...
class InvalidArgument(FerryError, ValueError): ...
class FrameworkRefused(FerryError, RuntimeError): ...

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
class Memory:
    @property
    def used_bytes(self) -> int: ...
    @property
    def used_blocks(self) -> int: ...
    @property
    def idle_bytes(self) -> int: ...
    @property
    def idle_blocks(self) -> int: ...
    @property
    def limit_bytes(self) -> int: ...
    @property
    def hits(self) -> int: ...
    @property
    def misses(self) -> int: ...

@final
class Plan:
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
    def bytes_moved(self) -> int: ...
    @property
    def writable(self) -> bool: ...
    @property
    def steps(self) -> list[tuple[str, str]]: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def advice(self) -> str | None: ...

@final
class TreePlan:
    @property
    def plans(self) -> list[tuple[str, Plan]]: ...
    @property
    def shares(self) -> bool: ...
    @property
    def bytes_moved(self) -> int: ...
    def __len__(self) -> int: ...

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

@final
class Parcel:
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

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
) -> Any: ...
@overload
def plan(
    x: dict[Any, Any]
    | list[Any]
    | tuple[Any, ...]
    | deque[Any]
    | UserDict[Any, Any]
    | UserList[Any]
    | _Dataclass,
    framework: str | ModuleType,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
    budget: int | None = None,
) -> TreePlan: ...
@overload
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
def memory() -> Memory: ...
def trim() -> int: ...
def trace() -> AbstractContextManager[list[Trip]]: ...
def register(
    name: str,
    *,
    types: Sequence[type | str],
    read: Callable[[Any], Any] | None,
    write: Callable[[Parcel], Any] | None,
    dtypes: Sequence[str] | None = None,
    strides: Literal["dense", "permuted", "forward", "any"] = "dense",
    alignment: int = 64,
    immutable: bool = False,
    max_rank: int = 64,
) -> None: ...
def register_tree(
    kind: type,
    flatten: Callable[[Any], tuple[Sequence[Any], Any]],
    unflatten: Callable[[Any, Sequence[Any]], Any],
) -> None: ...
def frameworks() -> list[FrameworkInfo]: ...
