# The types of functions that `via` decorates, for type checkers only: no module of this name exists
# at run time.
#
# A caller may pass a tensor of any framework where the body's parameter is, say, a torch.Tensor.
# The type system cannot replace one type among the parameters of a function. It can replace the
# first few: `Concatenate` separates them from the rest, which a ParamSpec keeps. It forgets their
# names, so an overload with `**named: Any` accepts calls that pass them by keyword.
#
# What this does not check or widen:
# - A call that passes one of the replaced parameters by keyword, or leaves it out: its other
#   arguments go unchecked.
# - Tensors behind the third tensor, behind another parameter (except `self`), by keyword only, and
#   those of static and class methods keep the type that the body declares. A body that declares Any
#   accepts every tensor there.
# - Whether an argument is a tensor at all.
# - With mypy, a function that has Any among the types of its parameters: mypy answers Any where an
#   argument with Any matches several overloads, so the decorated function is Any. pyright takes the
#   first overload that matches.
# - A function whose framework is not installed.
#
# Results that are tensors of the body's framework are Any: they go to the framework of the caller.
#
# The overloads overlap on purpose: the first that matches is the most specific.
# mypy: disable-error-code="overload-overlap"

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, overload

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
X = TypeVar("X")
R_co = TypeVar("R_co", covariant=True)
S_contra = TypeVar("S_contra", contravariant=True)

# Functions whose first one, two or three parameters are tensors.
class Function1(Protocol[P, R_co]):
    @overload
    def __call__(self, x: Any, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, **named: Any) -> R_co: ...

class Function2(Protocol[P, R_co]):
    @overload
    def __call__(self, x: Any, y: Any, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, x: Any = ..., /, **named: Any) -> R_co: ...

class Function3(Protocol[P, R_co]):
    @overload
    def __call__(self, x: Any, y: Any, z: Any, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, x: Any = ..., y: Any = ..., /, **named: Any) -> R_co: ...

# Methods whose first one, two or three parameters after `self` are tensors.
class Method1(Protocol[S_contra, P, R_co]):
    @overload
    def __call__(self, me: S_contra, x: Any, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, me: S_contra, /, **named: Any) -> R_co: ...
    @overload
    def __get__(self, instance: None, owner: Any = ..., /) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: Any = ..., /) -> Function1[P, R_co]: ...

class Method2(Protocol[S_contra, P, R_co]):
    @overload
    def __call__(
        self, me: S_contra, x: Any, y: Any, /, *args: P.args, **kwargs: P.kwargs
    ) -> R_co: ...
    @overload
    def __call__(self, me: S_contra, x: Any = ..., /, **named: Any) -> R_co: ...
    @overload
    def __get__(self, instance: None, owner: Any = ..., /) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: Any = ..., /) -> Function2[P, R_co]: ...

class Method3(Protocol[S_contra, P, R_co]):
    @overload
    def __call__(
        self, me: S_contra, x: Any, y: Any, z: Any, /, *args: P.args, **kwargs: P.kwargs
    ) -> R_co: ...
    @overload
    def __call__(self, me: S_contra, x: Any = ..., y: Any = ..., /, **named: Any) -> R_co: ...
    @overload
    def __get__(self, instance: None, owner: Any = ..., /) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: Any = ..., /) -> Function3[P, R_co]: ...

_Result = X | tuple[X, ...] | list[X] | dict[Any, X] | Coroutine[Any, Any, X]

# What `via` returns for a framework that has types.
class TensorDecorator(Protocol[X]):
    @overload
    def __call__(self, body: staticmethod[P, _Result[X]], /) -> staticmethod[P, Any]: ...
    @overload
    def __call__(self, body: staticmethod[P, R], /) -> staticmethod[P, R]: ...
    @overload
    def __call__(self, body: classmethod[S, P, _Result[X]], /) -> classmethod[S, P, Any]: ...
    @overload
    def __call__(self, body: classmethod[S, P, R], /) -> classmethod[S, P, R]: ...
    @overload
    def __call__(
        self, body: Callable[Concatenate[X, X, X, P], _Result[X]], /
    ) -> Function3[P, Any]: ...
    @overload
    def __call__(self, body: Callable[Concatenate[X, X, X, P], R], /) -> Function3[P, R]: ...
    @overload
    def __call__(
        self, body: Callable[Concatenate[X, X, P], _Result[X]], /
    ) -> Function2[P, Any]: ...
    @overload
    def __call__(self, body: Callable[Concatenate[X, X, P], R], /) -> Function2[P, R]: ...
    @overload
    def __call__(self, body: Callable[Concatenate[X, P], _Result[X]], /) -> Function1[P, Any]: ...
    @overload
    def __call__(self, body: Callable[Concatenate[X, P], R], /) -> Function1[P, R]: ...
    # To pyright, a class method is a function of the class.
    @overload
    def __call__(
        self, body: Callable[Concatenate[type[S], P], R], /
    ) -> Callable[Concatenate[type[S], P], R]: ...
    @overload
    def __call__(
        self, body: Callable[Concatenate[S, X, X, X, P], _Result[X]], /
    ) -> Method3[S, P, Any]: ...
    @overload
    def __call__(self, body: Callable[Concatenate[S, X, X, X, P], R], /) -> Method3[S, P, R]: ...
    @overload
    def __call__(
        self, body: Callable[Concatenate[S, X, X, P], _Result[X]], /
    ) -> Method2[S, P, Any]: ...
    @overload
    def __call__(self, body: Callable[Concatenate[S, X, X, P], R], /) -> Method2[S, P, R]: ...
    @overload
    def __call__(
        self, body: Callable[Concatenate[S, X, P], _Result[X]], /
    ) -> Method1[S, P, Any]: ...
    @overload
    def __call__(self, body: Callable[Concatenate[S, X, P], R], /) -> Method1[S, P, R]: ...
    @overload
    def __call__(self, body: Callable[P, _Result[X]], /) -> Callable[P, Any]: ...
    @overload
    def __call__(self, body: Callable[P, R], /) -> Callable[P, R]: ...

# What `via` returns for other frameworks: it keeps the type of the function.
class Decorator(Protocol):
    @overload
    def __call__(self, body: staticmethod[P, R], /) -> staticmethod[P, R]: ...
    @overload
    def __call__(self, body: classmethod[S, P, R], /) -> classmethod[S, P, R]: ...
    @overload
    def __call__(self, body: Callable[P, R], /) -> Callable[P, R]: ...
