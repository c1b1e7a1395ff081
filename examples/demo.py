"""Carries one array around every framework that is installed, and checks each hop.

A hop is right when the values are the same bit for bit. A share is right when the address is the
same and a write on one side is seen on the other. The exit code is 0 only if every hop was right.
"""

import importlib
import os
import statistics
import sys
import time
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
warnings.filterwarnings("ignore", message="No ccache found")  # Paddle, at import

# Paddle before TensorFlow: the other order ends the process inside their libraries.
REQUIRED = ["numpy", "torch", "jax", "tensorflow"]
ORDER = ["numpy", "torch", "paddle", "mlx.core", "jax", "tensorflow"]

import tensorferry as ferry  # noqa: E402  (after the environment is set)


def installed() -> list[str]:
    """The frameworks that can be imported here, in an order that works."""
    here = {info.name for info in ferry.frameworks() if info.installed}
    missing = [name for name in REQUIRED if name not in here]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}")
    names = []
    for module in ORDER:
        name = module.partition(".")[0]
        if name in here:
            importlib.import_module(module)
            names.append(name)
    return names


def view_of(tensor):
    """The tensor's own memory as a NumPy array, by the tensor's own means and not by ours."""
    import numpy as np

    name = type(tensor).__module__.partition(".")[0]
    return np.asarray(tensor) if name in ("numpy", "torch") else np.from_dlpack(tensor)


def check(source, result, shares: bool) -> list[str]:
    """What is wrong with a hop; nothing, if all is well."""
    import numpy as np

    wrong = []
    before, after = view_of(source), view_of(result)
    if before.tobytes() != after.tobytes():
        wrong.append("values differ")
    same = before.ctypes.data == after.ctypes.data
    if same != shares:
        wrong.append("not the same address" if shares else "the same address")
    if shares:
        # Write through a raw pointer, since some frameworks call their tensors immutable.
        pointer = np.ctypeslib.as_array(
            np.ctypeslib.as_ctypes_type(np.float32).from_address(before.ctypes.data)
        )
        old = pointer[()]
        pointer[()] = 42.5
        if view_of(result).flat[0] != 42.5:
            wrong.append("a write is not seen on the other side")
        pointer[()] = old
    return wrong


def hop(source, target: str) -> tuple[object, str, float, list[str]]:
    """Carries a tensor, checks what the trace says against what is there, then takes the time."""
    with ferry.trace() as trips:
        result = ferry.to(source, target)
    wrong = check(source, result, trips[0].shares)
    times = []
    for _ in range(50):
        started = time.perf_counter()
        ferry.to(source, target)
        times.append(time.perf_counter() - started)
    return result, trips[0].plan.action, statistics.median(times), wrong


def main() -> int:
    names = installed()
    import numpy as np

    array = np.random.default_rng().standard_normal((256, 256), np.float32)
    print(f"carrying float32 {array.shape} between {', '.join(names)}\n")
    print(f"{'hop':<26}{'how':<10}{'median time':>12}   verified")
    failures = 0
    hops = 0
    for start in names:
        first = array if start == "numpy" else ferry.to(array, start, copy=True)
        for target in names:
            if target == start:
                continue
            _, action, seconds, wrong = hop(first, target)
            how = {"share": "shared", "copy": "copied"}[action]
            verdict = "yes" if not wrong else "NO: " + "; ".join(wrong)
            print(f"{start + ' -> ' + target:<26}{how:<10}{seconds * 1e6:>9.1f} us   {verdict}")
            failures += bool(wrong)
            hops += 1
    end = array
    for name in [*names[1:], names[0]]:
        end = ferry.to(end, name)
    same = end.tobytes() == array.tobytes()
    around = "the same values" if same else "OTHER VALUES"
    print(f"\n{hops} hops, {failures} wrong; once around all of them and back: {around}")
    return 1 if failures or not same else 0


if __name__ == "__main__":
    started = time.perf_counter()
    code = main()
    print(f"{time.perf_counter() - started:.1f} s with the frameworks' imports")
    sys.exit(code)
