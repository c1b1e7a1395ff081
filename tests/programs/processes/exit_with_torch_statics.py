"""Ends while objects of PyTorch with static lifetime hold shares."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
import torch

import tensorferry as ferry

x = np.arange(64, dtype=np.float32)


class Module(torch.nn.Module):
    """A module with a share as its buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("held", ferry.to(x, "torch"))

    def forward(self, a: Any) -> Any:
        return a + self.held


# TorchScript keeps modules, and what they hold, in a compilation unit of static lifetime.
module = torch.jit.freeze(torch.jit.trace(Module().eval(), torch.ones(64)))
library = torch.library.Library("ferry_tests", "DEF")
library.define("held(Tensor a) -> Tensor")
library.impl("held", functools.partial(operator.add, ferry.to(x, "torch")), "CPU")
assert torch.ops.ferry_tests.held(torch.ones(64)).tolist() == (x + 1).tolist()
assert module(torch.ones(64)).tolist() == (x + 1).tolist()
print("out")
