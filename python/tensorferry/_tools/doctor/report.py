"""The doctor's report: all findings, and the problems that follow from them."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tensorferry._tools.doctor.findings import (
    Cell,
    Conflict,
    Driver,
    FastPath,
    Framework,
    ImportOrder,
    Machine,
    Pinned,
    Problem,
    Result,
)
from tensorferry._tools.doctor.versions import warning
from tensorferry.framework_register import FRAMEWORKS


@dataclass
class Report:
    """The findings of the doctor."""

    machine: Machine
    dtype: str
    driver: Driver
    frameworks: list[Framework]
    pinned: Pinned
    cells: dict[Cell, Result] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)
    import_orders: list[ImportOrder] = field(default_factory=list)
    fast_paths: list[FastPath] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def healthy(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    @property
    def problems(self) -> list[Problem]:
        """The problems; failures of several cells with the same cause are one problem."""
        parts: list[Driver | Framework | Pinned] = [self.driver, *self.frameworks, self.pinned]
        found = [
            Problem(part.fact or "it fails", part.hint)
            for part in parts
            if part.state not in ("works", "absent")
        ]
        found += [
            self._missing_gpu(framework) for framework in self._without_gpu() if framework.for_cuda
        ]
        found += [Problem(conflict.fact, conflict.hint) for conflict in self.conflicts]
        known = {problem.fact for problem in found}
        where: dict[tuple[str, str | None], list[str]] = {}
        for cell, result in self.cells.items():
            fact = result.fact or "it fails"
            if result.is_failure and fact not in known:
                where.setdefault((fact, result.hint), []).append(str(cell))
        return found + [Problem(*said, tuple(cells)) for said, cells in where.items()]

    @property
    def warnings(self) -> list[Problem]:
        """What works here, and may fail: untested versions, and imports that end the process."""
        installed = [one for one in self.frameworks if one.state != "absent"]
        found = [warning(one.name, one.version) for one in installed]
        found += [
            Problem(order.fact, order.hint)
            for order in self.import_orders
            if order.fact and order.state != "works"
        ]
        return [one for one in found if one is not None]

    @property
    def notices(self) -> list[Problem]:
        """What works, but could work better."""
        found = []
        if self.machine.huge_pages == "never":
            fact = "transparent huge pages are off (never), which makes large copies slower"
            hint = "write madvise to /sys/kernel/mm/transparent_hugepage/enabled, as root"
            found.append(Problem(fact, hint))
        if self.pinned.state == "works" and not self.pinned.pinned_bytes:
            fact = "downloads from the GPU used no pinned memory, which makes them slower"
            found.append(Problem(fact, "check the limit of locked memory (ulimit -l)"))
        found += [
            self._missing_gpu(framework)
            for framework in self._without_gpu()
            if not framework.for_cuda
        ]
        found += [
            Problem(order.fact, order.hint)
            for order in self.import_orders
            if order.fact and order.state == "works"
        ]
        found += [
            Problem(
                f"the fast path {path.name} failed its probe: {path.reason}",
                f"{path.fallback} is used instead, which is slower; "
                "please report it, with the output of --json",
            )
            for path in self.fast_paths
            if path.state == "failed"
        ]
        return found

    def _without_gpu(self) -> Iterator[Framework]:
        """Frameworks that find no GPU although the driver does."""
        for framework in self.frameworks:
            has_gpu = any(device.name != "cpu" for device in framework.devices)
            supports_gpu = framework.state == "works" and FRAMEWORKS[framework.name].has_cuda
            if supports_gpu and self.driver.gpus and not has_gpu:
                yield framework

    def _missing_gpu(self, framework: Framework) -> Problem:
        count = len(self.driver.gpus)
        gpus = "the GPU" if count == 1 else f"any of the {count} GPUs"
        reason = framework.note or "it was built for the CPU only"
        if framework.for_cuda:
            reason = framework.note or "it gives no reason"
            return Problem(
                f"{framework.name} is built for CUDA and does not find {gpus}: {reason}",
                "check that its CUDA libraries are installed and match the driver",
            )
        return Problem(
            f"{framework.name} does not use {gpus}: {reason}",
            "install its CUDA build, if you need it on the GPU",
        )

    def as_dict(self) -> dict[str, Any]:
        """The report as --json prints it."""
        return {
            "healthy": self.healthy,
            "seconds": round(self.seconds, 3),
            "machine": dataclasses.asdict(self.machine),
            "driver": dataclasses.asdict(self.driver),
            "pinned": dataclasses.asdict(self.pinned),
            "frameworks": [dataclasses.asdict(framework) for framework in self.frameworks],
            "dtype": self.dtype,
            "cells": [
                {**dataclasses.asdict(cell), **dataclasses.asdict(result)}
                for cell, result in self.cells.items()
            ],
            "conflicts": [dataclasses.asdict(conflict) for conflict in self.conflicts],
            "import_orders": [dataclasses.asdict(order) for order in self.import_orders],
            "fast_paths": [dataclasses.asdict(path) for path in self.fast_paths],
            "problems": [dataclasses.asdict(problem) for problem in self.problems],
            "warnings": [dataclasses.asdict(warning) for warning in self.warnings],
            "notices": [dataclasses.asdict(notice) for notice in self.notices],
        }
