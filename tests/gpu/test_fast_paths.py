"""The fast paths that only a GPU exercises: they are active, and order holds without each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from gpu.gpu_frameworks import GPU_FRAMEWORKS
from gpu.gpu_programs import run_program
from support.subprocesses import HANG_SECONDS

ROOT = Path(__file__).parent.parent.parent

OF_FRAMES = {
    "torch": ("torch.exchange_stream",),
    "cupy": ("cupy.contiguous", "cupy.current_handle"),
    "jax": ("jax.ready_stream", "jax.shards", "jax.dlpack_export", "jax.dlpack_import"),
    "tensorflow": ("tensorflow.dlpack_import", "tensorflow.dlpack_export"),
}
# The tests of the order of work, of which each takes seconds.
ORDERS = (
    "test_a_write_that_is_queued_is_seen",
    "test_memory_is_not_handed_out_while_it_is_read",
    "test_an_explicit_stream_is_honoured",
)
ON_GPU = [name for frame, names in OF_FRAMES.items() if frame in GPU_FRAMEWORKS for name in names]


def told(switch: str) -> dict[str, list]:
    """The states in a child after trips between all."""
    shown = run_program("gpu/trips_on_gpu.py", TENSORFERRY_DISABLE=switch)
    return json.loads(shown.splitlines()[-1])


def has_several_gpus() -> bool:
    return torch.cuda.device_count() > 1


def test_each_is_active_after_trips_on_the_gpu():
    found = told("")
    # Older versions of PyTorch have no table of C functions.
    if found["torch.exchange_stream"][0] == "missing":
        assert found["torch.raw_stream"] == ["active", None]
    wanted = {name for name in ON_GPU if found[name][0] != "missing"}
    if not has_several_gpus():
        assert wanted >= set(ON_GPU) - {"torch.exchange_stream", "cupy.current_handle"}
    assert {name: found[name] for name in wanted} == {name: ["active", None] for name in wanted}
    assert not {name: state for name, state in found.items() if state[0] == "failed"}


@pytest.mark.not_quick
def test_the_raw_stream_replaces_the_table():
    found = told("torch.exchange_stream")
    assert found["torch.raw_stream"] == ["active", None]


def test_none_is_active_where_all_are_off():
    assert {state for state, _ in told("all").values()} == {"disabled"}


@pytest.mark.not_quick
@pytest.mark.parametrize(
    "switch",
    [
        "all",
        "torch.exchange_stream",
        "torch.exchange_stream,torch.raw_stream",
        "torch.exchange_api",
        *(
            ("jax.ready_stream", "jax.ready_stream,jax.dlpack_import")
            if "jax" in GPU_FRAMEWORKS
            else ()
        ),
        *(("cupy",) if "cupy" in GPU_FRAMEWORKS else ()),
    ],
)
def test_the_order_of_work_holds_without(switch):
    """Work that is queued late is seen, and memory is not handed out early."""
    tests = [f"tests/gpu/test_streams.py::{name}" for name in ORDERS]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--confcutdir=tests/gpu", *tests],
        cwd=ROOT,
        env={**os.environ, "TENSORFERRY_DISABLE": switch},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
