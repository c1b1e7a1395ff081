"""The examination itself: the machine, the driver, each framework, pinned memory, the matrix."""

import dataclasses
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
from tensorferry._tools.doctor.processes import Ending, Finding, Job
from tensorferry._tools.doctor.report import Report
from tensorferry._tools.doctor.verify import Progress, Verifier
from tensorferry.framework_register import FRAMEWORKS, TENSOR_FRAMEWORKS

# Children that import large frameworks side by side want memory as well as cores.
AT_ONCE = 4


def examine(
    names: Sequence[str] = TENSOR_FRAMEWORKS,
    *,
    dtype: str = "float32",
    timeout: float = 120.0,
    progress: Progress = lambda done, total, what: None,
) -> Report:
    """Tries everything, and says what came of it."""
    start = time.monotonic()
    at_once = min(machine.cores(), AT_ONCE)
    driver, frameworks = _survey(names, timeout, at_once, progress)
    report = Report(
        machine=_machine(),
        dtype=dtype,
        driver=driver,
        frameworks=frameworks,
        pinned=_pinned(frameworks, timeout, progress),
    )
    cells = matrix.cells([one for one in frameworks if one.state == "works"])
    verifier = Verifier(dtype, timeout, at_once, progress)
    report.cells = verifier.verify(cells)
    report.conflicts = verifier.conflicts
    # SciPy's sparse arrays come along with other frameworks.
    listed = {*names, "scipy"}
    report.fast_paths = [path for path in verifier.fast_paths if path.framework in listed]
    verifier.try_orders([one.name for one in frameworks if one.state == "works"])
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


def _survey(
    names: Sequence[str], timeout: float, at_once: int, progress: Progress
) -> tuple[Driver, list[Framework]]:
    """The driver, and each framework, in children of their own."""
    jobs = [Job("driver")]
    jobs += [Job("framework", (name, FRAMEWORKS[name].module)) for name in names]
    told: dict[Job, dict[str, Finding]] = {job: {} for job in jobs}

    def hear(job: Job, finding: Finding) -> None:
        told[job][finding.pop("kind")] = finding
        left = [
            one.arguments[0]
            for one in jobs[1:]
            if not told[one].keys() & {"devices", "absent", "failed"}
        ]
        progress(len(names) - len(left), len(names), f"importing {', '.join(left)}")

    progress(0, len(names), f"importing {', '.join(names)}")
    endings = processes.run(jobs, hear, timeout=timeout, at_once=at_once)
    facts = [(told[job], ending) for job, ending in zip(jobs, endings, strict=True)]
    driver = _driver(*facts[0])
    return driver, [_framework(name, *fact) for name, fact in zip(names, facts[1:], strict=True)]


def _framework(name: str, told: dict[str, Finding], ending: Ending) -> Framework:
    """What a child's findings and its end say about a framework."""
    if "absent" in told:
        return Framework(name, "absent")
    imported = told.get("imported", {})
    known: dict[str, Any] = {
        "version": imported.get("version") or machine.version(name),
        "seconds": imported.get("seconds"),
    }
    if seen := told.get("devices"):
        devices = tuple(Device(*device) for device in seen["devices"])
        return Framework(
            name, "works", devices=devices, for_cuda=seen["for_cuda"], note=seen["note"], **known
        )
    module = FRAMEWORKS[name].module
    doing = "listing the devices of" if imported else "importing"
    if "failed" in told:
        fact = f"{doing} {name} raised {told['failed']['error']}"
        hint = f"see all of it with: python -c 'import {module}'; then install {name} anew"
        return Framework(name, "fails", fact=fact, hint=hint, **known)
    fact = f"{doing} {name}: the process {ending.words}"
    hint = ending.advice or f"see where with: python -X faulthandler -c 'import {module}'"
    return Framework(name, _state(ending), fact=fact, hint=hint, **known)


def _state(ending: Ending) -> State:
    return {"hang": "hangs", "crash": "crashes"}.get(ending.how, "fails")  # type: ignore[return-value]


def _driver(told: dict[str, Finding], ending: Ending) -> Driver:
    """What a child's findings and its end say about the driver."""
    if "absent" in told:
        return Driver("absent")
    release = re.search(r"Kernel Module\D+([\d.]+)", _text("/proc/driver/nvidia/version"))
    known: dict[str, Any] = {
        "cuda": told.get("version", {}).get("cuda"),
        "release": release[1] if release else None,
    }
    if "gpus" in told:
        gpus = tuple(Gpu(**gpu) for gpu in told["gpus"]["gpus"])
        return Driver("works", gpus=gpus, **known)
    if "failed" in told:
        fact = f"the CUDA driver does not start: {told['failed']['error']}"
        hint = "run nvidia-smi: the kernel module and libcuda.so.1 must be of the same release"
        return Driver("fails", fact=fact, hint=hint, **known)
    fact = f"asking the CUDA driver: the process {ending.words}"
    hint = ending.advice or "run nvidia-smi, and install the driver anew"
    return Driver(_state(ending), fact=fact, hint=hint, **known)


def _pinned(frameworks: Sequence[Framework], timeout: float, progress: Progress) -> Pinned:
    """Downloads from a GPU, with the first framework that holds memory there."""
    able = [one for one in frameworks if FRAMEWORKS[one.name].has_cuda and one.holds("cuda:0")]
    if not able:
        return Pinned("absent")
    name = able[0].name
    told: dict[str, Finding] = {}

    def hear(_job: Job, finding: Finding) -> None:
        told[finding.pop("kind")] = finding

    progress(0, 1, "downloading into pinned memory")
    modules = json.dumps([(name, FRAMEWORKS[name].module)])
    (ending,) = processes.run(
        [Job("pinned", (modules, "cuda:0"))], hear, timeout=timeout, at_once=1
    )
    if "pinned" in told:
        return Pinned("works", name, told["pinned"]["pinned_bytes"])
    why = f"raised {told['failed']['error']}" if "failed" in told else ending.words
    found = Pinned("fails", name, fact=f"a download from {name}: the process {why}")
    return dataclasses.replace(
        found, state=_state(ending), hint=ending.advice or "see what nvidia-smi says about the GPU"
    )


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
