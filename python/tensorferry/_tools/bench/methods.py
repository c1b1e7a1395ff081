"""The native one-liners that convert `x`, for each source, target and device.

Each is code that can be pasted, with `np`, `torch`, `cupy`, `cupyx`, `jax`, `jnp`, `tf`, `paddle`
and `mx` imported. The tables have expressions to NumPy, from NumPy, and between two other
frameworks by DLPack; the rest is composed. A one-liner that a framework does not support fails when
it is measured, and the report shows the error.
"""

import contextlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import tensorferry as ferry
from tensorferry.framework_register import TENSOR_FRAMEWORKS, load

# The names of the frameworks in the code; the others have their own name.
IMPORT_NAMES = {"tensorflow": "tf", "mlx": "mx", "numpy": "np"}
# File names in the code of a method; they are replaced by files in a temporary folder.
FILES = ('"x.npy"', '"x.pt"')


class Method(NamedTuple):
    """A one-liner: an expression, and an optional statement before it."""

    code: str
    before: str = ""
    # Whether a source on a GPU is copied to the host.
    uses_host: bool = False

    @property
    def text(self) -> str:
        """The code as it can be pasted."""
        return f"{self.before}; {self.code}" if self.before else self.code


# From each framework to NumPy; the usual expression first.
HOST_TO_NUMPY = {
    "numpy": ["x"],
    "torch": [
        "x.numpy()",
        "np.asarray(x)",
        "np.from_dlpack(x)",
        "x.numpy().copy()",
        "x.clone().numpy()",
        "np.array(x)",
    ],
    "paddle": ["x.numpy()", "np.asarray(x)", "np.from_dlpack(x)", "np.array(x)"],
    "jax": [
        "np.asarray(x)",
        "np.from_dlpack(x)",
        "np.asarray(memoryview(x))",
        "jax.device_get(x)",
        "np.array(x)",
    ],
    "mlx": ["np.asarray(x)", "np.from_dlpack(x)", "np.asarray(memoryview(x))", "np.array(x)"],
    "tensorflow": [
        "x.numpy()",
        "np.asarray(x)",
        "np.from_dlpack(x)",
        "np.asarray(memoryview(x))",
        "np.array(x)",
    ],
}
CUDA_TO_NUMPY = {
    "torch": [
        "x.cpu().numpy()",
        "x.numpy(force=True)",
        "np.asarray(x.cpu())",
        'torch.empty_like(x, device="cpu", pin_memory=True).copy_(x).numpy()',
    ],
    "paddle": ["x.numpy()", "x.cpu().numpy()", "np.asarray(x)"],
    "cupy": ["cupy.asnumpy(x)", "x.get()", "x.get(out=cupyx.empty_like_pinned(x))"],
    "jax": ["np.asarray(x)", "jax.device_get(x)", "np.array(x)"],
    "tensorflow": ["x.numpy()", "np.asarray(x)", "x.cpu().numpy()"],
}

# From a NumPy array `{}` to each framework; the usual expression first.
NUMPY_TO_HOST = {
    "torch": [
        "torch.from_numpy({})",
        "torch.as_tensor({})",
        "torch.from_dlpack({})",
        "torch.tensor({})",
        "torch.from_numpy({}.copy())",
        "torch.from_numpy({}).clone()",
    ],
    "paddle": ["paddle.to_tensor({})", "paddle.from_dlpack({})"],
    "jax": [
        "jnp.asarray({})",
        "jax.dlpack.from_dlpack({})",
        "jax.device_put({})",
        "jnp.array({})",
    ],
    "mlx": ["mx.array({})", "mx.asarray({})", "mx.from_dlpack({})"],
    "tensorflow": [
        "tf.constant({})",
        "tf.convert_to_tensor({})",
        "tf.experimental.dlpack.from_dlpack({}.__dlpack__())",
    ],
}
NUMPY_TO_CUDA = {
    "torch": [
        "torch.from_numpy({}).cuda()",
        'torch.as_tensor({}, device="cuda")',
        'torch.tensor({}, device="cuda")',
        "torch.from_numpy({}).pin_memory().cuda(non_blocking=True)",
    ],
    "paddle": ["paddle.to_tensor({}, place=paddle.CUDAPlace(0))", "paddle.to_tensor({}).cuda()"],
    "cupy": ["cupy.asarray({})", "cupy.array({})"],
    "jax": ["jnp.asarray({})", "jax.device_put({})", "jnp.array({})"],
    "tensorflow": ["tf.constant({})", "tf.convert_to_tensor({})", "tf.identity({})"],
}

# Between two frameworks on one device; `{}` is the source's DLPack capsule.
DIRECT = {
    "torch": [
        "torch.from_dlpack(x)",
        "torch.utils.dlpack.from_dlpack({})",
        "torch.from_dlpack(x).clone()",
    ],
    "paddle": ["paddle.from_dlpack(x)", "paddle.utils.dlpack.from_dlpack({})"],
    "cupy": ["cupy.from_dlpack(x)", "cupy.asarray(x)", "cupy.array(x)"],
    "jax": ["jax.dlpack.from_dlpack(x)", "jnp.from_dlpack(x)", "jax.dlpack.from_dlpack(x).copy()"],
    "mlx": ["mx.from_dlpack(x)", "mx.array(x)"],
    "tensorflow": ["tf.experimental.dlpack.from_dlpack({})"],
}
MORE_DIRECT = {("cupy", "torch"): ['torch.as_tensor(x, device="cuda")']}
CAPSULES = {
    "torch": "torch.utils.dlpack.to_dlpack(x)",
    "paddle": "paddle.utils.dlpack.to_dlpack(x)",
    "tensorflow": "tf.experimental.dlpack.to_dlpack(x)",
}


def natives(source: str, target: str, devices: tuple[str, str]) -> list[Method]:
    """The one-liners that convert `x` between two frameworks and two devices."""
    source_device, target_device = devices
    to_numpy = (HOST_TO_NUMPY if source_device == "cpu" else CUDA_TO_NUMPY)[source]
    uses_host = source_device != "cpu"
    found: list[Method] = []
    if target == "numpy":
        found += [Method(code, uses_host=uses_host) for code in to_numpy]
        found += _through_file(source, to_numpy[0], "{}", uses_host=uses_host)
        return found
    from_numpy = (NUMPY_TO_HOST if target_device == "cpu" else NUMPY_TO_CUDA)[target]
    if source == "numpy":
        found += [Method(code.format("x")) for code in from_numpy]
    else:
        if source_device == target_device:
            capsule = CAPSULES.get(source, "x.__dlpack__()")
            direct = [*DIRECT[target], *MORE_DIRECT.get((source, target), [])]
            found += [Method(code.format(capsule)) for code in direct]
        found += [Method(code.format(to_numpy[0]), uses_host=uses_host) for code in from_numpy[:2]]
    return found + _through_file(source, to_numpy[0], from_numpy[0], uses_host=uses_host)


def _through_file(source: str, to_numpy: str, from_numpy: str, *, uses_host: bool) -> list[Method]:
    read = from_numpy.format('np.load("x.npy")')
    found = [Method(read, before=f'np.save("x.npy", {to_numpy})', uses_host=uses_host)]
    if source == "torch" and from_numpy == "{}":
        read = 'torch.load("x.pt", map_location="cpu").numpy()'
        found.append(Method(read, before='torch.save(x, "x.pt")', uses_host=uses_host))
    return found


def ours(target: str, devices: tuple[str, str]) -> Method:
    """The call of `ferry.to`."""
    source_device, target_device = devices
    # By default a tensor keeps its device, except for frameworks that have one kind of device.
    if source_device != target_device and target not in ("numpy", "cupy", "mlx"):
        return Method(f'ferry.to(x, "{target}", device="{target_device}")')
    return Method(f'ferry.to(x, "{target}")')


def namespace(frameworks: Iterable[str]) -> dict[str, Any]:
    """Imports frameworks and NumPy; the names that the one-liners use for them."""
    names: dict[str, Any] = {"ferry": ferry}
    for name in sorted({"numpy", *frameworks}, key=TENSOR_FRAMEWORKS.index):
        module = load(name)
        names[IMPORT_NAMES.get(name, name)] = module
        if name == "jax":
            names["jnp"] = module.numpy
        if name == "cupy":
            with contextlib.suppress(ImportError):
                import cupyx  # type: ignore[import-not-found, unused-ignore]

                names["cupyx"] = cupyx
    return names
