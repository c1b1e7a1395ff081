"""What a share costs between frameworks on a GPU.

Beside the one-liners that people write stand the bare constructors: what a framework takes to make
its tensor when it is handed an address, with no check and no order of streams. What we take beyond
the constructor is ours; no conversion can be quicker than it.

The one-liners are those of `tensorferry bench` that stay on the GPU and share there.

Not part of a full run: `python benches/run.py --only gpu gpu_copies transfers gpu_files --record
...`, on a machine with a CUDA GPU.
"""

import importlib.util
import os
import warnings
from dataclasses import asdict
from typing import Any

import pairs
from table import Section, verdict

from tensorferry._tools import introspect, samples
from tensorferry._tools.bench import check, methods
from tensorferry._tools.bench.measure import interleave, make_timer
from tensorferry._tools.bench.timings import quickest, ratio, spread

DEVICES = ("cuda", "cuda")
# By pair: the bare constructor, the most nanoseconds, the most of the best one-liner.
PAIRS: dict[tuple[str, str], tuple[str, float | None, float]] = {
    ("torch", "cupy"): (
        "cupy.ndarray(shape, f32, Pointer(Unowned(p, 64, x, 0), 0))",
        4_000,
        1.0,
    ),
    ("cupy", "torch"): ("torch_from_capsule(x.__dlpack__(stream=-1))", 2_500, 1.0),
    ("jax", "torch"): ("torch_from_capsule(jax_out(x))", 4_000, 1.0),
    ("jax", "cupy"): ("jax_out(x)", 5_000, 1.0),
    ("torch", "jax"): ("jax_in(torch_to_dlpack(x), gpu, None)", None, 0.5),
    ("cupy", "jax"): ("jax_in(x.__dlpack__(stream=-1), gpu, None)", None, 0.6),
    ("torch", "tensorflow"): ("tf_from_dlpack(torch_to_dlpack(x))", None, 1.0),
    ("tensorflow", "torch"): ("torch_from_capsule(tf_to_dlpack(x))", None, 1.0),
    ("cupy", "tensorflow"): ("tf_from_dlpack(x.__dlpack__(stream=-1))", None, 1.0),
    ("tensorflow", "cupy"): ("tf_to_dlpack(x)", None, 1.0),
    ("jax", "tensorflow"): ("tf_from_dlpack(jax_out(x))", None, 1.0),
    ("tensorflow", "jax"): ("jax_in(tf_to_dlpack(x), gpu, None)", None, 1.0),
}
# One-liners that `tensorferry bench` does not measure.
MORE = {("tensorflow", "cupy"): ["cupy.fromDlpack(tf_to_dlpack(x))"]}
NOISE = 1.05


def installed() -> list[str]:
    """The frameworks that are here, torch always among them."""
    others = ("cupy", "jax", "tensorflow")
    return ["torch", *(name for name in others if importlib.util.find_spec(name))]


def namespace() -> dict[str, Any]:
    """Every framework that is here, with short names for functions that are deep in a module."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    frameworks = installed()
    names = pairs.namespace(frameworks)
    names |= {"torch_from_capsule": names["torch"]._C._from_dlpack, "shape": (16,)}
    if "cupy" in frameworks:
        cupy = names["cupy"]
        names |= {
            "f32": cupy.dtype("float32"),
            "Pointer": cupy.cuda.MemoryPointer,
            "Unowned": cupy.cuda.UnownedMemory,
        }
    if "jax" in frameworks:
        from jaxlib import _jax

        names |= {
            "gpu": names["jax"].devices("gpu")[0],
            "jax_in": _jax.dlpack_managed_tensor_to_buffer,
            "jax_out": _jax.buffer_to_dlpack_managed_tensor,
        }
    return names


def natives(pair: tuple[str, str]) -> list[str]:
    """What there is without us for a pair, on the GPU."""
    found = methods.natives(*pair, DEVICES)
    on_gpu = [method for method in found if not method.uses_host]
    return [*(pairs.shorten(method.code) for method in on_gpu), *MORE.get(pair, [])]


def measure(pair: tuple[str, str], names: dict[str, Any], rounds: int) -> dict[str, Any]:
    constructor, most_ns, most = PAIRS[pair]
    source, target = pair
    x = samples.make(source, (16,), device="cuda")
    names["torch"].cuda.synchronize()
    names = {**names, "x": x, "p": introspect.address(source, x)}
    ours = f'ferry.to(x, "{target}")'
    expected = introspect.values(source, x)

    def error(result: Any) -> str:
        return check.describe_error(result, target, "cuda", x, source, expected)

    usable = []
    for code in natives(pair):
        try:
            result = eval(code, names)
            wrong = error(result)
        except Exception as raised:
            wrong = type(raised).__name__
        if wrong:
            print(f"{pair}: {code} fails: {wrong}")
        # A copy would be timed without the work that it leaves to the device.
        elif check.shares(x, source, result, target):
            usable.append(code)
    if wrong := error(eval(ours, names)):
        raise AssertionError(f"{pair}: {ours}: {wrong}")
    codes = dict.fromkeys([ours, *usable, constructor])
    found = interleave(
        {code: make_timer(code, names) for code in codes}, rounds=rounds, batch=0.002, budget=15
    )
    best = quickest({code: found[code] for code in usable} or {constructor: found[constructor]})
    figure = ratio(found[ours], found[best])
    nanoseconds = found[ours].median * 1e9
    slow = most_ns is not None and nanoseconds > most_ns
    return {
        "from": source,
        "to": target,
        "ours ns": nanoseconds,
        "constructor ns": found[constructor].median * 1e9,
        "native ns": found[best].median * 1e9,
        "ratio": figure,
        "spread": spread(found[ours], found[best]),
        "target": most,
        "most ns": most_ns,
        "verdict": verdict(not slow and figure <= most * NOISE),
        "best native": f"`{best}`",
    }


def run(quick: bool) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    names, frameworks = namespace(), installed()
    section = Section(
        "One share on a GPU, 16 float32 elements",
        {
            "from": "",
            "to": "",
            "ours ns": ",.0f",
            "constructor ns": ",.0f",
            "native ns": ",.0f",
            "ratio": ".2f",
            "spread": ".0%",
            "target": ".2f",
            "most ns": ",.0f",
            "verdict": "",
            "best native": "",
        },
    )
    here = [pair for pair in PAIRS if {*pair} <= {*frameworks}]
    section.rows = [measure(pair, names, 40 if quick else 120) for pair in here]
    return asdict(section)
