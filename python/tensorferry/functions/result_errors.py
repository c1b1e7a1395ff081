"""Errors of results that the caller's framework cannot hold.

`ferry.to` advises `dtype="default"`. In a decorator that option is for the arguments, and following
the advice would raise the same error again. The advice here names what the decorator accepts.
"""

from typing import Any, NoReturn

from tensorferry._native import FerryError

# The hint keys of types that a framework lacks.
_DTYPE_HINTS = ("core.use_default_dtype", "core.cast_to_supported_dtype")


def refuse_result(error: FerryError, name: str, returns: str | None = None) -> NoReturn:
    """Raises the error of a result with advice that works.

    Args:
        error: The error of the conversion.
        name: The name of the function.
        returns: The framework as `returns=` names it; None if the decorator has no such option.
    """
    key = getattr(error, "_hint_key", None)
    if key in _DTYPE_HINTS:
        dtype = str(getattr(error, "_hint_value", None) or "float32")
        wanted: Any = "default" if key == "core.use_default_dtype" else dtype
        fact = str(error).partition("\nhint: ")[0]
        hint = f"return {dtype} from the function"
        if returns is not None:
            hint = f'write returns={{"framework": "{returns}", "dtype": "{wanted}"}}, or {hint}'
        error.args = (f"the result of {name}: {fact}\nhint: {hint}",)
    raise error
