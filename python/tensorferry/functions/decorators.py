"""Functions that do not care whose tensor they get: `@ferry.via` and `@ferry.agnostic`.

With `via` the body sees one framework; with `agnostic` it is given the namespace of whichever came
in. Callers pass and get back their own in both. `calls` has what they do.
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
    """Has a function see the tensors of one framework, whatever its callers pass.

    It is for functions, async functions, methods, class and static methods and any other callable;
    generators, classes and properties are refused. A first parameter called `self` or `cls` is left
    as it is. Containers that are passed are new ones in the body; the tensors in them are shared
    where they can be. Where the first tensor is one that JAX or TensorFlow is tracing, or that
    `torch.func` transforms, and the framework is the same, such values go in as they are.

    Args:
        framework: Whose tensors the body sees; imported when it is first needed.
        device: Where they shall be, as for `to`.
        dtype: Their element type, as for `to`: of all of them, integers too.
        copy: True for a copy of every tensor, so that the body may write into them; False to raise
            where one cannot be shared.
        writable: As for `to`.
        returns: Where results go: "same" is the framework and device of the first tensor that was
            passed (if none was, they stay as they are); "keep" or None leaves them as they are; a
            framework's name carries them there; a dict has "framework", which is "same" or a name,
            and wishes for `to`, such as {"framework": "same", "dtype": "float32"}.
        grad: Whether gradients cross: a call takes part in the automatic differentiation of
            PyTorch, JAX or TensorFlow, whichever its caller uses, by way of that of the body's
            framework, which is one of the three as well. Results go to the first argument's that is
            of one of them. Gradients are for arguments; what else the body uses gets none. There
            are no second derivatives.

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
    from tensorferry.functions.via import decorator  # not above: the import is to be quick

    given: Any = framework
    if callable(given):
        name = getattr(given, "__qualname__", repr(given))
        raise InvalidArgumentError(
            f"via takes a framework, and was given the function {name}"
            '\nhint: write @ferry.via("torch") above the function'
        )
    wishes = {"device": device, "dtype": dtype, "copy": copy, "writable": writable}
    made: Decorator = decorator(framework, wishes, returns, grad)
    return made


@overload
def agnostic(body: Callable[Concatenate[Any, P], R], /) -> Callable[P, R]: ...
@overload
def agnostic(
    *, device: Any = None
) -> Callable[[Callable[Concatenate[Any, P], R]], Callable[P, R]]: ...
def agnostic(body: Any = None, /, *, device: Any = None) -> Any:
    """Has a function work with the tensors of any framework, by the Array API.

    `@ferry.agnostic` above `def normalise(xp, x): return x / xp.sum(x)` makes `normalise(x)`, for
    an `x` of any framework that `ferry.array_namespace` knows. Where all tensors are of one
    framework they go in as they are, so gradients and tracing (`jax.jit`, `torch.func`,
    `tf.function`) work as ever.

    Args:
        body: A function, async function, or method whose first parameter (after `self` or `cls`)
            is called `xp`.
        device: Where all tensors shall meet. If left out they must all be on one device.

    Returns:
        The decorated function, or a decorator if `body` is left out.

    Raises:
        InvalidArgumentError: The function has no parameter `xp`, or cannot be decorated.

    Example:
        >>> @ferry.agnostic
        ... def normalise(xp, x):
        ...     return x / xp.sum(x)
        >>> normalise(np.ones(4)).tolist()
        [0.25, 0.25, 0.25, 0.25]
    """
    from tensorferry.functions.agnostic import decorator

    decorate = decorator(device)
    return decorate if body is None else decorate(body)
