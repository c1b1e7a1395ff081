"""How many child processes the doctor starts, and how often they import a framework.

The child processes are simulated: a speed is a count here, not a time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tensorferry._tools.doctor import examine, orders, processes
from tensorferry._tools.doctor.processes import OnFinding, ProbeCall, ProcessExit

NAMES = ("numpy", "torch", "paddle", "cupy", "jax", "mlx", "tensorflow")
CRASH = ProcessExit("crash", -11)


class Machine:
    """Runs probes in place of child processes, and counts them and their imports."""

    def __init__(self, *crashing: tuple[str, str]) -> None:
        self.crashing = crashing
        """Pairs of names: importing the second after the first ends the process."""
        self.calls: list[ProbeCall] = []
        self.imports: Counter[str] = Counter()
        self.batches: list[int] = []

    def run_probes(
        self, calls: Sequence[ProbeCall], on_finding: OnFinding, **_options: Any
    ) -> list[ProcessExit]:
        self.calls += calls
        self.batches.append(len(calls))
        return [self._run(call, on_finding) for call in calls]

    def _run(self, call: ProbeCall, on_finding: OnFinding) -> ProcessExit:
        def report(kind: str, **description: Any) -> None:
            on_finding(call, {"kind": kind, **description})

        if call.probe == "driver":
            report("absent")
            return ProcessExit("done")
        imported: list[str] = []
        modules = call.arguments[0]
        if call.probe == "framework":
            modules = call.arguments[2]
            name = call.arguments[0]
            imported.append(name)
            self.imports[name] += 1
            report("imported", seconds=0.1, version=None)
            report("devices", devices=[("cpu", None)], for_cuda=False, note=None)
        for name, _ in json.loads(modules):
            report("importing", framework=name)
            self.imports[name] += 1
            if any((before, name) in self.crashing for before in imported):
                return CRASH
            imported.append(name)
            report("imported", framework=name)
        if call.probe == "cells":
            for number, _ in enumerate(json.loads(call.arguments[1])):
                report("converting", number=number)
                report("converted", number=number, outcome="shared")
        return ProcessExit("done")


@pytest.fixture
def examined(monkeypatch):
    def run(*crashing: tuple[str, str]) -> tuple[Machine, Any]:
        machine = Machine(*crashing)
        monkeypatch.setattr(processes, "run_probes", machine.run_probes)
        monkeypatch.setattr(orders, "is_installed", lambda module: True)
        known = [
            ("paddle", "tensorflow", "paddle", "SIGSEGV"),
            ("triton", "tensorflow", "torch", "SIGABRT"),
        ]
        monkeypatch.setattr(orders, "_import_orders", lambda: known)
        return machine, examine.examine(NAMES)

    return run


def import_orders(report: Any) -> dict[tuple[str, ...], str]:
    return {order.modules: order.state for order in report.import_orders}


def test_seven_frameworks_take_ten_processes(examined):
    machine, report = examined(("tensorflow", "paddle"), ("tensorflow", "triton"))
    # The driver, each framework, all together, and the order that no other process can try.
    assert Counter(call.probe for call in machine.calls) == {
        "driver": 1,
        "framework": 7,
        "cells": 1,
        "load": 1,
    }
    assert [count for count in machine.batches if count] == [8, 2]
    # Alone with the first order, in the second order, and with all others.
    assert machine.imports["tensorflow"] == 3
    assert machine.imports["torch"] == 2
    assert machine.imports["jax"] == 2
    assert len(report.cells) == 49
    assert report.healthy
    assert import_orders(report) == {
        ("numpy", "torch", "triton", "paddle", "cupy", "jax", "mlx", "tensorflow"): "works",
        ("tensorflow", "paddle"): "crashes",
        ("paddle", "tensorflow"): "works",
        ("tensorflow", "triton"): "crashes",
        ("triton", "tensorflow"): "works",
    }
    assert [warning.hint for warning in report.warnings] == [
        "import paddle before tensorflow, which works here",
        "import triton before tensorflow, which works here",
    ]


def test_a_module_that_spoils_the_rest_is_left_out(examined):
    _, report = examined(("tensorflow", "triton"), ("triton", "tensorflow"))
    assert report.conflicts == []
    assert len(report.cells) == 49
    found = import_orders(report)
    assert found["numpy", "torch", "paddle", "cupy", "jax", "mlx", "tensorflow"] == "works"
    assert found["tensorflow", "triton"] == "crashes"
    assert ("triton", "tensorflow") not in found
    (warning,) = report.warnings
    assert warning.fact.startswith("importing triton after tensorflow: ")
    assert warning.hint == "use them in separate processes"


def test_a_conflict_is_found_beside_an_order(examined):
    _, report = examined(("tensorflow", "paddle"), ("paddle", "jax"))
    (conflict,) = report.conflicts
    assert conflict.frameworks == ("paddle", "jax")
    assert conflict.works_as == ("jax", "paddle")
    assert len(report.cells) == 49
    # Without jax, the others were imported in an order that works.
    assert import_orders(report)["paddle", "tensorflow"] == "works"


def test_an_order_of_a_broken_framework_is_not_reported(examined, monkeypatch):
    real = Machine._run

    def run(self: Machine, call: ProbeCall, on_finding: OnFinding) -> ProcessExit:
        if call.probe == "framework" and call.arguments[0] == "paddle":
            on_finding(call, {"kind": "failed", "error": "ImportError: no luck"})
            return ProcessExit("done")
        return real(self, call, on_finding)

    monkeypatch.setattr(Machine, "_run", run)
    _, report = examined(("tensorflow", "paddle"), ("tensorflow", "triton"))
    assert [problem.fact for problem in report.problems] == [
        "importing paddle raised ImportError: no luck"
    ]
    assert ("tensorflow", "paddle") not in import_orders(report)
    assert import_orders(report)["tensorflow", "triton"] == "crashes"
