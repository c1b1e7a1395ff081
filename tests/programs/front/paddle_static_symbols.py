"""Converts symbols of Paddle's static graphs: they are refused."""

from __future__ import annotations

import paddle
from support.refusals import refused

import tensorferry as ferry

paddle.enable_static()
with paddle.static.program_guard(paddle.static.Program()):
    symbol = paddle.static.data("x", [2, 3], "float32")
    refused(ferry.NotATensorError, TypeError, lambda: ferry.to(symbol, "numpy"))
    refused(ferry.NotATensorError, TypeError, lambda: ferry.to(symbol + 1, "torch"))
print("refused")
