"""The register of fast paths: states, switches, probes that fail, and the documents."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from support import fake_driver, subprocesses

from tensorferry._native import _fast_path_enabled, _fast_path_probed, _fast_paths
from tensorferry.framework_register import FRAMEWORKS

ROOT = Path(__file__).parent.parent
NAMES = [row["name"] for row in _fast_paths()]

# What needs a GPU, or is only used where another one is off.
NOT_USED = {
    "torch.exchange_stream",
    "torch.raw_stream",
    "torch.function_stack",
    "torch.fake_tensor",
    "jax.ready_stream",
    "cupy.contiguous",
    "cupy.current_handle",
}

# Every pair of frameworks, dense and sparse, with the values checked; then the states.
TRIPS = """
import json, sys
import numpy as np
import tensorferry as ferry
from tensorferry._native import _fast_paths

def states():
    return {row["name"]: (row["state"], row["reason"]) for row in _fast_paths()}

def go_everywhere(names):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for source in names:
        for target in names:
            y = ferry.to(ferry.to(x, source), target)
            np.testing.assert_array_equal(np.array(ferry.to(y, "numpy")), x)
    if "torch" in names:
        import torch
        for t in (torch.arange(3) * 1j).conj(), (torch.arange(3) * 1j).conj().imag:
            plain = t.resolve_conj().resolve_neg().numpy()
            np.testing.assert_array_equal(ferry.to(t, "numpy"), plain)
    if "tensorflow" in names:
        small = ferry.to(x, "tensorflow", dtype="float8_e5m2")
        np.testing.assert_array_equal(ferry.to(small, "numpy").astype(np.float32), x)

def go_sparse(names):
    import scipy.sparse
    dense = np.diag(np.arange(1, 4, dtype=np.float32))
    for kind in scipy.sparse.csr_array, scipy.sparse.coo_array, scipy.sparse.csc_matrix:
        for name in names:
            there = ferry.to(kind(dense), name)
            np.testing.assert_array_equal(ferry.to(there, "scipy").toarray(), dense)

class Opaque:
    pass

def go_into_trees():
    try:
        ferry.to(Opaque(), "numpy")
    except ferry.NotATensorError:
        pass
"""
DENSE = ("numpy", "paddle", "torch", "jax", "tensorflow", "mlx")


def told(code: str, *, names: tuple[str, ...] = DENSE, **environment: str) -> dict[str, list]:
    """The states in a child that has these frameworks and runs this code."""
    end = "\nprint(json.dumps(states()))"
    # Whatever this process was told.
    switch = {"TENSORFERRY_DISABLE": "", **environment}
    return json.loads(subprocesses.run(subprocesses.imports(*names) + TRIPS + code + end, **switch))


def test_nothing_is_used_nor_imported_before_the_first_trip():
    heavy = "assert not {'torch', 'jax', 'tensorflow', 'paddle', 'cupy'} & sys.modules.keys()"
    found = told(heavy, names=("numpy",))
    assert {tuple(state) for state in found.values()} == {("unused", None)}


def test_each_is_active_after_trips_between_all_or_none_is():
    """In this process: `make test-public` runs it with all of them off."""
    scope: dict[str, Any] = {}
    exec(TRIPS, scope)
    scope["go_everywhere"](DENSE)
    scope["go_sparse"](["torch", "jax", "tensorflow"])
    scope["go_into_trees"]()
    found = scope["states"]()
    if os.environ.get("TENSORFERRY_DISABLE") == "all":
        assert {state for state, _ in found.values()} == {"disabled"}
        return
    assert {name for name, (state, _) in found.items() if state == "unused"} <= NOT_USED
    others = {name: state for name, state in found.items() if name not in NOT_USED}
    off = {row["name"] for row in _fast_paths() if not _fast_path_enabled(row["name"])}
    assert {name for name, (state, _) in others.items() if state == "disabled"} == off - NOT_USED
    assert {others[name] for name in others.keys() - off} == {("active", None)}, others


def test_single_ones_are_off_and_the_others_stay():
    off = {"torch.lazy_bits", "torch.function_mode", "torch.exchange_api", "numpy.array_struct"}
    code = "go_everywhere(['numpy', 'torch'])\ngo_sparse(['torch'])\ngo_into_trees()"
    switch = {"TENSORFERRY_DISABLE": ",".join(sorted(off))}
    found = told(code, names=("numpy", "torch"), **switch)
    assert {name for name, (state, _) in found.items() if state == "disabled"} == off
    # It takes the place of one that is off.
    assert found["torch.function_stack"] == ["active", None]
    used = {name for name in NAMES if name.startswith(("numpy.", "torch.", "scipy."))} - NOT_USED
    active = {name for name, (state, _) in found.items() if state == "active"}
    assert active == used - off | {"torch.function_stack"}


# ----- probes that fail

FAILING = {
    # A mode that is never entered.
    "torch.function_mode": """
        class Nothing:
            __enter__ = __exit__ = lambda *_: None
        torch.overrides.TorchFunctionMode = Nothing
    """,
    # A conjugate without its bit.
    "torch.lazy_bits": """
        conj = torch.Tensor.conj
        torch.Tensor.conj = lambda self: conj(self).resolve_conj()
        undo.append(lambda: setattr(torch.Tensor, "conj", conj))
    """,
    "torch.tensor_base": """
        is_leaf = torch.Tensor.is_leaf
        torch.Tensor.is_leaf = property(lambda self: "yes")
        undo.append(lambda: delattr(torch.Tensor, "is_leaf"))
    """,
    "torch.exchange_api": """
        stride = torch.Tensor.stride
        torch.Tensor.stride = lambda self, *axis: tuple(reversed(stride(self, *axis)))
        undo.append(lambda: delattr(torch.Tensor, "stride"))
    """,
    "torch.allocator": """
        from_numpy = torch.from_numpy
        torch.from_numpy = lambda array: torch.ones(array.shape)
        undo.append(lambda: setattr(torch, "from_numpy", from_numpy))
    """,
    "torch.pytree": """
        import torch.utils._pytree
        node = torch.utils._pytree.SUPPORTED_NODES[dict]
        changed = node._replace if hasattr(node, "_replace") else lambda **new: type(node)(
            node.type, new["flatten_fn"], node.unflatten_fn, node.flatten_with_keys_fn
        )
        torch.utils._pytree.SUPPORTED_NODES[dict] = changed(flatten_fn=lambda d: ([], None))
    """,
    "numpy.array_struct": """
        zeros = np.zeros
        class Odd(np.ndarray):
            base = property(lambda self: None)
        np.zeros = lambda *given, **more: zeros(*given, **more).view(Odd)
        undo.append(lambda: setattr(np, "zeros", zeros))
    """,
    "jax.enable_x64": """
        import jax._src.config
        class Off:
            value = False
        jax._src.config.enable_x64 = Off
    """,
    "jax.tree_unflatten": """
        import jax.experimental.sparse
        kind = jax.experimental.sparse.BCOO
        true = kind.tree_unflatten.__func__
        def forgetful(kind, flags, parts):
            return true(kind, {**flags, "indices_sorted": False, "shape": (9, 9)}, parts)
        kind.tree_unflatten = classmethod(forgetful)
    """,
    "scipy.without_constructor": """
        import scipy.sparse
        make = scipy.sparse.csr_array.__init__
        def with_more(self, *given, **more):
            make(self, *given, **more)
            self.noted = True
        scipy.sparse.csr_array.__init__ = with_more
    """,
}


def test_probes_that_fail_leave_right_values():
    """All at once, in one child: each is off with its reason, and every value is right."""
    breaks = "\n".join(subprocesses.textwrap.dedent(code) for code in FAILING.values())
    setup = "undo = []\nimport numpy as np\n" + breaks
    # The first trips run the probes of NumPy and PyTorch; the values of the others are compared
    # by functions that are whole again.
    first = """
there = ferry.to(np.ones(2, np.float32), "torch")
ferry.to(there, "numpy")
for one in undo:
    one()
"""
    names = ["numpy", "torch", "jax", "mlx"]
    code = f"go_everywhere({names})\ngo_sparse(['torch', 'jax'])\ngo_into_trees()"
    text = subprocesses.imports(*names) + setup + TRIPS + first + code
    text += "\nprint(json.dumps(states()))"
    found = json.loads(subprocesses.run(text, TENSORFERRY_DISABLE=""))
    failed = {name for name, (state, _) in found.items() if state == "failed"}
    # Counting modes is refuted by the same mode.
    assert failed == FAILING.keys() | {"torch.function_stack"}
    assert all(found[name][1] for name in failed)
    assert "BCOO" in found["jax.tree_unflatten"][1]
    assert (
        "csr_array: the object has the unknown attribute noted"
        in found["scipy.without_constructor"][1]
    )
    assert "before" in found["torch.function_mode"][1]


def test_what_a_version_lacks_is_missing():
    hide = """
import torch
class Hidden:
    def __getattr__(self, name):
        if name in ("TensorBase", "StorageBase", "_len_torch_function_stack"):
            raise AttributeError(f"no {name}")
        return getattr(real, name)
real, torch._C = torch._C, Hidden()
del torch.Tensor.__dlpack_c_exchange_api__
go_everywhere(["numpy", "torch"])
torch._C = real
"""
    switch = {"TENSORFERRY_DISABLE": "torch.function_mode"}
    found = told(hide, names=("numpy", "torch"), **switch)
    missing = {name for name, (state, _) in found.items() if state == "missing"}
    paths = ("exchange_api", "tensor_base", "allocator", "function_stack")
    assert missing == {f"torch.{name}" for name in paths}
    assert found["torch.tensor_base"][1] == "AttributeError: no TensorBase"


def test_the_first_call_in_a_mode_probes_outside_of_it():
    """Modes, traces and graphs belong to a thread, and probes run on another one."""
    code = """
import torch, jax
class Calls(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, given=(), more=None):
        seen.append(function)
        return function(*given, **(more or {}))
seen = []
with torch.device("meta"), Calls():
    ferry.to(np.ones(2, np.float32), "torch")
assert not seen, seen
jax.jit(lambda y: (ferry.to(np.ones(2, np.float32), "jax"), y)[1])(1.0)
"""
    found = told(code, names=("numpy", "torch", "jax"))
    off = {name: state for name, state in found.items() if state[0] not in ("active", "unused")}
    assert not off, off
    assert found["torch.lazy_bits"][0] == found["jax.enable_x64"][0] == "active"


# ----- on the stand-in for the driver

ON_CUPY = """
from tensorferry._native import _fast_paths
x = on_gpu(np.arange(6, dtype=np.float32).reshape(2, 3))
with stream:
    np.testing.assert_array_equal(ferry.to(x, "numpy"), x.get())
for row in _fast_paths():
    if row["framework"] == "cupy":
        print(row["name"], row["state"], row["reason"])
"""
STREAM_MODULE = """
import sys
from types import ModuleType
sys.modules["cupy_backends"] = sys.modules["cupy_backends.cuda"] = ModuleType("cupy_backends")
module = sys.modules["cupy_backends.cuda.stream"] = ModuleType("cupy_backends.cuda.stream")
module.get_current_stream_ptr = lambda: {}
stream = cupy.cuda.Stream()
"""


def on_cupy(*code: str, **environment: str) -> list[str]:
    """What is said about CuPy's after a download, on a machine with one GPU."""
    one = {"TENSORFERRY_TESTDRIVER_DEVICES": "0", "TENSORFERRY_DISABLE": "", **environment}
    return fake_driver.run(fake_driver.SETUP, *code, ON_CUPY, **one).splitlines()


def test_the_fast_paths_of_cupy():
    true = STREAM_MODULE.format("cupy.cuda.get_current_stream().ptr")
    assert on_cupy(true) == ["cupy.contiguous active None", "cupy.current_handle active None"]
    first, second = on_cupy(true, TENSORFERRY_DISABLE="cupy")
    assert first.startswith("cupy.contiguous disabled ")
    assert second.startswith("cupy.current_handle disabled ")


def test_a_stream_that_is_not_cupys_is_not_used():
    first, second = on_cupy(STREAM_MODULE.format("0"))
    assert first == "cupy.contiguous active None"
    assert re.fullmatch(r"cupy.current_handle failed .* 0x0, expected 0x[0-9a-f]+", second)


def test_contiguity_that_does_not_hold_is_not_used():
    lies = """
        stream = cupy.cuda.Stream()
        cupy.ndarray._c_contiguous = property(lambda x: True, lambda x, given: None)
    """
    first, second = on_cupy(lies)
    assert re.fullmatch(r"cupy.contiguous failed .*true .*true .*", first)
    assert second.startswith("cupy.current_handle missing ModuleNotFoundError: ")


# ----- the register and the documents


def test_names():
    assert len(set(NAMES)) == len(NAMES)
    for row in _fast_paths():
        assert row["name"].partition(".")[0] == row["framework"]
        assert row["framework"] in FRAMEWORKS
        assert re.fullmatch(r"[a-z]+\.[a-z0-9_]+", row["name"])
    with pytest.raises(ValueError, match=r"torch\.nonsense"):
        _fast_path_enabled("torch.nonsense")
    with pytest.raises(ValueError, match=r"torch\.nonsense"):
        _fast_path_probed("torch.nonsense")


def test_the_table_in_the_architecture():
    """It has the rows of the register, word for word."""
    page = (ROOT / "docs/architecture/fast-paths.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    columns = ("calls", "fallback", "probe")
    expected = [
        f"| `{row['name']}` | " + " | ".join(str(row[column]) for column in columns) + " |"
        for row in _fast_paths()
    ]
    assert rows == expected


# Names that begin with an underscore and are not of a framework's private API.
OWN_NAMES = {
    "_native",
    "_to_any",
    "_finish",
    "_tensorferry_loan",
    "_local",  # threading.local
    "_thread",
    "_fields",  # named tuples
    "_make",
    "_meta",  # Dask is not a framework here, and its arrays have no other name for it
    "_os_error",
    "_hint_key",
    "_hint_value",
    "_Framework",
    "_Transfer",
    "_SparseOrder",
    "_Trace",
}
# Modules whose types are known by name; nothing of them is called.
KNOWN_BY_TYPE = "builtin_frameworks.rs"
PRIVATE = re.compile(
    r'c?"(_[A-Za-z]\w*)"|"((?:torch|jax|tensorflow|jaxlib|cupy_backends|paddle)[\w.]*)"'
)


def private_names(text: str) -> set[str]:
    """Names in string literals that are private: of attributes, symbols and modules."""
    found = set()
    for name, module in PRIVATE.findall(text):
        if name.startswith("_ZN"):
            found.add(re.search(r"\d([a-z_]+)E", name)[1])
        elif name and not name.startswith("_PyThread") and name not in OWN_NAMES:
            found.add(name)
        if re.search(r"\._|^tensorflow\.python|^jaxlib|^cupy_backends", module):
            found.add(module)
    return found


def test_every_private_name_in_the_sources_is_in_the_register():
    said = "\n".join(str(row["calls"]) for row in _fast_paths())
    found: dict[str, str] = {}
    for path in sorted((ROOT / "crates/python/src").rglob("*.rs")):
        if path.name != KNOWN_BY_TYPE:
            found.update(dict.fromkeys(private_names(path.read_text()), path.name))
    known = {"_arrays", "torch_function_mode_enabled", "tensorflow.python.pywrap_tfe", "is_conj"}
    assert known <= found.keys()
    assert not {name: where for name, where in found.items() if name not in said}
