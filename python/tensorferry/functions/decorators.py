"""`@ferry.via` and `@ferry.agnostic`: decorators for functions that accept any framework's tensors.

With `via` the function sees the tensors of one framework; with `agnostic` it receives the Array API
namespace of its arguments. In both, callers pass and receive tensors of their own framework.
"""

# The overloads of `via` overlap on purpose: a literal is also a str.
# mypy: disable-error-code="overload-overlap"

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from tensorferry._native import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tensorferry._framework_types import (
        JaxArray,
        JaxName,
        MlxArray,
        MlxName,
        NumpyArray,
        NumpyName,
        PaddleName,
        PaddleTensor,
        TorchName,
        TorchTensor,
    )
    from tensorferry.functions._decorator_types import Decorator, TensorDecorator

P = ParamSpec("P")
R = TypeVar("R")


if TYPE_CHECKING:

    @overload
    def via(
        framework: NumpyName,
        *,
        device: Any = None,
        dtype: Any = None,
        copy: bool | None = None,
        writable: bool | None = None,
        returns: str | ModuleType | dict[str, Any] | None = "same",
        grad: bool = False,
    ) -> TensorDecorator[NumpyArray]: ...
    @overload
    def via(
        framework: TorchName,
        *,
        device: Any = None,
        dtype: Any = None,
        copy: bool | None = None,
        writable: bool | None = None,
        returns: str | ModuleType | dict[str, Any] | None = "same",
        grad: bool = False,
    ) -> TensorDecorator[TorchTensor]: ...
    @overload
    def via(
        framework: JaxName,
        *,
        device: Any = None,
        dtype: Any = None,
        copy: bool | None = None,
        writable: bool | None = None,
        returns: str | ModuleType | dict[str, Any] | None = "same",
        grad: bool = False,
    ) -> TensorDecorator[JaxArray]: ...
    @overload
    def via(
        framework: PaddleName,
        *,
        device: Any = None,
        dtype: Any = None,
        copy: bool | None = None,
        writable: bool | None = None,
        returns: str | ModuleType | dict[str, Any] | None = "same",
        grad: bool = False,
    ) -> TensorDecorator[PaddleTensor]: ...
    @overload
    def via(
        framework: MlxName,
        *,
        device: Any = None,
        dtype: Any = None,
        copy: bool | None = None,
        writable: bool | None = None,
        returns: str | ModuleType | dict[str, Any] | None = "same",
        grad: bool = False,
    ) -> TensorDecorator[MlxArray]: ...
    @overload
    def via(
        framework: str | ModuleType,
        *,
        device: Any = None,
        dtype: Any = None,
        copy: bool | None = None,
        writable: bool | None = None,
        returns: str | ModuleType | dict[str, Any] | None = "same",
        grad: bool = False,
    ) -> Decorator: ...


def via(
    framework: str | ModuleType,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    returns: str | ModuleType | dict[str, Any] | None = "same",
    grad: bool = False,
) -> Decorator | TensorDecorator[Any]:
    """Decorates a function that works with one framework, so that it accepts any framework.

    Functions, async functions, methods, class and static methods and other callables are accepted;
    generators, classes and properties are refused. A first parameter called `self` or `cls` is not
    converted. Containers in the arguments are rebuilt; the tensors in them are shared where
    possible. If the first tensor is traced by JAX or TensorFlow, or transformed by `torch.func`,
    and has the same framework, such values are passed unchanged.

    Args:
        framework: The framework that the function uses; imported when it is first needed.
        device: The device of the arguments, as for `to`.
        dtype: The element type of all arguments, integers included, as for `to`.
        copy: True copies every tensor, so that the function may write to them; False raises if a
            tensor cannot be shared.
        writable: As for `to`.
        returns: The framework of the results. "same" is the framework and device of the first
            tensor argument (without one, results stay unchanged): the backend's for Keras
            variables, NumPy for buffers, and for arrays and columns of other libraries in host
            memory. "keep" or None leaves results unchanged. A framework's name converts them to it.
            A dict has "framework", which is "same" or a name, and options of `to`: {"framework":
            "same", "dtype": "float32"}.
            NumPy scalars that a function of NumPy returns become 0-d tensors.
        grad: Whether calls are differentiable by the caller's PyTorch, JAX or TensorFlow; the
            function uses one of these three as well. Results go to the first argument's framework
            among the three. Only arguments receive gradients. Second derivatives are not supported.

    Returns:
        A decorator.

    Raises:
        InvalidArgumentError: An argument has an invalid value, or the function cannot be decorated.

    Example:
        >>> @ferry.via("torch")
        ... def double(x):
        ...     return 2 * x
        >>> double(np.ones(2)).tolist()
        [2.0, 2.0]
    """
    from tensorferry.functions.via import make_decorator  # deferred: fast `import tensorferry`

    given: Any = framework
    if callable(given):
        name = getattr(given, "__qualname__", repr(given))
        raise InvalidArgumentError(
            f"via takes a framework, not the function {name}"
            '\nhint: write @ferry.via("torch") above the function'
        )
    options = {"device": device, "dtype": dtype, "copy": copy, "writable": writable}
    decorator: Decorator = make_decorator(framework, options, returns, grad)
    return decorator


@overload
def agnostic(body: Callable[Concatenate[Any, P], R], /) -> Callable[P, R]: ...
@overload
def agnostic(
    *, device: Any = None
) -> Callable[[Callable[Concatenate[Any, P], R]], Callable[P, R]]: ...
def agnostic(body: Any = None, /, *, device: Any = None) -> Any:
    """Decorates a function that uses the Array API, so that it accepts tensors of any framework.

    `@ferry.agnostic` above `def normalise(xp, x): return x / xp.sum(x)` makes `normalise(x)`, for
    an `x` of any framework that `ferry.array_namespace` supports. If all tensors are of one
    framework they are passed unchanged, so gradients and tracing (`jax.jit`, `torch.func`,
    `tf.function`) keep working.

    Args:
        body: A function, async function, or method whose first parameter (after `self` or `cls`)
            is called `xp`.
        device: The device to which all tensors are converted. By default they must all be on one
            device.

    Returns:
        The decorated function, or a decorator if `body` is omitted.

    Raises:
        InvalidArgumentError: The function has no parameter `xp`, or cannot be decorated.

    Example:
        >>> @ferry.agnostic
        ... def normalise(xp, x):
        ...     return x / xp.sum(x)
        >>> normalise(np.ones(4)).tolist()
        [0.25, 0.25, 0.25, 0.25]
    """
    from tensorferry.functions.agnostic import make_decorator

    decorate = make_decorator(device)
    return decorate if body is None else decorate(body)
