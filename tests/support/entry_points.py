"""The functions that read a tensor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tensorferry as ferry


@ferry.via("numpy", returns="keep")
def through_via(x: Any) -> Any:
    return x


# Each function reads a tensor, in an empty folder.
ENTRY_POINTS: dict[str, Callable[[Any, Path], Any]] = {
    "to": lambda x, _: ferry.to(x, "numpy"),
    "to, in a tree": lambda x, _: ferry.to({"a": [np.ones(2), x]}, "numpy"),
    "to, with options": lambda x, _: ferry.to(x, "numpy", copy=True),
    "plan": lambda x, _: ferry.plan(x, "numpy"),
    "plan, in a tree": lambda x, _: ferry.plan({"a": [np.ones(2), x]}, "numpy"),
    "to_async": lambda x, _: ferry.to_async(x, "numpy").result(),
    "save": lambda x, folder: ferry.save(folder / "x.npz", {"a": x}),
    "save, in a tree": lambda x, folder: ferry.save(folder / "x.safetensors", {"a": [x]}),
    "publish": lambda x, _: ferry.publish(x),
    "publish, in a tree": lambda x, _: ferry.publish({"a": [np.ones(2), x]}),
    "feed": lambda x, _: list(ferry.feed([{"a": x}], "numpy")),
    "export": lambda x, _: ferry.arrow.export(x),
    "export, as a column": lambda x, _: ferry.arrow.export({"a": x}),
    "via": lambda x, _: through_via(x),
    "via, in a tree": lambda x, _: through_via({"a": [torch.ones(2), x]}),
}
