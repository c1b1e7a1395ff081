"""`ferry.pickling`: pickles whose tensors travel out of band, without a needless copy.

`dumps` and `loads` are for code that moves pickles itself. `enable` makes cloudpickle, and the
engines that use it, pickle tensors in the same way. `Pickler` and `dispatch_table` are for other
picklers.
"""

import copyreg
import io
import pickle
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import IO, Any, cast

from tensorferry._native import (
    Plan,
    _DispatchTable,
    _LoadOptions,
    _plan_payloads,
    _rebuild,  # noqa: F401  streams name it
    _reduce,  # noqa: F401  the dispatch table imports it from here
)
from tensorferry.pickling.cloudpickle_tables import disable, enable

__all__ = ["Pickler", "disable", "dispatch_table", "dumps", "enable", "loads", "plan"]

#: Unpickling on this thread inside of `with load_options(framework, device, writable):` makes every
#: tensor one of the framework, on the device. For `ferry.ray` and `ferry.dask`.
load_options = _LoadOptions

Mapping.register(_DispatchTable)

_OWN_TABLE: Any = _DispatchTable(copyreg.dispatch_table)


def dispatch_table() -> Mapping[type, Callable[[Any], Any]]:
    """A dispatch table for picklers: from the types of tensors to their reducer.

    A look-up asks the register of frameworks, and imports nothing. Iteration gives the types of the
    frameworks that are loaded. Subclasses of tensors are not in the table: they keep the reducers
    of their own.

    Returns:
        A Mapping, to be combined with other tables by `collections.ChainMap`.

    Example:
        >>> table = ferry.pickling.dispatch_table()
        >>> np.ndarray in table, dict in table
        (True, False)
    """
    return cast(Mapping[type, Callable[[Any], Any]], _DispatchTable())


class Pickler(pickle.Pickler):
    """A `pickle.Pickler` that passes the bytes of tensors to `buffer_callback`.

    Args:
        file: Has a `write` method, which takes bytes.
        protocol: 5 or later for out-of-band buffers, which is the default. Earlier protocols hold
            the bytes themselves.
        buffer_callback: Called with a `pickle.PickleBuffer` for each payload. None puts the bytes
            into the stream.

    Example:
        >>> import io
        >>> file, buffers = io.BytesIO(), []
        >>> ferry.pickling.Pickler(file, buffer_callback=buffers.append).dump({"x": np.arange(3)})
        >>> len(buffers)
        1
    """

    def __init__(
        self,
        file: IO[bytes],
        protocol: int = 5,
        *,
        buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None,
    ) -> None:
        super().__init__(file, protocol, buffer_callback=buffer_callback)
        self.dispatch_table = _OWN_TABLE


def dumps(obj: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Pickles an object, with the bytes of its tensors out of band.

    The buffers share the memory of the tensors where it has no gaps and is on the host; other
    tensors are copied once. What travels is the tensor, not the storage behind it. Tensors of
    equal address, shape, strides and dtype become one payload, and share memory afterwards.

    Args:
        obj: Any object that can be pickled.

    Returns:
        The pickle, and its buffers in the order in which `loads` needs them.

    Raises:
        FerryError: A tensor cannot be read.

    Example:
        >>> data, buffers = ferry.pickling.dumps({"x": np.arange(3)})
        >>> ferry.pickling.loads(data, buffers)["x"].tolist()
        [0, 1, 2]
    """
    file = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    Pickler(file, buffer_callback=buffers.append).dump(obj)
    return file.getvalue(), buffers


def loads(
    data: Any,
    buffers: Iterable[Any] = (),
    framework: str | ModuleType | None = None,
    device: Any = None,
    writable: bool | None = None,
) -> Any:
    """Loads a pickle of `dumps`. As with every pickle, load only what you trust.

    Tensors share writable buffers. They share read-only buffers if their framework keeps them
    read-only (NumPy, JAX, TensorFlow); tensors of PyTorch, Paddle and CuPy are copies, unless
    `writable` is False.

    Args:
        data: The pickle.
        buffers: Its buffers, in the order of `dumps`: any objects with the buffer protocol.
        framework: The framework of every tensor, also of those inside of objects of other classes,
            which may not work with them; None for the one that it had. Sparse tensors stay as they
            are if the framework has none.
        device: The device of every tensor; None for the one that it had.
        writable: True guarantees tensors that may be written without a change to the buffers. False
            shares read-only buffers with every framework, and the caller must not write the
            tensors.

    Returns:
        The object.

    Raises:
        FrameworkNotFoundError: The framework of a tensor is not installed.
        InvalidTensorError: The description of a tensor does not match its buffer, or has a version
            that is not known.
        UnsupportedDTypeError: The framework does not have the type, such as int64 for JAX
            while x64 is off.

    Example:
        >>> data, buffers = ferry.pickling.dumps({"x": np.arange(3, dtype=np.float32)})
        >>> ferry.pickling.loads(data, buffers, "torch")["x"].tolist()
        [0.0, 1.0, 2.0]
    """
    with _LoadOptions(framework, device, writable):
        return pickle.loads(data, buffers=buffers)


def plan(obj: Any) -> Plan:
    """Explains what `dumps` would send, without copying bytes.

    Args:
        obj: As for `dumps`.

    Returns:
        A Plan of kind "tree" with a part for each payload, in the order of the buffers: what is
        shared, and what is packed or downloaded. Objects without tensors are not listed.

    Raises:
        FerryError: A tensor cannot be read.

    Example:
        >>> plan = ferry.pickling.plan({"x": np.ones((4, 4))[:, 0]})
        >>> [(part.action, part.bytes_moved) for part in plan.parts]
        [('copy', 32)]
    """
    return _plan_payloads(
        lambda: Pickler(io.BytesIO(), buffer_callback=lambda buffer: None).dump(obj)
    )
