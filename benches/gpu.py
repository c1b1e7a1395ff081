"""What a share costs between frameworks on a GPU.

Beside the one-liners that people write stand the bare constructors: what a framework takes to make
its tensor when it is handed an address, with no check and no order of streams. What we take beyond
the constructor is ours; no conversion can be quicker than it.

Not part of a full run: `python benches/run.py --only gpu gpu_copies transfers gpu_files --record
...`, on a machine with a CUDA GPU.
"""

import importlib.util
import os
import warnings
from dataclasses import asdict
from typing import Any

from measure import expression, interleave, quickest, ratio, spread, verdict
from table import Section

# By pair: one-liners, the bare constructor, the most nanoseconds, the most of the best one-liner.
PAIRS: dict[tuple[str, str], tuple[list[str], str, float | None, float]] = {
    ("torch", "cupy"): (
        ["cupy.asarray(x)", "cupy.from_dlpack(x)"],
        "cupy.ndarray(shape, f32, Pointer(Unowned(p, 64, x, 0), 0))",
        4_000,
        1.0,
    ),
    ("cupy", "torch"): (
        ["torch.as_tensor(x, device='cuda')", "torch.from_dlpack(x)"],
        "torch_from_capsule(x.__dlpack__(stream=-1))",
        2_500,
        1.0,
    ),
    ("jax", "torch"): (["torch.from_dlpack(x)"], "torch_from_capsule(jax_out(x))", 4_000, 1.0),
    ("jax", "cupy"): (["cupy.from_dlpack(x)"], "jax_out(x)", 5_000, 1.0),
    ("torch", "jax"): (["jax.dlpack.from_dlpack(x)"], "jax_in(torch_out(x), gpu, None)", None, 0.5),
    ("cupy", "jax"): (
        ["jax.dlpack.from_dlpack(x)"],
        "jax_in(x.__dlpack__(stream=-1), gpu, None)",
        None,
        0.6,
    ),
    ("torch", "tensorflow"): (["tf_in(torch_out(x))"], "tf_in(torch_out(x))", None, 1.0),
    ("tensorflow", "torch"): (
        ["torch.from_dlpack(tf_out(x))"],
        "torch_from_capsule(tf_out(x))",
        None,
        1.0,
    ),
    ("cupy", "tensorflow"): (
        ["tf_in(x.__dlpack__())"],
        "tf_in(x.__dlpack__(stream=-1))",
        None,
        1.0,
    ),
    ("tensorflow", "cupy"): (["cupy.fromDlpack(tf_out(x))"], "tf_out(x)", None, 1.0),
    ("jax", "tensorflow"): (["tf_in(x.__dlpack__())"], "tf_in(jax_out(x))", None, 1.0),
    ("tensorflow", "jax"): (
        ["jax.dlpack.from_dlpack(x)"],
        "jax_in(tf_out(x), gpu, None)",
        None,
        1.0,
    ),
}
NOISE = 1.05


def namespace() -> dict[str, Any]:
    """Every framework that is here, with short names for functions that hide deep in a module."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    import torch

    import tensorferry as ferry

    names: dict[str, Any] = {
        "ferry": ferry,
        "torch": torch,
        "torch_out": torch.utils.dlpack.to_dlpack,
        "torch_from_capsule": torch._C._from_dlpack,
        "shape": (16,),
    }
    if importlib.util.find_spec("cupy"):
        import cupy

        names |= {
            "cupy": cupy,
            "f32": cupy.dtype("float32"),
            "Pointer": cupy.cuda.MemoryPointer,
            "Unowned": cupy.cuda.UnownedMemory,
        }
    if importlib.util.find_spec("jax"):
        import jax
        from jaxlib import _jax

        names |= {
            "jax": jax,
            "gpu": jax.devices("gpu")[0],
            "jax_in": _jax.dlpack_managed_tensor_to_buffer,
            "jax_out": _jax.buffer_to_dlpack_managed_tensor,
        }
    if importlib.util.find_spec("tensorflow"):
        import tensorflow as tf

        dlpack = tf.experimental.dlpack
        names |= {"tensorflow": tf, "tf_in": dlpack.from_dlpack, "tf_out": dlpack.to_dlpack}
    return names


def source(name: str, names: dict[str, Any]) -> Any:
    """16 random numbers on the GPU, ready."""
    torch = names["torch"]
    x = torch.randn(16, device="cuda")
    torch.cuda.synchronize()
    made = x if name == "torch" else names["ferry"].to(x, name, copy=True)
    torch.cuda.synchronize()
    return made


def values(x: Any, names: dict[str, Any]) -> list[float]:
    return names["ferry"].to(x, "numpy").tolist()


def measure(pair: tuple[str, str], names: dict[str, Any], rounds: int) -> dict[str, Any]:
    natives, constructor, most_ns, most = PAIRS[pair]
    x = source(pair[0], names)
    names = {**names, "x": x, "p": x.data_ptr() if pair[0] == "torch" else 0}
    ours = f'ferry.to(x, "{pair[1]}")'
    expected = values(x, names)
    usable = []
    for code in natives:
        try:
            if values(eval(code, names), names) == expected:
                usable.append(code)
        except Exception as error:
            print(f"{pair}: {code} fails: {type(error).__name__}")
    if values(eval(ours, names), names) != expected:
        raise AssertionError(f"{pair}: other values")
    codes = dict.fromkeys([ours, *usable, constructor])
    samples = interleave(
        {code: expression(code, names) for code in codes}, rounds=rounds, batch=0.002, budget=15
    )
    best = quickest({code: samples[code] for code in usable} or {constructor: samples[constructor]})
    figure = ratio(samples[ours], samples[best])
    nanoseconds = samples[ours].median * 1e9
    slow = most_ns is not None and nanoseconds > most_ns
    return {
        "from": pair[0],
        "to": pair[1],
        "ours ns": nanoseconds,
        "constructor ns": samples[constructor].median * 1e9,
        "native ns": samples[best].median * 1e9,
        "ratio": figure,
        "spread": spread(samples[ours], samples[best]),
        "target": most,
        "most ns": most_ns,
        "verdict": "MISS" if slow else verdict(figure, most * NOISE),
        "best native": f"`{best}`",
    }


def run(quick: bool) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    names = namespace()
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
    here = [pair for pair in PAIRS if all(name in names for name in pair)]
    section.rows = [measure(pair, names, 40 if quick else 120) for pair in here]
    return asdict(section)
