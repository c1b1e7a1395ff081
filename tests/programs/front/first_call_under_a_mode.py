"""Makes the first call of a process under a mode of PyTorch that calls tensorferry back."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch
from support.cases import case, main
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import tensorferry as ferry


def convert_result(result: Any) -> Any:
    """Converts what PyTorch returned to a mode, and returns it."""
    if isinstance(result, torch.Tensor):
        ferry.to(result, "numpy")
    return result


@case
def function_mode() -> None:
    """The first call is under a function mode: what is found out then does not depend on it."""

    class Calls(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return convert_result(function(*args, **(kwargs or {})))

    with torch.device("meta"), Calls():
        assert ferry.to(np.ones(3, "f4"), "torch").device.type == "cpu"
    try:
        torch.utils.dlpack.to_dlpack(torch.empty(1, dtype=torch.float8_e5m2))
    except Exception:
        pass  # this version does not exchange it
    else:
        x = ferry.to(np.ones(3, ml_dtypes.float8_e5m2), "torch")
        assert x.dtype == torch.float8_e5m2
    seen = []

    class Sees(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    with Sees():
        torch.ones(1)
    assert seen, "modes work as before"


@case
def dispatch_mode() -> None:
    """The first call is under a dispatch mode, and does not wait for itself."""

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return convert_result(function(*args, **(kwargs or {})))

    with Calls():
        x = ferry.to(np.ones(3, "f4"), "torch")
    assert x.tolist() == [1, 1, 1]


if __name__ == "__main__":
    main()
