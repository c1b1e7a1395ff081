"""How fast copies within a GPU are, against the driver's own copy of as many bytes.

Measured with events on the device, results checked. The device is kept busy while a call is made,
so that the events lie around its work alone; what the call takes on the host stands beside it. Not
part of a full run: see `gpu.py`.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from gpu import namespace
from table import Section, verdict

import tensorferry as ferry
from tensorferry._tools.bench.measure import Timer, interleave

# Cycles, about a millisecond.
BUSY = 1_800_000
ROUNDS = 15


def device_timer(torch: Any, work: Callable[[], Any], host: list[float]) -> Timer:
    """A timer of the device's work; `host` gets the seconds of each call until it is back."""

    def timed(calls: int) -> float:
        seconds = 0.0
        for _ in range(calls):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(BUSY)
            start.record()
            begin = time.perf_counter()
            work()
            host.append(time.perf_counter() - begin)
            end.record()
            end.synchronize()
            seconds += start.elapsed_time(end) / 1e3
        return seconds

    return timed


def rows(names: dict[str, Any]) -> list[dict[str, Any]]:
    torch = names["torch"]

    def copied(view: Any, dtype: Any) -> dict[str, Any]:
        asked = {"copy": True} if dtype is None else {"dtype": dtype}

        def native() -> Any:
            if dtype is not None:
                return view.to(dtype, memory_format=torch.contiguous_format)
            return view.clone(memory_format=torch.contiguous_format)

        found = ferry.to(view, "torch", **asked)
        if not torch.equal(found, native()) or not found.is_contiguous():
            raise AssertionError("other values")
        moved = view.numel() * (view.element_size() + found.element_size())
        plain = torch.empty(moved // 2, dtype=torch.uint8, device="cuda").random_()
        out = torch.empty_like(plain)
        calls: list[float] = []
        timers = {
            "ours": device_timer(torch, lambda: ferry.to(view, "torch", **asked), calls),
            "limit": device_timer(torch, lambda: out.copy_(plain), []),
            "native": device_timer(torch, native, []),
        }
        times = interleave(timers, rounds=ROUNDS, batch=0)
        ours, limit, other = (times[name].median for name in timers)
        # Two passes have twice the bytes to move.
        target = 1.10 if dtype is None or view.is_contiguous() else 2.75
        return {
            "GB/s": moved / ours / 1e9,
            "limit GB/s": moved / limit / 1e9,
            "to limit": ours / limit,
            "to torch": ours / other,
            "call us": statistics.median(calls[-ROUNDS:]) * 1e6,
            "target": target,
            "verdict": verdict(ours / limit <= target),
        }

    rows = []
    for mib in (256, 1024):
        side = int((mib * 2**20 / 4) ** 0.5)
        x = torch.randn(side, side, device="cuda")
        odd = torch.randn(side - 1, side + 1, device="cuda")
        small = torch.randint(0, 256, (side, side), device="cuda", dtype=torch.uint8)
        jobs = [
            ("dense", x, None),
            ("transposed", x.T, None),
            ("transposed, odd sides", odd.T, None),
            ("half of the columns", x[:, : side // 2], None),
            ("to float16", x, torch.float16),
            ("to bfloat16", x, torch.bfloat16),
            ("uint8 to float32", small, torch.float32),
            ("transposed to float16", x.T, torch.float16),
        ]
        for name, view, dtype in jobs:
            rows.append({"job": name, "MiB": mib, **copied(view, dtype)})
    return rows


def run(quick: bool) -> dict[str, Any]:
    section = Section(
        "Copies within a GPU",
        {
            "job": "",
            "MiB": "d",
            "GB/s": ",.0f",
            "limit GB/s": ",.0f",
            "to limit": ".2f",
            "to torch": ".2f",
            "call us": ".1f",
            "target": ".2f",
            "verdict": "",
        },
        notes=[
            "GB/s are of bytes read and written, MiB of float32 elements (for uint8, as many). "
            "Limit: torch's copy of as many bytes into memory that is there.",
            "The target is against the limit.",
        ],
    )
    section.rows = rows(namespace())[: 2 if quick else None]
    return asdict(section)
