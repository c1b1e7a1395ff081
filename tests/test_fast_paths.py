"""The register of fast paths: states, switches, probes that fail, and the documents."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import paddle
import pytest
import torch
from programs.front.fast_paths_that_fail import BREAKS
from support import fake_driver, subprocesses
from support.trips import go_everywhere, go_into_trees, go_sparse, states

from tensorferry._native import _fast_path_enabled, _fast_path_probed, _fast_paths
from tensorferry.framework_register import FRAMEWORKS

ROOT = Path(__file__).parent.parent
NAMES = [row["name"] for row in _fast_paths()]

# What needs a GPU, or is only used where another one is off.
# Older versions of these have no table of C functions.
TENSORS = {"torch.exchange_api": torch.Tensor, "paddle.exchange_api": paddle.Tensor}
MISSING = {name for name, cls in TENSORS.items() if not hasattr(cls, "__dlpack_c_exchange_api__")}
NOT_USED = {
    "torch.exchange_stream",
    "torch.raw_stream",
    "torch.fake_tensor",
    "jax.ready_stream",
    "cupy.contiguous",
    "cupy.current_handle",
}

DENSE = ("numpy", "paddle", "torch", "jax", "tensorflow", "mlx")


def told(case: str, *names: str, **environment: str) -> dict[str, list]:
    """The states in a process that has these frameworks and runs a case."""
    # Whatever this process was told.
    switch = {"TENSORFERRY_DISABLE": "", **environment}
    shown = subprocesses.run_program("front/fast_path_states.py", case, ",".join(names), **switch)
    return json.loads(shown)


def test_nothing_is_used_nor_imported_before_the_first_trip():
    found = told("no_trip", "numpy")
    assert {tuple(state) for state in found.values()} == {("unused", None)}


def test_each_is_active_after_trips_between_all_or_none_is():
    """In this process: `make test-public` runs it with all of them off."""
    go_everywhere(DENSE)
    go_sparse(["torch", "jax", "tensorflow"])
    go_into_trees()
    found = states()
    if os.environ.get("TENSORFERRY_DISABLE") == "all":
        assert {state for state, _ in found.values()} == {"disabled"}
        return
    assert {name for name, (state, _) in found.items() if state == "unused"} <= NOT_USED
    assert {name for name, (state, _) in found.items() if state == "missing"} == MISSING
    others = {name: state for name, state in found.items() if name not in NOT_USED | MISSING}
    off = {row["name"] for row in _fast_paths() if not _fast_path_enabled(row["name"])}
    assert {name for name, (state, _) in others.items() if state == "disabled"} == off - NOT_USED
    assert {others[name] for name in others.keys() - off} == {("active", None)}, others


def test_single_ones_are_off_and_the_others_stay():
    off = {"torch.lazy_bits", "torch.storage", "torch.exchange_api", "numpy.array_struct"}
    switch = {"TENSORFERRY_DISABLE": ",".join(sorted(off))}
    found = told("trips_of_torch", "numpy", "torch", **switch)
    assert {name for name, (state, _) in found.items() if state == "disabled"} == off
    used = {name for name in NAMES if name.startswith(("numpy.", "torch.", "scipy."))} - NOT_USED
    active = {name for name, (state, _) in found.items() if state == "active"}
    assert active == used - off


# ----- probes that fail


def test_probes_that_fail_leave_right_values():
    """All at once, in one child: each is off with its reason, and every value is right."""
    shown = subprocesses.run_program("front/fast_paths_that_fail.py", TENSORFERRY_DISABLE="")
    found = json.loads(shown)
    failed = {name for name, (state, _) in found.items() if state == "failed"}
    assert failed == BREAKS.keys() - MISSING
    assert all(found[name][1] for name in failed)
    assert "BCOO" in found["jax.tree_unflatten"][1]
    assert (
        "csr_array: the object has the unknown attribute noted"
        in found["scipy.without_constructor"][1]
    )
    assert "NumPy" in found["torch.storage"][1]


def test_what_a_version_lacks_is_missing():
    found = told("private_names_missing", "numpy", "torch")
    missing = {name for name, (state, _) in found.items() if state == "missing"}
    assert missing == {"torch.exchange_api", "torch.tensor_base"}
    assert found["torch.tensor_base"][1] == "AttributeError: no TensorBase"


def test_the_first_call_in_a_mode_probes_outside_of_it():
    """Modes, traces and graphs belong to a thread, and probes run on another one."""
    found = told("first_call_in_a_mode", "numpy", "torch", "jax")
    off = {name: state for name, state in found.items() if state[0] not in ("active", "unused")}
    assert off.keys() <= MISSING, off
    assert found["torch.lazy_bits"][0] == found["jax.enable_x64"][0] == "active"


# ----- on the stand-in for the driver


def on_cupy(world: str, **environment: str) -> list[str]:
    """What is said about CuPy's after a download, on a machine with one GPU."""
    one = {"TENSORFERRY_TESTDRIVER_DEVICES": "0", "TENSORFERRY_DISABLE": "", **environment}
    return fake_driver.run_program("front/fast_paths_of_cupy.py", world, **one).splitlines()


def test_the_fast_paths_of_cupy():
    assert on_cupy("true") == ["cupy.contiguous active None", "cupy.current_handle active None"]
    first, second = on_cupy("true", TENSORFERRY_DISABLE="cupy")
    assert first.startswith("cupy.contiguous disabled ")
    assert second.startswith("cupy.current_handle disabled ")


def test_a_stream_that_is_not_cupys_is_not_used():
    first, second = on_cupy("wrong stream")
    assert first == "cupy.contiguous active None"
    assert re.fullmatch(r"cupy.current_handle failed .* 0x0, expected 0x[0-9a-f]+", second)


def test_contiguity_that_does_not_hold_is_not_used():
    first, second = on_cupy("wrong contiguity")
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
    page = (ROOT / "docs/how-it-works/fast-paths.md").read_text()
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
    "_C_API",
    "_RUST_NUMPY_BORROW_CHECKING_API",  # the capsule that all users of rust-numpy share
    "_ArrowBatches",
    "_BatchMemory",
    "_BatchOptions",
    "_DispatchTable",
    "_LoadOptions",
    "_OwnReduction",
    "_Payload",
    "_SparseStart",
    "_StartedBatch",
    "_rebuild",
    "_reduce",
    "_ArrowColumn",
    "_ArrowOptions",
    "_ExportedColumn",
    "_ExportedTable",
    "_to_any",
    "_to_results",
    "_finish",
    "_tensorferry_loan",
    "_local",  # threading.local
    "_thread",
    "_fields",  # named tuples
    "_make",
    "torch._C._functorch",  # for the text of an error
    "_meta",  # Dask is not a framework here, and its arrays have no other name for it
    "_in_memory",  # of xarray, which is not a framework here
    "_data",
    "_bump_inplace_version",  # Paddle has no public name for it
    "_os_error",
    "_hint_key",
    "_hint_value",
    "_Framework",
    "_Transfer",
    "_SparseOrder",
    "_Trace",
}
# Modules whose types are known by name; nothing of them is called.
KNOWN_BY_TYPE = ("builtin_frameworks.rs", "library_types.rs")
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
        if module not in OWN_NAMES and re.search(
            r"\._|^tensorflow\.python|^jaxlib|^cupy_backends", module
        ):
            found.add(module)
    return found


def test_every_private_name_in_the_sources_is_in_the_register():
    said = "\n".join(str(row["calls"]) for row in _fast_paths())
    found: dict[str, str] = {}
    for path in sorted((ROOT / "crates/python/src").rglob("*.rs")):
        if path.name not in KNOWN_BY_TYPE:
            found.update(dict.fromkeys(private_names(path.read_text()), path.name))
    known = {"_arrays", "tensorflow.python.pywrap_tfe", "is_conj"}
    assert known <= found.keys()
    assert not {name: where for name, where in found.items() if name not in said}
