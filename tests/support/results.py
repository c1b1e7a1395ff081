"""Results of `tensorferry bench` as they might come out, to draw reports of."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30)
MACHINE = {
    "date": "2026-11-15T14:58:46+00:00",
    "cpu": "Intel(R) Xeon(R) Processor",
    "cores": 16,
    "gpu": "NVIDIA H200, driver 580.159.04",
    "memory GiB": 125.9,
    "kernel": "6.18.44",
    "huge pages": "madvise",
    "load": 0.07,
    "python": "3.12.3",
    "numpy": "2.5.2",
    "torch": "2.11.0",
    "cupy": None,
    "jax": "0.11.2",
    "tensorflow": "2.21.0",
    "tensorferry": "0.1.0",
}
KEY = ("numpy", "torch", "cpu", "cpu", "float32", "dense")
Method = tuple[str, bool, Callable[[int], float]]


def share(seconds: float) -> Callable[[int], float]:
    """Takes as long for any size."""
    return lambda size: seconds


def copy(seconds: float, rate: float) -> Callable[[int], float]:
    """A call that takes `seconds`, and then copies `rate` bytes a second."""
    return lambda size: seconds + size / rate


METHODS: dict[tuple[str, ...], list[Method]] = {
    KEY: [
        ('ferry.to(x, "torch")', True, share(542e-9)),
        ("torch.from_numpy(x)", True, share(558e-9)),
        ("torch.from_dlpack(x)", True, share(1.9e-6)),
        ("torch.as_tensor(x)", True, share(830e-9)),
        ("torch.tensor(x)", False, copy(2.4e-6, 4.1e9)),
    ],
    ("torch", "tensorflow", "cpu", "cpu", "float32", "transposed"): [
        ('ferry.to(x, "tensorflow")', False, copy(3.1e-6, 8.8e9)),
        ("tf.convert_to_tensor(x.numpy())", False, copy(26e-6, 1.0e9)),
        ("tf.constant(x)", False, copy(41e-6, 0.31e9)),
        (
            "tf.experimental.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x.contiguous()))",
            False,
            copy(2.2e-6, 1.7e9),
        ),
        ("tf.convert_to_tensor(x.tolist())", False, copy(30e-6, 0.02e9)),
    ],
    ("numpy", "torch", "cpu", "cuda", "float32", "dense"): [
        ('ferry.to(x, "torch", device="cuda")', False, copy(18e-6, 48e9)),
        ('torch.from_numpy(x).to("cuda")', False, copy(14e-6, 9.1e9)),
        ('torch.tensor(x, device="cuda")', False, copy(19e-6, 3.3e9)),
        ('torch.as_tensor(x, device="cuda")', False, copy(15e-6, 9.0e9)),
        ('torch.from_numpy(x).pin_memory().to("cuda")', False, copy(95e-6, 6.2e9)),
    ],
}
FAILS = ("torch", "tensorflow", "tf.convert_to_tensor(x.tolist())", 16 << 20)


def sample(sizes: Sequence[int] = SIZES, seed: int = 7) -> dict[str, Any]:
    """Three groups of five methods; one method gives up at large sizes."""
    rows = []
    chance = random.Random(seed)
    for key, methods in METHODS.items():
        for number, (method, shares, cost) in enumerate(methods):
            for size in sizes:
                error = None
                if (*key[:2], method) == FAILS[:3] and size >= FAILS[3]:
                    error = "a list of so many numbers does not fit into memory"
                seconds = None if error else cost(size) * chance.uniform(0.96, 1.05)
                rows.append(row(key, method, number == 0, shares, size, seconds, error, chance))
    return result(rows, sizes)


def many_rows(methods: int = 14, seed: int = 3) -> dict[str, Any]:
    """One group of many methods."""
    chance = random.Random(seed)
    key = ("numpy", "jax", "cpu", "cpu", "float32", "dense")
    rows = [
        row(
            key,
            'ferry.to(x, "jax")' if number == 0 else f"jax.way_{number}(x, dtype=None)",
            number == 0,
            (True, False, None)[number % 3],
            size,
            copy(1e-6 * 1.6**number, 1e12 / 1.9**number)(size),
            None,
            chance,
        )
        for number in range(methods)
        for size in SIZES
    ]
    return result(rows, SIZES)


def many(seed: int = 5) -> dict[str, Any]:
    """Fourteen groups over five frameworks, two types and two layouts."""
    chance = random.Random(seed)
    frameworks = ("numpy", "torch", "jax", "tensorflow", "paddle")
    pairs = [(a, b) for a in frameworks for b in frameworks if a != b][:14]
    rows = []
    for place, (source, target) in enumerate(pairs):
        dtype = ("float32", "bfloat16")[place % 2]
        key = (source, target, "cpu", "cpu", dtype, "dense" if place % 3 else "strided")
        shares = place not in (3, 9)
        ours = share(chance.uniform(4e-7, 3e-6)) if shares else copy(2e-6, 11e9)
        native = share(chance.uniform(5e-7, 2e-5)) if shares else copy(3e-6, 3.3e9)
        for size in SIZES[:4]:
            for method, is_ours, does_share, cost in (
                (f'ferry.to(x, "{target}")', True, shares, ours),
                (f"{target}.from_dlpack(x)", False, shares, native),
                (f"{target}.array(x)", False, False, copy(4e-6, 3e9)),
            ):
                seconds = cost(size)
                rows.append(row(key, method, is_ours, does_share, size, seconds, None, chance))
    return result(rows, SIZES[:4])


def bundled() -> dict[str, Any]:
    """Sixty groups: twelve pairs, five types."""
    frameworks = ("numpy", "torch", "jax", "tensorflow")
    dtypes = ("float16", "float32", "float64", "int32", "uint8")
    rows = []
    for place, (source, target) in enumerate(permutations(frameworks, 2)):
        for number, dtype in enumerate(dtypes):
            key = (source, target, "cpu", "cpu", dtype, "dense")
            for size in (4096, 8192):
                ours, native = 1e-6 * (1 + number), 1e-6 * (1 + place)
                rows.append(row(key, f'ferry.to(x, "{target}")', True, True, size, ours))
                rows.append(row(key, f"{target}.from_dlpack(x)", False, True, size, native))
    return result(rows, [4096, 8192])


def hostile() -> dict[str, Any]:
    """The sample with markup, scripts and odd characters wherever text can be."""
    made = sample()
    bad = (
        "</style></title></code>\"'><script>document.title='owned'</script>"
        "<img src=x onerror=document.title='owned'>"
    )
    odd = "\u202eevil\ud800\x00\x1b[31m&amp;"
    for entry in made["rows"]:
        for name in ("source", "target", "source_device", "dtype", "layout", "method"):
            entry[name] = f"{entry[name]}{bad}{odd}"
        entry["error"] = entry["error"] and bad
    made["machine"] = {bad: odd, **dict.fromkeys(made["machine"], bad)}
    made["settings"] = {bad: [bad, odd], "pairs": [[bad, odd]], "seconds": bad}
    return made


def row(
    key: tuple[str, ...],
    method: str,
    ours: bool,
    shares: bool | None,
    size: int,
    seconds: float | None,
    error: str | None = None,
    chance: random.Random | None = None,
    interval: tuple[float, float, float] | None = None,
) -> dict[str, Any]:
    """One row; its quartiles are near its median. `interval` is that of a native method's ratio."""
    spread = chance.uniform(0.01, 0.12) if chance else 0.02
    names = ("source", "target", "source_device", "target_device", "dtype", "layout")
    return {
        **dict(zip(names, key, strict=True)),
        "bytes": size,
        "method": method,
        "ours": ours,
        "shares": shares if error is None else None,
        "seconds": seconds,
        "low": seconds and seconds * (1 - spread / 2),
        "high": seconds and seconds * (1 + spread),
        "calls": 1000 if seconds else None,
        "rounds": 25 if seconds else None,
        **dict(zip(("ratio_low", "ratio", "ratio_high"), interval or (), strict=False)),
        "extra_bytes": (0 if shares else size) if error is None else None,
        "checked": error is None,
        "error": error,
    }


def timed(
    seconds: float, *, ours: bool = False, size: int = 4096, **changes: Any
) -> dict[str, Any]:
    """A row of one group, by ours or by the native way."""
    method = "ferry.to(x)" if ours else "native(x)"
    return row(KEY, method, ours, True, size, seconds) | changes


def result(rows: list[dict[str, Any]], sizes: Sequence[int]) -> dict[str, Any]:
    """A whole result around its rows."""
    limits = {"memcpy": (120e-9, 12.3e9), "upload": (9e-6, 55e9), "download": (9e-6, 53e9)}
    return {
        "format": "tensorferry-bench/1",
        "machine": dict(MACHINE),
        "settings": {
            "sizes": list(sizes),
            "dtypes": sorted({row["dtype"] for row in rows}),
            "layouts": sorted({row["layout"] for row in rows}),
            "pairs": sorted({(row["source"], row["target"]) for row in rows}),
            "seconds": 0.2,
        },
        "limits": {
            name: [{"bytes": size, "seconds": copy(*cost)(size)} for size in sizes]
            for name, cost in limits.items()
        },
        "rows": rows,
    }


# A report of each of these must come out well.
PAGES: dict[str, Callable[[], dict[str, Any]]] = {
    "sample": sample,
    "wide": many_rows,
    "many": many,
    "bundled": bundled,
    "many sizes": lambda: sample(sizes=[1 << power for power in range(10, 31)]),
    "one size": lambda: sample(sizes=[1 << 20]),
    "busy": lambda: sample() | {"load": {"others": 0.43, "steal": 0.03, "control": 1.6}},
    "hostile": hostile,
    "empty": lambda: result([], []),
}
