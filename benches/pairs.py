"""Small sources of every kind, and the native one-liners that convert each to each framework.

The one-liners between two frameworks are those of `tensorferry bench`. To add one that it does not
measure, or a pair with another kind of source, give it a line in `MORE`. `x` is the source; the
other names are in `namespace`. Functions that are deep in a module have a short name there, so that
a small call is not measured with the attribute lookups; ours is always spelt `ferry.to(x, ...)`.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import numpy as np

from tensorferry._tools import introspect, samples
from tensorferry._tools.bench import methods

FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow")
SHORT_NAMES = {
    "torch.utils.dlpack.to_dlpack": "torch_to_dlpack",
    "torch.utils.dlpack.from_dlpack": "torch_from_dlpack",
    "jax.dlpack.from_dlpack": "jax_from_dlpack",
    "tf.experimental.dlpack.from_dlpack": "tf_from_dlpack",
    "tf.experimental.dlpack.to_dlpack": "tf_to_dlpack",
}
MORE: dict[tuple[str, str], list[str]] = {
    ("torch", "jax"): ["jax.device_put(x.numpy())"],
    ("torch", "tensorflow"): [
        "tf_from_dlpack(x.__dlpack__())",
        "tf_from_dlpack(x.numpy().__dlpack__())",
        "tf.convert_to_tensor(x)",
    ],
    ("jax", "tensorflow"): ["tf.convert_to_tensor(x)"],
    ("tensorflow", "torch"): [
        "torch.from_numpy(np.from_dlpack(x))",
        "torch.from_numpy(np.asarray(memoryview(x)))",
    ],
    ("tensorflow", "jax"): [
        "jax_from_dlpack(np.from_dlpack(x))",
        "jnp.asarray(np.asarray(x))",
        "jax.device_put(np.asarray(memoryview(x)))",
    ],
    ("bytes", "numpy"): ["np.frombuffer(x, np.uint8)"],
    ("bytes", "torch"): [
        "torch.frombuffer(x, dtype=torch.uint8)",
        "torch.frombuffer(bytearray(x), dtype=torch.uint8)",
        "torch.tensor(np.frombuffer(x, np.uint8))",
        "torch.from_numpy(np.frombuffer(x, np.uint8).copy())",
    ],
    ("bytes", "jax"): ["jnp.asarray(np.frombuffer(x, np.uint8))", "jnp.frombuffer(x, np.uint8)"],
    ("bytes", "tensorflow"): [
        "tf.io.decode_raw(x, tf.uint8)",
        "tf.convert_to_tensor(np.frombuffer(x, np.uint8))",
    ],
    ("bytearray", "numpy"): ["np.frombuffer(x, np.uint8)"],
    ("bytearray", "torch"): [
        "torch.frombuffer(x, dtype=torch.uint8)",
        "torch.from_numpy(np.frombuffer(x, np.uint8))",
    ],
    ("bytearray", "jax"): [
        "jax_from_dlpack(np.frombuffer(x, np.uint8))",
        "jnp.asarray(np.frombuffer(x, np.uint8))",
        "jax.device_put(np.frombuffer(x, np.uint8))",
    ],
    ("bytearray", "tensorflow"): ["tf_from_dlpack(np.frombuffer(x, np.uint8).__dlpack__())"],
    ("memoryview", "numpy"): ["np.asarray(x)", "np.frombuffer(x, np.float32)"],
    ("memoryview", "torch"): [
        "torch.frombuffer(x, dtype=torch.float32)",
        "torch.from_numpy(np.asarray(x))",
    ],
    ("memoryview", "jax"): [
        "jax_from_dlpack(np.asarray(x))",
        "jnp.asarray(np.asarray(x))",
        "jax.device_put(np.asarray(x))",
    ],
    ("memoryview", "tensorflow"): ["tf_from_dlpack(np.asarray(x).__dlpack__())"],
}
PAIRS = [
    (kind, target)
    for kind in (*FRAMEWORKS, "bytes", "bytearray", "memoryview")
    for target in FRAMEWORKS
    if kind != target
]
# What we copy: read-only memory that PyTorch would write, and writable memory whose alignment is
# accidental, to frameworks whose tensors do not change.
COPIED = {("bytes", "torch")} | {
    (kind, target)
    for kind in ("numpy", "bytearray", "memoryview")
    for target in ("jax", "tensorflow")
}


def candidates(pair: tuple[str, str]) -> list[str]:
    """What there is without us for a pair, on the host."""
    kind, target = pair
    found = methods.natives(kind, target, ("cpu", "cpu")) if kind in FRAMEWORKS else []
    # Files are for large tensors.
    codes = [shorten(method.code) for method in found if not method.before]
    return [*codes, *MORE.get(pair, [])]


def shorten(code: str) -> str:
    """The code with the short names of functions."""
    for path, short in SHORT_NAMES.items():
        code = code.replace(path, short)
    return code


def namespace(frameworks: Iterable[str]) -> dict[str, Any]:
    """The names that the one-liners use, for the frameworks that are wanted."""
    names = methods.namespace(frameworks)
    for path, short in SHORT_NAMES.items():
        module, _, function = path.partition(".")
        if module in names:
            names[short] = attrgetter(function)(names[module])
    return names


def source(kind: str) -> Any:
    """Random data of a kind, at an address that is a multiple of 64."""
    if kind in ("bytes", "bytearray"):
        return _aligned_bytes({"bytes": bytes, "bytearray": bytearray}[kind])
    if kind in FRAMEWORKS and kind != "numpy":
        return samples.make(kind, (16,))
    block = np.empty(32, np.float32)
    first = -block.ctypes.data % 64 // 4
    array = block[first : first + 16]
    array[:] = np.random.default_rng().standard_normal(16)
    return memoryview(array) if kind == "memoryview" else array


def as_tensor(kind: str, x: Any) -> tuple[str, Any]:
    """A framework, and the memory of a source as its tensor, by which a result is checked."""
    if kind in FRAMEWORKS:
        return kind, x
    return "numpy", np.asarray(x) if kind == "memoryview" else np.frombuffer(x, np.uint8)


def _aligned_bytes(kind: type) -> Any:
    kept = []  # so that each try is another address
    while True:
        kept.append(kind(np.random.default_rng().bytes(64)))
        if introspect.address(*as_tensor(kind.__name__, kept[-1])) % 64 == 0:
            return kept[-1]
