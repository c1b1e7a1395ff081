"""The examination: the machine, the driver, each framework, pinned memory and the matrix."""

import json
import os
import platform
import re
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorferry as ferry
from tensorferry._tools import machine
from tensorferry._tools.doctor import matrix, processes
from tensorferry._tools.doctor.findings import (
    Device,
    Driver,
    Framework,
    Gpu,
    Machine,
    Pinned,
    State,
)
from tensorferry._tools.doctor.orders import Order, known_orders
from tensorferry._tools.doctor.processes import Finding, ProbeCall, ProcessExit
from tensorferry._tools.doctor.report import Report
from tensorferry._tools.doctor.verify import Progress, Verifier
from tensorferry.framework_register import FRAMEWORKS, TENSOR_FRAMEWORKS

# Child processes that import large frameworks need much memory.
MAX_PROCESSES = 4


def examine(
    names: Sequence[str] = TENSOR_FRAMEWORKS,
    *,
    dtype: str = "float32",
    timeout: float = 120.0,
    progress: Progress = lambda done, total, what: None,
) -> Report:
    """Runs all checks and returns the report."""
    start = time.monotonic()
    max_processes = min(machine.cores(), MAX_PROCESSES)
    orders = known_orders(names)
    driver, frameworks = _probe_frameworks(names, orders, timeout, max_processes, progress)
    report = Report(
        machine=_machine(),
        dtype=dtype,
        driver=driver,
        frameworks=frameworks,
        pinned=_pinned(frameworks, timeout, progress),
    )
    works = [one for one in frameworks if one.state == "works"]
    verifier = Verifier(dtype, timeout, max_processes, progress)
    usable = {one.name for one in works}
    orders = [order for order in orders if {order.framework, order.second} <= usable]
    report.cells = verifier.verify(matrix.cells(works), orders)
    report.conflicts = verifier.conflicts
    # SciPy's sparse arrays are tested with other frameworks.
    listed = {*names, "scipy"}
    report.fast_paths = [path for path in verifier.fast_paths if path.framework in listed]
    report.import_orders = verifier.orders
    report.seconds = time.monotonic() - start
    return report


def _machine() -> Machine:
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return Machine(
        tensorferry=ferry.__version__,
        python=platform.python_version(),
        cpu=machine.cpu(),
        cores=machine.cores(),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        kernel=platform.release().split("-")[0],
        huge_pages=machine.huge_pages(),
        locked_memory_bytes=None if limit == resource.RLIM_INFINITY else limit,
        pool_limit_bytes=ferry.memory_stats().limit_bytes,
    )


def _probe_frameworks(
    names: Sequence[str],
    orders: Sequence[Order],
    timeout: float,
    max_processes: int,
    progress: Progress,
) -> tuple[Driver, list[Framework]]:
    """Probes the driver and each framework, each in its own process.

    The process of a framework then tries the first import order that begins with it.
    """
    calls = [ProbeCall("driver")]
    tried: dict[ProbeCall, Order] = {}
    for name in names:
        order = next((one for one in orders if one.second == name), None)
        after = order.task.modules[1:] if order else []
        arguments = (name, FRAMEWORKS[name].module, json.dumps(after))
        calls.append(ProbeCall("framework", arguments))
        if order is not None:
            tried[calls[-1]] = order
    findings: dict[ProbeCall, dict[str, Finding]] = {call: {} for call in calls}

    def on_finding(call: ProbeCall, finding: Finding) -> None:
        if call in tried and "devices" in findings[call]:
            tried[call].task.record(finding)  # the framework alone has been examined
            return
        findings[call][finding.pop("kind")] = finding
        remaining = [
            one.arguments[0]
            for one in calls[1:]
            if not findings[one].keys() & {"devices", "absent", "failed"}
        ]
        progress(len(names) - len(remaining), len(names), f"importing {', '.join(remaining)}")

    progress(0, len(names), f"importing {', '.join(names)}")
    exits = processes.run_probes(calls, on_finding, timeout=timeout, max_processes=max_processes)
    for call, exit in zip(calls, exits, strict=True):
        if call in tried and "devices" in findings[call]:
            tried[call].was_tried, tried[call].task.exit = True, exit
    results = [(findings[call], exit) for call, exit in zip(calls, exits, strict=True)]
    driver = _driver(*results[0])
    return driver, [_framework(name, *one) for name, one in zip(names, results[1:], strict=True)]


def _framework(name: str, findings: dict[str, Finding], exit: ProcessExit) -> Framework:
    """The state of a framework, from the findings of its process and how it ended."""
    if "absent" in findings:
        return Framework(name, "absent")
    imported = findings.get("imported", {})
    known: dict[str, Any] = {
        "version": imported.get("version") or machine.version(name),
        "seconds": imported.get("seconds"),
    }
    if report := findings.get("devices"):
        devices = tuple(Device(*device) for device in report["devices"])
        return Framework(
            name,
            "works",
            devices=devices,
            for_cuda=report["for_cuda"],
            note=report["note"],
            **known,
        )
    module = FRAMEWORKS[name].module
    doing = "listing the devices of" if imported else "importing"
    if "failed" in findings:
        fact = f"{doing} {name} raised {findings['failed']['error']}"
        hint = f"run python -c 'import {module}' for the traceback, and reinstall {name}"
        return Framework(name, "fails", fact=fact, hint=hint, **known)
    fact = f"{doing} {name}: the process {exit.description}"
    hint = exit.advice or f"run python -X faulthandler -c 'import {module}' for the traceback"
    return Framework(name, _state(exit), fact=fact, hint=hint, **known)


def _state(exit: ProcessExit) -> State:
    return {"hang": "hangs", "crash": "crashes"}.get(exit.kind, "fails")  # type: ignore[return-value]


def _driver(findings: dict[str, Finding], exit: ProcessExit) -> Driver:
    """The state of the driver, from the findings of its process and how it ended."""
    if "absent" in findings:
        return Driver("absent")
    release = re.search(r"Kernel Module\D+([\d.]+)", _text("/proc/driver/nvidia/version"))
    known: dict[str, Any] = {
        "cuda": findings.get("version", {}).get("cuda"),
        "release": release[1] if release else None,
    }
    if "gpus" in findings:
        gpus = tuple(Gpu(**gpu) for gpu in findings["gpus"]["gpus"])
        return Driver("works", gpus=gpus, **known)
    if "failed" in findings:
        fact = f"the CUDA driver cannot be initialised: {findings['failed']['error']}"
        hint = "run nvidia-smi: the kernel module and libcuda.so.1 must have the same release"
        return Driver("fails", fact=fact, hint=hint, **known)
    fact = f"calling the CUDA driver: the process {exit.description}"
    hint = exit.advice or "run nvidia-smi, and reinstall the driver"
    return Driver(_state(exit), fact=fact, hint=hint, **known)


def _pinned(frameworks: Sequence[Framework], timeout: float, progress: Progress) -> Pinned:
    """Downloads from a GPU with the first framework that supports it."""
    able = [one for one in frameworks if FRAMEWORKS[one.name].has_cuda and one.supports("cuda:0")]
    if not able:
        return Pinned("absent")
    name = able[0].name
    findings: dict[str, Finding] = {}

    def on_finding(_call: ProbeCall, finding: Finding) -> None:
        findings[finding.pop("kind")] = finding

    progress(0, 1, "downloading into pinned memory")
    modules = json.dumps([(name, FRAMEWORKS[name].module)])
    call = ProbeCall("pinned", (modules, "cuda:0"))
    (exit,) = processes.run_probes([call], on_finding, timeout=timeout, max_processes=1)
    if "pinned" in findings:
        return Pinned("works", name, findings["pinned"]["pinned_bytes"])
    reason = exit.description
    if "failed" in findings:
        reason = f"raised {findings['failed']['error']}"
    hint = exit.advice or "run nvidia-smi"
    fact = f"a download from {name}: the process {reason}"
    return Pinned(_state(exit), name, fact=fact, hint=hint)


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
