# The tensor types of the frameworks, for type checkers only: no module of this name exists at run
# time, because the package imports a framework only when a caller asks for it.
#
# The type of a framework that is not installed is Any, without an error. One import cannot say so
# to both checkers: pyright makes it Unknown, which its strict mode reports at every use. The stubs
# of this folder therefore import each name three times: from the framework, as Any, and from the
# framework with a star. mypy keeps the first definition of a name, which is Any where the module
# is missing. pyright keeps the last, and a star import from a missing module defines nothing.
# pyright follows this rule for names that a stub imports, but not for attributes of modules, nor in
# files that are not stubs. Hence the aliases here.

from typing import Any, Literal, TypeAlias

import numpy

from tensorferry._framework_types.jax import Array as _JaxArray
from tensorferry._framework_types.mlx import array as _mlx_array
from tensorferry._framework_types.paddle import Tensor as _PaddleTensor
from tensorferry._framework_types.torch import Tensor as _TorchTensor

NumpyArray: TypeAlias = numpy.ndarray[Any, Any]
TorchTensor: TypeAlias = _TorchTensor
JaxArray: TypeAlias = _JaxArray
PaddleTensor: TypeAlias = _PaddleTensor
MlxArray: TypeAlias = _mlx_array

# The names and aliases of crates/python/src/frameworks/builtin_frameworks.rs. Aliases that
# name a module of sparse tensors are left out: what they give is not the type of dense tensors.
# TensorFlow and CuPy are left out because they come without types.
NumpyName: TypeAlias = Literal["numpy", "np"]
TorchName: TypeAlias = Literal["torch", "pytorch"]
JaxName: TypeAlias = Literal["jax", "jnp", "jax.numpy"]
PaddleName: TypeAlias = Literal["paddle"]
MlxName: TypeAlias = Literal["mlx", "mlx.core"]
