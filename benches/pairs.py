"""Small sources of every kind, and what there is without us to carry each to each framework.

To add a pair, give it a line in `CANDIDATES`: one-liners that do the same job without us. `x` is
the source; the other names are in `namespace`. Functions that hide deep in a module have a short
name there, which spares the one-liners the way to them; ours is always spelt `ferry.to(x, ...)`.
"""

from typing import Any

import numpy as np

CANDIDATES: dict[tuple[str, str], list[str]] = {
    ("numpy", "torch"): ["torch.from_numpy(x)", "torch.as_tensor(x)", "torch.from_dlpack(x)"],
    ("numpy", "jax"): ["jax_from_dlpack(x)", "jnp.asarray(x)", "jax.device_put(x)"],
    ("numpy", "tensorflow"): [
        "tf_from_dlpack(x.__dlpack__())",
        "tf.convert_to_tensor(x)",
        "tf.constant(x)",
    ],
    ("torch", "numpy"): ["x.numpy()", "np.from_dlpack(x)", "np.asarray(x)"],
    ("torch", "jax"): ["jax_from_dlpack(x)", "jnp.asarray(x.numpy())", "jax.device_put(x.numpy())"],
    ("torch", "tensorflow"): [
        "tf_from_dlpack(torch_to_dlpack(x))",
        "tf_from_dlpack(x.__dlpack__())",
        "tf_from_dlpack(x.numpy().__dlpack__())",
        "tf.convert_to_tensor(x)",
    ],
    ("jax", "numpy"): ["np.asarray(x)", "np.from_dlpack(x)", "np.asarray(memoryview(x))"],
    ("jax", "torch"): [
        "torch.from_dlpack(x)",
        "torch.as_tensor(np.asarray(x))",
        "torch.from_numpy(np.asarray(x))",
    ],
    ("jax", "tensorflow"): [
        "tf_from_dlpack(x.__dlpack__())",
        "tf.convert_to_tensor(np.asarray(x))",
        "tf.convert_to_tensor(x)",
    ],
    ("tensorflow", "numpy"): [
        "x.numpy()",
        "np.asarray(x)",
        "np.from_dlpack(x)",
        "np.asarray(memoryview(x))",
    ],
    ("tensorflow", "torch"): [
        "torch.from_dlpack(x)",
        "torch_from_dlpack(tf_to_dlpack(x))",
        "torch.from_numpy(np.from_dlpack(x))",
        "torch.from_numpy(np.asarray(memoryview(x)))",
    ],
    ("tensorflow", "jax"): [
        "jax_from_dlpack(x)",
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
# What we copy: read-only memory that PyTorch would write, and writable memory whose alignment is
# accidental, to frameworks whose tensors do not change.
COPIED = {("bytes", "torch")} | {
    (kind, target)
    for kind in ("numpy", "bytearray", "memoryview")
    for target in ("jax", "tensorflow")
}


def namespace(frameworks: set[str]) -> dict[str, Any]:
    """The names that the one-liners use, for the frameworks that are wanted."""
    import tensorferry as ferry

    names: dict[str, Any] = {"np": np, "ferry": ferry}
    if "torch" in frameworks:
        import torch
        from torch.utils import dlpack

        names |= {"torch": torch, "torch_to_dlpack": dlpack.to_dlpack}
        names |= {"torch_from_dlpack": dlpack.from_dlpack}
    if "jax" in frameworks:
        import jax

        names |= {"jax": jax, "jnp": jax.numpy, "jax_from_dlpack": jax.dlpack.from_dlpack}
    if "tensorflow" in frameworks:
        import tensorflow as tf

        door = tf.experimental.dlpack
        names |= {"tf": tf, "tf_from_dlpack": door.from_dlpack, "tf_to_dlpack": door.to_dlpack}
    return names


def source(kind: str, names: dict[str, Any]) -> Any:
    """Random data of a kind, at an address that is a multiple of 64."""
    if kind in ("bytes", "bytearray"):
        return _aligned_bytes({"bytes": bytes, "bytearray": bytearray}[kind])
    block = np.empty(32, np.float32)
    first = -block.ctypes.data % 64 // 4
    array = block[first : first + 16]
    array[:] = np.random.default_rng().standard_normal(16)
    if kind == "memoryview":
        return memoryview(array)
    if kind == "torch":
        return names["torch"].from_numpy(array.copy()).clone()
    if kind == "jax":
        return names["jnp"].array(array)
    if kind == "tensorflow":
        return names["tf"].constant(array)
    return array


def _aligned_bytes(kind: type) -> Any:
    kept = []  # so that each try is another address
    while True:
        kept.append(kind(np.random.default_rng().bytes(64)))
        if address(kept[-1]) % 64 == 0:
            return kept[-1]


def address(x: Any) -> int:
    """Where the data of a tensor or a buffer is."""
    if hasattr(x, "data_ptr"):
        return int(x.data_ptr())
    if hasattr(x, "unsafe_buffer_pointer"):
        return int(x.unsafe_buffer_pointer())
    return np.frombuffer(memoryview(x), np.uint8).ctypes.data
