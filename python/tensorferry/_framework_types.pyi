# The tensor types of the frameworks, for type checkers only: no module of this name exists at run
# time, because the package imports a framework only when a caller asks for it.
#
# The name of a framework that is not installed has the type Any. In an installed package, mypy
# and pyright report no missing imports; the comments are for runs over the sources. They name
# `unused-ignore` too, because the same line is correct where the framework is installed.

from typing import Any, Literal, TypeAlias

import jax  # type: ignore[import-not-found, unused-ignore]
import mlx.core  # type: ignore[import-not-found, unused-ignore]
import numpy
import paddle  # type: ignore[import-not-found, unused-ignore]
import torch  # type: ignore[import-not-found, unused-ignore]

NumpyArray: TypeAlias = numpy.ndarray[Any, Any]
TorchTensor: TypeAlias = torch.Tensor
JaxArray: TypeAlias = jax.Array
PaddleTensor: TypeAlias = paddle.Tensor
MlxArray: TypeAlias = mlx.core.array

# The names and aliases of the register in crates/python/src/frameworks/register.rs. Aliases that
# name a module of sparse tensors are left out: what they give is not the type of dense tensors.
# TensorFlow and CuPy are left out because they come without types.
NumpyName: TypeAlias = Literal["numpy", "np"]
TorchName: TypeAlias = Literal["torch", "pytorch"]
JaxName: TypeAlias = Literal["jax", "jnp", "jax.numpy"]
PaddleName: TypeAlias = Literal["paddle"]
MlxName: TypeAlias = Literal["mlx", "mlx.core"]
