"""`get`: objects of Ray with their tensors as those of one framework.

Ray unpickles on the thread that calls `ray.get`, so options of unpickling reach the tensors that
tensorferry pickled: these are made from the object store at once, and their own framework is not
needed. Two kinds of objects need more:

- Tensors that were put without tensorferry are converted afterwards.
- Objects of other classes, such as a DataFrame or a model, need the tensors inside of them as they
  were. Unpickling does not tell what is inside of what, so an object with such parts is read once
  more without options, and the tensors in its containers are converted afterwards. Rejected: an own
  unpickler, for which the bytes would have to be taken from private functions of Ray.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, NoneType
from typing import Any

from tensorferry import pickling
from tensorferry._native import FerryError, canonical, classify, plan
from tensorferry._native import to as _to
from tensorferry.functions.trees import Rebuild, flatten

# Element types of arrays that are not tensors of numbers: text, bytes, objects and times.
NUMPY_KINDS_WITHOUT_NUMBERS = frozenset("OSUTMm")
TENSORFLOW_TYPES_WITHOUT_NUMBERS = frozenset({"string", "variant", "resource"})

# Types whose instances hold no tensors.
ATOMS = frozenset({NoneType, bool, int, float, complex, str, bytes, bytearray, type, range, slice})

# The logger to which Ray reports what it cannot unpickle, before it raises.
RAY_LOGGER = "ray._private.serialization"


def get(
    ref_or_refs: Any,
    framework: str | ModuleType,
    *,
    device: Any = None,
    writable: bool | None = None,
    timeout: float | None = None,
) -> Any:
    """Gets objects of Ray with all their tensors as tensors of one framework.

    Memory of the object store is read-only. NumPy, JAX and TensorFlow share it; PyTorch, Paddle and
    CuPy get a copy, or share it with `writable=False`. Another device gets one copy. Tensors that
    were put without tensorferry are read by Ray and then converted.

    The tensors of dicts, lists, tuples, dataclasses and pytrees are converted. Those inside of
    objects of other classes, such as a model or a DataFrame, stay as they are.

    Args:
        ref_or_refs: An object ref, or a list of them.
        framework: The framework of the tensors, as for `ferry.to`.
        device: The device of the tensors, as for `ferry.to`.
        writable: True guarantees tensors that may be written without a change to the stored object.
            False shares its memory with every framework, and the caller must not write the tensors.
        timeout: The limit in seconds, as for `ray.get`.

    Returns:
        What `ray.get` returns, with the tensors in it converted. Objects without tensors are
        returned unchanged.

    Raises:
        FerryError: A tensor cannot be converted to the framework or device.

    Example:
        >>> ref = ray.put(torch.arange(3.0))
        >>> ferry.ray.get(ref, "jax").tolist()
        [0.0, 1.0, 2.0]
    """
    import ray
    from ray.exceptions import RaySystemError

    # The options are checked before the call waits for an object.
    options = pickling.load_options(framework, device, writable)
    failure: object = None
    try:
        with _without_log(), options:
            found = ray.get(ref_or_refs, timeout=timeout)
        leaves, rebuild, has_others = _flatten(found)
    except RaySystemError as error:
        has_others, failure = True, error.client_exc
    try:
        if has_others:
            found = _read_unchanged(ref_or_refs, timeout)
            leaves, rebuild, _ = _flatten(found)
        return _convert_strays(found, leaves, rebuild, framework, device, writable)
    except FerryError:
        # The first error names the tensor alone, and not its position among others.
        if isinstance(failure, FerryError):
            raise failure from None
        raise


def _read_unchanged(ref_or_refs: Any, timeout: float | None) -> Any:
    """What `ray.get` returns.

    Ray wraps our errors and adds a traceback to the text; they are raised as they were.
    """
    import ray
    from ray.exceptions import RaySystemError

    try:
        with _without_log():
            return ray.get(ref_or_refs, timeout=timeout)
    except RaySystemError as error:
        if isinstance(error.client_exc, FerryError):
            raise error.client_exc from None
        raise


def _convert_strays(
    found: Any,
    leaves: list[Any],
    rebuild: Rebuild,
    framework: str | ModuleType,
    device: Any,
    writable: bool | None,
) -> Any:
    """The object with the tensors converted that are not as requested."""
    strays = [
        index
        for index, leaf in enumerate(leaves)
        if not _is_as_requested(leaf, canonical(framework), device, writable)
    ]
    if not strays:
        return found
    converted = _convert([leaves[index] for index in strays], framework, device, writable)
    for index, leaf in zip(strays, converted, strict=True):
        leaves[index] = leaf
    return rebuild(leaves)


def _convert(
    leaves: list[Any], framework: str | ModuleType, device: Any, writable: bool | None
) -> list[Any]:
    """Tensors as those of a framework."""
    if writable is not False:
        return [_to(leaf, framework, device=device, writable=writable) for leaf in leaves]
    # `to` refuses read-only tensors of frameworks that have none. Unpickling shares the memory, if
    # the caller promises not to write.
    table = pickling.dispatch_table()
    result = []
    for leaf in leaves:
        if type(leaf) in table and not _is_sparse(leaf):
            data, buffers = pickling.dumps(leaf)
            result.append(pickling.loads(data, buffers, framework, device, writable))
        else:
            result.append(_to(leaf, framework, device=device))
    return result


def _flatten(found: Any) -> tuple[list[Any], Rebuild, bool]:
    """The tensors of an object, a function that rebuilds it from others, and whether it has others.

    Other objects are neither dense tensors nor containers nor values without tensors: they may have
    got tensors of a framework that their class does not expect.
    """
    others: list[Any] = []

    def note(x: Any) -> bool:
        if type(x) not in ATOMS and not _is_array_without_tensors(x) and not _is_of_ray(x):
            others.append(x)
        return False

    leaves, rebuild = flatten(found, _is_tensor, note)
    return leaves, rebuild, bool(others) or any(_is_sparse(leaf) for leaf in leaves)


def _is_tensor(x: Any) -> bool:
    """Whether an object is a tensor of numbers, and not a scalar of NumPy."""
    match classify(x):
        case (_, "sparse"):
            return True
        case ("numpy", "dense"):
            return hasattr(x, "__setitem__") and x.dtype.kind not in NUMPY_KINDS_WITHOUT_NUMBERS
        case ("tensorflow", "dense"):
            return x.dtype.name not in TENSORFLOW_TYPES_WITHOUT_NUMBERS
        case (_, "dense"):
            return True
    return False


def _is_sparse(x: Any) -> bool:
    found = classify(x)
    return found is not None and found[1] == "sparse"


def _is_array_without_tensors(x: Any) -> bool:
    """Whether an object is a scalar of NumPy or an array of text; arrays of objects hold any."""
    return classify(x) == ("numpy", "dense") and x.dtype.kind != "O"


def _is_of_ray(x: Any) -> bool:
    """Whether an object is a ref or a handle, behind which tensors are elsewhere."""
    import ray

    return isinstance(x, ray.ObjectRef | ray.actor.ActorHandle)


def _framework(x: Any) -> str | None:
    """The framework of a tensor."""
    found = classify(x)
    return None if found is None else found[0]


def _is_as_requested(x: Any, framework: str, device: Any, writable: bool | None) -> bool:
    """Whether a tensor is of the framework, on the device, and can be written if it is to be."""
    if _framework(x) != framework:
        return False
    if device is None and not writable:
        return True
    return plan(x, framework, device=device, writable=writable or None).action == "itself"


@contextmanager
def _without_log() -> Iterator[None]:
    """Keeps Ray from logging what this thread cannot unpickle: it is read again, or raised."""
    logger = logging.getLogger(RAY_LOGGER)
    thread = threading.get_ident()

    def is_of_another_thread(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger.addFilter(is_of_another_thread)
    try:
        yield
    finally:
        logger.removeFilter(is_of_another_thread)
