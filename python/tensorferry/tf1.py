"""Tensors in and out of TensorFlow 1.x graphs, without a copy through the host.

A graph of `tf.compat.v1` accepts and returns only NumPy arrays. An inlet is a tensor in the graph
whose value is the tensor that was bound to it, from any framework, on the GPU or on the host; an
outlet converts a tensor of the graph to any framework.

    inlet = ferry.tf1.inlet((None, 16), "float32")
    outlet = ferry.tf1.outlet(model(inlet.tensor), "torch")
    with tf.compat.v1.Session() as session:
        inlet.bind(torch_tensor)
        session.run(outlet.op)
        result = outlet.take()

Both run Python code inside the graph, so the graph cannot be saved, or run by another process.
TensorFlow keeps int32 tensors in host memory even with a GPU: such tensors are copied through the
host.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from tensorferry._native import InvalidArgumentError, plan, to

__all__ = ["Inlet", "Outlet", "inlet", "outlet"]


def _tensorflow() -> Any:
    return importlib.import_module("tensorflow")


def _error(fact: str, hint: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{fact}\nhint: {hint}")


class Inlet:
    """A tensor in a graph, whose value is the tensor that was last bound to it.

    Example:
        >>> import tensorflow as tf
        >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ...     inlet = ferry.tf1.inlet((None,), "float32")
        ...     outlet = ferry.tf1.outlet(2 * inlet.tensor, "torch")
        ...     inlet.bind(np.ones(2, "float32"))
        ...     _ = session.run(outlet.op)
        ...     outlet.take().tolist()
        [2.0, 2.0]
    """

    def __init__(
        self, shape: Sequence[int | None] | None, dtype: Any, device: str | None, name: str | None
    ) -> None:
        tf = _tensorflow()
        self.dtype = tf.as_dtype(dtype)
        self.shape = tf.TensorShape(shape)
        self._lock = threading.Lock()
        self._bound: Any = None
        with tf.device(device if device is not None else _default_device(tf, self.dtype)):
            tensor = tf.py_function(self._bound_value, [], Tout=self.dtype, name=name or "inlet")
        tensor.set_shape(self.shape)
        #: The tensor to build the graph on.
        self.tensor = tensor

    def bind(self, x: Any) -> None:
        """Sets the value of the tensor for the next runs: a tensor of any framework.

        The tensor is kept until the next bind, and the call waits for work that is queued on it.
        Its memory is shared if TensorFlow can use it: do not write to it before the run is over,
        and bind it again after you have written to it.
        """
        report = plan(x, "tensorflow", dtype=self.dtype.name)
        if report.kind != "tensor":
            raise _error("an inlet takes one tensor, not a tree", "make an inlet for each")
        if report.source_dtype != self.dtype.name:
            raise _error(
                f"the inlet holds {self.dtype.name} and the tensor holds {report.source_dtype}",
                f'cast it first: ferry.to(x, framework, dtype="{self.dtype.name}")',
            )
        if not self.shape.is_compatible_with(report.shape):
            raise _error(
                f"the inlet has shape {self.shape} and the tensor has {tuple(report.shape)}",
                "bind a tensor of the inlet's shape, or make the inlet with None where it varies",
            )
        # Converted here, not in the run, which uses another thread: the current stream of a
        # framework is a property of the thread.
        with _tensorflow().__internal__.eager_context.eager_mode():
            bound = to(x, "tensorflow")
        with self._lock:
            self._bound = bound

    def _bound_value(self) -> Any:
        with self._lock:
            bound = self._bound
        if bound is None:
            raise _error(
                "no tensor was bound to the inlet", "call inlet.bind(x) before session.run"
            )
        return bound

    def __repr__(self) -> str:
        return f"<Inlet {self.dtype.name} {self.shape}>"


class Outlet:
    """A tensor of a graph, converted to another framework after each run.

    Example:
        >>> import tensorflow as tf
        >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ...     inlet = ferry.tf1.inlet((None,), "float32")
        ...     outlet = ferry.tf1.outlet(2 * inlet.tensor, "torch")
        ...     inlet.bind(np.ones(2, "float32"))
        ...     _ = session.run(outlet.op)
        ...     outlet.take().tolist()
        [2.0, 2.0]
    """

    def __init__(
        self, tensor: Any, framework: str | ModuleType, device: str | None, name: str | None
    ) -> None:
        tf = _tensorflow()
        self.framework = framework
        self._lock = threading.Lock()
        self._value: list[Any] = []
        with tf.device(
            device if device is not None else tensor.device or _default_device(tf, tensor.dtype)
        ):
            op = tf.py_function(self._store, [tensor], Tout=[], name=name or "outlet")
        #: The operation to pass to `session.run`.
        self.op = op

    def _store(self, value: Any) -> None:
        with self._lock:
            self._value = [value]

    def take(self) -> Any:
        """The value of the last run, as a tensor of the framework. Each value is returned once."""
        with self._lock:
            value, self._value = self._value, []
        if not value:
            raise _error(
                "the outlet has no value",
                "call session.run(outlet.op) first; each value is returned once",
            )
        return to(value[0], self.framework)

    def __repr__(self) -> str:
        return f"<Outlet to {self.framework}>"


def _default_device(tf: Any, dtype: Any) -> str:
    """The device of tensors of this type: the host for int32 and strings."""
    on_host = dtype in (tf.int32, tf.string) or not tf.config.list_physical_devices("GPU")
    return "/CPU:0" if on_host else "/GPU:0"


def inlet(
    shape: Sequence[int | None] | None,
    dtype: Any,
    *,
    device: str | None = None,
    name: str | None = None,
) -> Inlet:
    """Makes a tensor in the current graph whose value `bind` sets.

    Args:
        shape: Its shape, with None for lengths that vary; None if the shape is unknown.
        dtype: Its element type, as a name or a TensorFlow dtype.
        device: Its device, such as "/GPU:0"; by default the GPU if there is one, except for int32.
        name: Its name in the graph.

    Returns:
        An Inlet, whose `tensor` the graph is built on.

    Raises:
        TypeError: TensorFlow does not know the type.

    Example:
        >>> import tensorflow as tf
        >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ...     inlet = ferry.tf1.inlet((None,), "float32")
        ...     outlet = ferry.tf1.outlet(2 * inlet.tensor, "torch")
        ...     inlet.bind(np.ones(2, "float32"))
        ...     _ = session.run(outlet.op)
        ...     outlet.take().tolist()
        [2.0, 2.0]
    """
    return Inlet(shape, dtype, device, name)


def outlet(
    tensor: Any, framework: str | ModuleType, *, device: str | None = None, name: str | None = None
) -> Outlet:
    """Converts a tensor of the current graph to another framework: run `op`, then call `take`.

    Args:
        tensor: A tensor of the graph.
        framework: The framework of the tensor that `take` returns, as for `to`.
        device: The device of the operation; by default the device of the tensor.
        name: The name of the operation in the graph.

    Returns:
        An Outlet, whose `op` the session runs.

    Raises:
        InvalidArgumentError: `take` was called before a run.

    Example:
        >>> import tensorflow as tf
        >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ...     inlet = ferry.tf1.inlet((None,), "float32")
        ...     outlet = ferry.tf1.outlet(2 * inlet.tensor, "torch")
        ...     inlet.bind(np.ones(2, "float32"))
        ...     _ = session.run(outlet.op)
        ...     outlet.take().tolist()
        [2.0, 2.0]
    """
    return Outlet(tensor, framework, device, name)
