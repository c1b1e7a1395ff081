"""How fast copies within a GPU are, against the driver's own copy of as many bytes.

Measured with events on the device, results checked. The device is kept busy while a call is made,
so that the events lie around its work alone; what the call takes on the host stands beside it. Not
part of a full run: see `gpu.py`.
"""

import statistics
import time
from dataclasses import asdict
from typing import Any

from gpu import namespace
from measure import verdict
from table import Section

# Cycles, about a millisecond.
BUSY = 1_800_000


def rows(names: dict[str, Any]) -> list[dict[str, Any]]:
    torch, ferry = names["torch"], names["ferry"]

    def seconds(work: Any) -> tuple[float, float]:
        """Of the device, and of the host until it is back."""
        for _ in range(3):
            work()
        device, host = [], []
        for _ in range(15):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(BUSY)
            start.record()
            begin = time.perf_counter()
            work()
            host.append(time.perf_counter() - begin)
            end.record()
            end.synchronize()
            device.append(start.elapsed_time(end) / 1e3)
        return statistics.median(device), statistics.median(host)

    rows = []
    for mib in (256, 1024):
        side = int((mib * 2**20 / 4) ** 0.5)
        x = torch.randn(side, side, device="cuda")
        out = torch.empty_like(x)
        limit, _ = seconds(lambda x=x, out=out: out.copy_(x))
        for name, view in {"dense": x, "transposed": x.T}.items():
            if not torch.equal(ferry.to(view, "torch", copy=True), view):
                raise AssertionError(f"{name}: other values")
            ours, call = seconds(lambda view=view: ferry.to(view, "torch", copy=True))
            native, _ = seconds(lambda view=view: view.clone(memory_format=torch.contiguous_format))
            rows.append(
                {
                    "job": f"{name} copy",
                    "MiB": mib,
                    "GB/s": 2 * mib * 2**20 / ours / 1e9,
                    "limit GB/s": 2 * mib * 2**20 / limit / 1e9,
                    "to limit": ours / limit,
                    "to torch": ours / native,
                    "call us": call * 1e6,
                    "target": 1.10,
                    "verdict": verdict(ours / limit, 1.10),
                }
            )
    return rows


def run(quick: bool) -> dict[str, Any]:
    section = Section(
        "Copies within a GPU, float32",
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
            "GB/s are of bytes read and written. Limit: torch's copy into memory that is there."
        ],
    )
    section.rows = rows(namespace())[: 2 if quick else None]
    return asdict(section)
