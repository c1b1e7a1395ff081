"""All that was found, and what is to be said about it."""

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
    Result,
)
from tensorferry.framework_register import FRAMEWORKS


@dataclass(frozen=True)
class Problem:
    """Something that does not work, or could work better."""

    fact: str
    hint: str | None = None
    where: tuple[str, ...] = ()


@dataclass
class Report:
    """What the doctor has found."""

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
        """Whether all that should work does."""
        return not self.problems

    @property
    def problems(self) -> list[Problem]:
        """What should work and does not; what many cells have in common is one problem."""
        parts: list[Driver | Framework | Pinned] = [self.driver, *self.frameworks, self.pinned]
        found = [
            Problem(part.fact or "it does not work", part.hint)
            for part in parts
            if part.state not in ("works", "absent")
        ]
        found += [self._blindness(framework) for framework in self._blind() if framework.for_cuda]
        found += [Problem(conflict.fact, conflict.hint) for conflict in self.conflicts]
        known = {problem.fact for problem in found}
        where: dict[tuple[str, str | None], list[str]] = {}
        for cell, result in self.cells.items():
            fact = result.fact or "it does not work"
            if result.is_failure and fact not in known:
                where.setdefault((fact, result.hint), []).append(str(cell))
        return found + [Problem(*said, tuple(cells)) for said, cells in where.items()]

    @property
    def notices(self) -> list[Problem]:
        """What works and could work better."""
        found = []
        if self.machine.huge_pages == "never":
            fact = "huge pages are off (never), which makes large copies slower"
            hint = "write madvise to /sys/kernel/mm/transparent_hugepage/enabled, as root"
            found.append(Problem(fact, hint))
        if self.pinned.state == "works" and not self.pinned.pinned_bytes:
            fact = "nothing was pinned by downloads from the GPU, which makes them slower"
            found.append(Problem(fact, "see whether this container or user may pin memory"))
        found += [
            self._blindness(framework) for framework in self._blind() if not framework.for_cuda
        ]
        found += [Problem(order.fact, order.hint) for order in self.import_orders if order.fact]
        found += [
            Problem(
                f"the fast path {path.name} failed its probe: {path.reason}",
                f"tensors are carried by {path.fallback} instead, which is slower; "
                "please report it, with the output of --json",
            )
            for path in self.fast_paths
            if path.state == "failed"
        ]
        return found

    def _blind(self) -> Iterator[Framework]:
        """Frameworks that see no GPU although the driver does."""
        for framework in self.frameworks:
            sees = any(device.name != "cpu" for device in framework.devices)
            able = framework.state == "works" and FRAMEWORKS[framework.name].has_cuda
            if able and self.driver.gpus and not sees:
                yield framework

    def _blindness(self, framework: Framework) -> Problem:
        count = len(self.driver.gpus)
        gpus = "the GPU" if count == 1 else f"any of the {count} GPUs"
        why = framework.note or "it was built for the CPU alone"
        if framework.for_cuda:
            why = framework.note or "it does not say why"
            return Problem(
                f"{framework.name} is built for CUDA and does not see {gpus}: {why}",
                "see that its CUDA libraries are installed and fit the driver",
            )
        return Problem(
            f"{framework.name} does not use {gpus}: {why}",
            "install its build for CUDA, if it is to hold tensors there",
        )

    def as_dict(self) -> dict[str, Any]:
        """The report for programs."""
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
            "notices": [dataclasses.asdict(notice) for notice in self.notices],
        }
