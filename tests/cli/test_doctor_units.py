"""The parts of the doctor: what catches a lie, what is to be tried, and what is said about it."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry._tools import introspect
from tensorferry._tools.cli.doctor_text import lines
from tensorferry._tools.cli.terminal import Terminal
from tensorferry._tools.doctor import matrix
from tensorferry._tools.doctor.conversion import convert_cell
from tensorferry._tools.doctor.fast_paths import merge
from tensorferry._tools.doctor.findings import (
    Cell,
    Device,
    Driver,
    FastPath,
    Framework,
    Gpu,
    Machine,
    Pinned,
    Result,
)
from tensorferry._tools.doctor.report import Report
from tensorferry._tools.doctor.tasks import Task

FROM_MLX = Cell("mlx", "numpy", "cpu", "cpu")


def zero_source(x: Any) -> np.ndarray:
    """The values of the source, which is then overwritten with zeros."""
    values = np.array(x)
    x[:] = 0
    return values


INVALID_CONVERSIONS = {
    "the result differs from the source": lambda x: real(x, "numpy") + 1,
    "the conversion changed the source": zero_source,
    "the result is int32 of shape (12, 20)": lambda x: real(x, "numpy").view("int32"),
    "the result is float32 of shape (240,)": lambda x: real(x, "numpy").reshape(-1),
    "the plan was share, and the trace has copy": lambda x: real(x, "numpy", copy=True),
    "the plan was share, and the trace has nothing": lambda x: np.array(x),
    "the plan was to share, and the result has its own memory": lambda x: real(x, "numpy").copy(),
}
real = ferry.to


@pytest.mark.parametrize("fact", INVALID_CONVERSIONS)
def test_a_wrong_conversion_is_found(fact, monkeypatch):
    assert convert_cell(FROM_MLX, "float32") == Result("shared", memory="seen")
    monkeypatch.setattr(ferry, "to", lambda x, framework, **options: INVALID_CONVERSIONS[fact](x))
    result = convert_cell(FROM_MLX, "float32")
    assert (result.outcome, result.fact) == ("wrong", fact)


def test_a_share_that_was_to_be_a_copy_is_caught(monkeypatch):
    plan = ferry.plan
    monkeypatch.setattr(ferry, "plan", lambda *args, **options: plan(*args, copy=True))
    monkeypatch.setattr(ferry, "trace", lambda: contextlib.nullcontext([Traced]))
    result = convert_cell(FROM_MLX, "float32")
    fact = "the plan was to copy, and the result shares the memory of the source"
    assert (result.outcome, result.fact) == ("wrong", fact)


class Traced:
    """A trip that says what was planned."""

    class plan:  # noqa: N801 (as a trip has it)
        action = "copy"


def test_other_errors_are_failures(monkeypatch):
    def fails(*_args: Any, **_options: Any) -> None:
        raise error

    monkeypatch.setattr(ferry, "to", fails)
    error: Exception = ValueError("no\n luck")
    assert convert_cell(FROM_MLX, "float32") == Result("failed", "ValueError: no luck")
    error = ferry.FrameworkError("it is gone\nhint: buy another")
    assert convert_cell(FROM_MLX, "float32") == Result("failed", "it is gone", "buy another")


def test_an_address_that_cannot_be_had_is_not_claimed(monkeypatch):
    def fails(*_args: Any) -> int:
        raise TypeError("no address")

    monkeypatch.setattr(introspect, "address", fails)
    result = convert_cell(FROM_MLX, "float32")
    assert result.outcome == "shared"
    assert result.memory == "not checked: mlx does not give the address: no address"


def host(*frameworks: Framework, gpus: int = 0, huge_pages: str = "madvise") -> Report:
    return Report(
        Machine("0", "3", "cpu", 1, 2**30, "6", huge_pages, None, 2**20),
        "float32",
        Driver("works", gpus=tuple(Gpu(index, "Toy", 1, "9.0") for index in range(gpus))),
        list(frameworks),
        Pinned("absent"),
    )


def test_what_could_be_better():
    assert host().notices == []
    (notice,) = host(huge_pages="never").notices
    assert "huge pages" in notice.fact
    blind = Framework("torch", "works", devices=(Device("cpu"),), for_cuda=True, note="too old")
    assert host(blind).healthy
    (problem,) = host(blind, gpus=1).problems
    assert problem.fact == "torch is built for CUDA and does not find the GPU: too old"
    plain = Framework("jax", "works", devices=(Device("cpu"),))
    assert host(plain, gpus=2).healthy
    (notice,) = host(plain, gpus=2).notices
    assert notice.fact.startswith("jax does not use any of the 2 GPUs")


def test_each_reason_is_told_once():
    found = host(
        Framework("torch", "works", "2.9", 1.0, (Device("cpu"),)), Framework("cupy", "absent")
    )
    no, bad = Result("impossible", "it cannot", "do so"), Result("wrong", "it lies", "mend it")
    copied = Result("copied", "it is far")
    unseen = Result("shared", memory="not seen, because mlx does not tell the address: why")
    for target, result in {"torch": copied, "jax": no, "mlx": unseen, "paddle": bad}.items():
        for source in ("numpy", "torch"):
            found.cells[Cell(source, target, "cpu", "cpu")] = result
    shown = "\n".join(lines(found, Terminal()))
    assert re.search(r"numpy +copied 1 +no 2 +shared 3 +WRONG 4\n", shown)
    assert re.search(r"torch +copied 1 +no 2 +shared 3 +WRONG 4\n", shown)
    assert re.search(r"cupy +- +not installed\n", shown)
    assert [shown.count(fact) for fact in ("it cannot", "it lies", "it is far", "why")] == [1] * 4
    assert "\n  2 it cannot\n    hint: do so\n" in shown
    problems = shown.partition("\nproblems\n")[2]
    assert "  4 numpy to paddle, torch to paddle: it lies\n    hint: mend it\n" in problems
    assert shown.endswith("1 problem: 2 shared, 2 copied, 2 impossible, 2 wrong; 8 cells in 0 s")


def test_the_cells_of_two_gpus():
    cpu, first, second = Device("cpu"), Device("cuda:0"), Device("cuda:1")
    found = matrix.cells(
        [
            Framework("numpy", "works", devices=(cpu,)),
            Framework("torch", "works", devices=(cpu, first, second)),
            Framework("cupy", "works", devices=(first, second)),
        ]
    )
    assert len(found) == len(set(found)) == 4 + 2 * (4 + 4 + 4)
    assert {str(cell) for cell in found} >= {
        "numpy to torch",
        "numpy on cpu to cupy on cuda:1",
        "cupy on cuda:0 to torch on cuda:0",
    }
    assert not any("numpy on cuda" in str(cell) for cell in found)


def path(state: str, reason: str | None = None, name: str = "torch.lazy_bits") -> FastPath:
    return FastPath(name, name.partition(".")[0], "`private`", "`public`", state, reason)


def test_the_state_of_the_highest_precedence_counts():
    used, failed = path("active"), path("failed", "it lies")
    assert merge([path("unused"), used]) == merge([used, path("unused")]) == [used]
    assert merge([used, failed]) == merge([failed, used]) == [failed]
    other = path("unused", name="jax.shards")
    assert merge([used, other]) == [used, other]


def test_fast_paths_are_listed_with_the_reason():
    found = host(Framework("torch", "works", "2.9", 1.0, (Device("cpu"),)))
    found.fast_paths = [
        path("active", name="torch.storage"),
        path("failed", "it is true " + "and true " * 12),
        path("unused", name="torch.raw_stream"),
        path("disabled", "disabled by TENSORFERRY_DISABLE", "torch.pytree"),
        path("missing", "no such function", "torch.tensor_base"),
        path("unused", name="cupy.contiguous"),
    ]
    shown = "\n".join(lines(found, Terminal()))
    assert "\n  torch.storage      active\n" in shown
    assert "\n  torch.lazy_bits    FAILED: it is true and true" in shown
    assert "\n  torch.raw_stream   not used here\n" in shown
    assert "\n  torch.pytree       off: disabled by TENSORFERRY_DISABLE\n" in shown
    assert "\n  torch.tensor_base  not available: no such function\n" in shown
    # CuPy is not here.
    assert "cupy.contiguous" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    (notice,) = found.notices
    assert notice.fact.startswith("the fast path torch.lazy_bits failed its probe: it is true")
    assert "`public`" in notice.hint
    # What has a fallback is not a problem.
    assert found.healthy
    assert [one["state"] for one in found.as_dict()["fast_paths"]] == [
        one.state for one in found.fast_paths
    ]


def test_an_order_of_import_may_name_a_module_that_a_framework_loads():
    call = Task(["tensorflow", "triton"]).call
    assert json.loads(call.arguments[0]) == [["tensorflow", "tensorflow"], ["triton", "triton"]]
