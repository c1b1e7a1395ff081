"""`ferry.dask`: tensors of every framework through Dask, at the speed of NumPy arrays.

    client.register_plugin(ferry.dask.TensorPlugin())

The plugin works in the processes that send: the client, where it is created, and every worker. The
alternative without a line of code is `tensorferry.dask` as a preload module of Dask, of the workers
(`DASK_DISTRIBUTED__WORKER__PRELOAD`) and of the client (`DASK_DISTRIBUTED__CLIENT__PRELOAD`).
"""

# distributed tries its serialization families in turn. The family "dask" has a function for each
# type, "pickle" has one for everything. The plugin replaces the function of "pickle" by one over
# `ferry.pickling`, which sends the memory of tensors out of band, at any depth of an object. In the
# family "dask" it replaces what distributed registers for tensors by functions that raise
# NotImplementedError, so that distributed goes on to "pickle".
#
# Functions of our own in the family "dask" were rejected: every reader would have to register their
# counterparts, a second client and the client of a cluster with preloaded workers included, and
# distributed's own would read the frames otherwise. A pickle is read by whoever has tensorferry
# installed, registered or not.

from __future__ import annotations

import inspect
import logging
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tensorferry import pickling
from tensorferry._native import FerryError, FrameworkNotFoundError

__all__ = ["TensorPlugin"]

_logger = logging.getLogger(__name__)

#: The protocol of pickles, whatever the connection demands. The scheduler demands 4 of connections
#: to itself, "the common denominator" of old Pythons, and passes data on without reading them; the
#: graphs of tasks, which it reads, reach it with the highest protocol anyway.
_PROTOCOL = 5


class TensorPlugin:
    """A plugin of Dask's workers, with which they and this process send tensors out of band.

    It covers the tensors of PyTorch, JAX, TensorFlow, Paddle, MLX and CuPy, and NumPy arrays of the
    types of ml_dtypes: between workers, to and from the client, in spilled data, and inside tuples,
    dicts and other objects. Subclasses of these types are pickled by their own methods. Creating
    the plugin registers it in this process, for as long as the process lives; registering it with a
    client does so in all workers, those that join later included. A process that only receives
    tensors needs no plugin, but tensorferry.

    Raises:
        FrameworkNotFoundError: distributed is not installed.

    Example:
        >>> from distributed import Client
        >>> import torch
        >>> with Client(n_workers=1, dashboard_address=":0") as client:
        ...     _ = client.register_plugin(ferry.dask.TensorPlugin())
        ...     weights = client.scatter(torch.ones(3, dtype=torch.bfloat16))
        ...     client.submit(torch.sum, weights).result()
        tensor(3., dtype=torch.bfloat16)
    """

    name = "tensorferry"

    def __new__(cls) -> TensorPlugin:
        """Creates an instance of a class that also is a WorkerPlugin, as Dask demands."""
        global _plugin_type
        if _plugin_type is None:
            worker_plugin = _import_distributed().WorkerPlugin
            _plugin_type = type(cls.__name__, (TensorPlugin, worker_plugin), {})
        return object.__new__(_plugin_type)

    def __init__(self) -> None:
        register()

    def setup(self, worker: Any) -> None:
        """Dask calls this in each worker."""
        register()

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        # A local function: cloudpickle sends its code, not its name, so that it runs, and can say
        # what is missing, in a worker without tensorferry.
        def create_plugin() -> Any:
            try:
                import tensorferry.dask

                return tensorferry.dask.TensorPlugin()
            except ModuleNotFoundError as error:
                import sys

                from distributed import WorkerPlugin

                package = (error.name or "tensorferry").partition(".")[0]

                # Dask brings what `setup` raises to the client, and other errors as text.
                class MissingPackage(WorkerPlugin):
                    name = "tensorferry"

                    def setup(self, worker: Any) -> None:
                        raise ModuleNotFoundError(
                            f"{package} is not installed in the worker {worker.address}, which is "
                            f"run by {sys.executable}\n"
                            'hint: install "tensorferry[dask]" in the environment of every worker',
                            name=package,
                        )

                return MissingPackage()

        return create_plugin, ()


_plugin_type: type[TensorPlugin] | None = None


def dask_setup(server: Any) -> None:
    """What Dask calls in a worker, scheduler or client that has this module as a preload module."""
    register()


def register() -> None:
    """Registers with distributed and cloudpickle in this process; a second time has no effect."""
    _import_distributed()
    from distributed.protocol.serialize import pickle_loads, register_serialization_family

    register_serialization_family("pickle", _dump_pickle, pickle_loads)
    for modules, override in _OVERRIDES.items():
        _register_lazily(modules, override)
    # For functions and classes that cloudpickle sends by value, and the tensors that they refer to.
    pickling.enable()


def _import_distributed() -> Any:
    try:
        import distributed
        import distributed.protocol
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "distributed":
            raise
        raise FrameworkNotFoundError(
            'distributed is not installed\nhint: pip install "tensorferry[dask]"'
        ) from error
    return distributed


# The family "pickle".


def _dump_pickle(x: Any, context: dict[str, Any] | None = None) -> tuple[dict[str, Any], list[Any]]:
    """The counterpart of distributed's `pickle_loads`: a header, the pickle and its buffers."""
    try:
        data, buffers = pickling.dumps(_with_gradient(x))
        if _needs_cloudpickle(x, data):
            data, buffers = _dump_cloudpickle(_with_gradient(x))
    except Exception as error:
        from distributed.protocol.serialize import pickle_dumps

        if isinstance(error, FerryError):
            _logger.warning("the framework's own pickle is sent instead: %s", error)
        # What pickle cannot reduce, distributed tries in two more ways, and then says why not.
        return pickle_dumps(x, context={"pickle-protocol": _PROTOCOL})  # type: ignore[no-any-return]
    views = [buffer.raw() for buffer in buffers]
    header = {"serializer": "pickle", "writeable": tuple(not view.readonly for view in views)}
    return header, [data, *views]


def _needs_cloudpickle(x: Any, data: bytes) -> bool:
    """Whether a pickle refers to what only this process has, by the rules of distributed."""
    if isinstance(x, str | bytes):
        return False
    if b"__main__" in data:
        return True
    import cloudpickle

    by_value = cloudpickle.list_registry_pickle_by_value()
    return bool(by_value) and getattr(inspect.getmodule(x), "__name__", None) in by_value


def _dump_cloudpickle(x: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    import cloudpickle

    buffers: list[pickle.PickleBuffer] = []
    data = cloudpickle.dumps(x, protocol=_PROTOCOL, buffer_callback=buffers.append)
    return data, buffers


class _TensorWithGradient:
    """A torch tensor and its gradient, which pickles leave out and distributed's own way keeps."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __reduce__(self) -> tuple[Callable[[Any, Any], Any], tuple[Any, Any]]:
        return _restore_gradient, (self.tensor, self.tensor.grad)


def _restore_gradient(tensor: Any, gradient: Any) -> Any:
    tensor.grad = gradient
    return tensor


def _with_gradient(x: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is None or type(x) is not torch.Tensor:
        return x
    # Other tensors warn when they are asked for their gradient.
    return _TensorWithGradient(x) if x.is_leaf and x.grad is not None else x


# The family "dask".


def _refuse(x: Any) -> Any:
    """Sends distributed on to its next family."""
    raise NotImplementedError(f"tensorferry pickles objects of type {type(x).__name__}")


def _override_torch(serialize: Any) -> None:
    from distributed.protocol import torch as theirs

    for function in (theirs.serialize_torch_Tensor, theirs.serialize_torch_Parameters):
        _replace(serialize, function, _refuse)


def _override_cupy(serialize: Any) -> None:
    # It needs numba or rmm. Without them distributed has no way of its own, and ours suffices.
    with suppress(ImportError):
        from distributed.protocol import cupy as theirs

        _replace(serialize, theirs.dask_serialize_cupy_ndarray, _refuse)
    import cupy

    serialize.register(cupy.ndarray, _refuse)


def _override_numpy(serialize: Any) -> None:
    from distributed.protocol import numpy as theirs

    _replace(serialize, theirs.serialize_numpy_ndarray, _serialize_numpy)


def _serialize_numpy(x: Any, context: dict[str, Any] | None = None) -> Any:
    from distributed.protocol.numpy import serialize_numpy_ndarray

    # distributed sends most types by the letter of their kind, which for some of ml_dtypes names
    # no type ("<f1" of float8_e5m2).
    if x.dtype.type.__module__ == "ml_dtypes":
        raise NotImplementedError(f"tensorferry pickles arrays of {x.dtype}")
    return serialize_numpy_ndarray(x, context=context)


def _replace(serialize: Any, theirs: Any, ours: Any) -> None:
    """Replaces a function for every type that it is registered for.

    The table also holds the subclasses that have been looked up before.
    """
    for kind, function in list(serialize._lookup.items()):
        if function is theirs:
            serialize.register(kind, ours)


def _register_lazily(modules: tuple[str, ...], override: Callable[[Any], None]) -> None:
    """Has `override` called after distributed's own registration for these modules.

    distributed registers both directions at once, at the first type of such a module that it meets
    in either, and puts its functions in the place of earlier ones. `override` therefore takes the
    place of distributed's registration in both, and begins with it.
    """
    from distributed.protocol import dask_deserialize, dask_serialize

    def register_both() -> None:
        override(dask_serialize)

    for module in modules:
        dask_serialize.register_lazy(module, register_both)
        dask_deserialize.register_lazy(module, register_both)
    if modules[0] in sys.modules:
        register_both()


_OVERRIDES: dict[tuple[str, ...], Callable[[Any], None]] = {
    ("numpy",): _override_numpy,
    ("torch", "torchvision"): _override_torch,
    ("cupy", "cupyx"): _override_cupy,
}
