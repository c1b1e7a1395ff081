"""Handing GPU tensors to another process that is alive already, against torch's queue.

As `processes.py`, with memory of PyTorch's allocator. A first hand-over is one of an allocation
that the consumer has not seen; in a repeated one it has another tensor of the same allocation. Not
part of a full run: see `gpu.py`.
"""

from dataclasses import asdict
from typing import Any

import torch
from processes import KIB, MIB, measure, row, section

METHODS = ["ours, gpu", "torch queue, gpu"]


def run(quick: bool) -> dict[str, Any]:
    torch.cuda.init()
    result = section("To another process, GPU memory, float32", ["torch queue, gpu"])
    sizes = [(4 * KIB, "4 KiB"), (1 * MIB, "1 MiB"), (256 * MIB, "256 MiB"), (2048 * MIB, "2 GiB")]
    for size, title in sizes[: 2 if quick else 4]:
        first = measure(METHODS, size, 0, 1 if quick else 3, fresh=True)
        result.rows.append(row(f"first, {title}", first, None))
        repeated = measure(METHODS, size, 0, 5 if quick else 10, keep=True)
        result.rows.append(row(f"repeated, {title}", repeated, 100e-6))
    found = measure(METHODS, 64 * KIB, 1000, 2, keep=True)
    result.rows.append(row("a dict of 1,000 tensors of 64 KiB, repeated", found, 10e-3))
    found = measure(METHODS, 16 * KIB, 10_000, 2, keep=True)
    result.rows.append(row("a dict of 10,000 tensors of 16 KiB, repeated", found, None))
    return asdict(result)
