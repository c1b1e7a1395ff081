"""Tasks of a child process that imports several frameworks, and their state."""

import dataclasses
import json
from dataclasses import dataclass, field

from tensorferry._tools.doctor.findings import Cell, FastPath, Outcome, Result
from tensorferry._tools.doctor.processes import Finding, ProbeCall, ProcessExit
from tensorferry.framework_register import FRAMEWORKS

REPORT_IT = "please report it, with the output of --json"


@dataclass
class Task:
    """Imports frameworks in the given order, then converts a tensor for each cell."""

    names: list[str]
    cells: list[Cell] = field(default_factory=list)
    dtype: str = "float32"
    importing: str | None = None
    """What it was importing at its last report."""
    converting: Cell | None = None
    done: dict[Cell, Result] = field(default_factory=dict)
    fast_paths: list[FastPath] = field(default_factory=list)
    error: str | None = None
    exit: ProcessExit = field(default_factory=lambda: ProcessExit("done"))

    @property
    def modules(self) -> list[tuple[str, str]]:
        """What it imports: names, and their modules."""
        # An import order may name a module that a framework imports, such as Triton.
        return [
            (name, FRAMEWORKS[name].module if name in FRAMEWORKS else name) for name in self.names
        ]

    @property
    def call(self) -> ProbeCall:
        """The probe that runs the task."""
        modules = json.dumps(self.modules)
        if not self.cells:
            return ProbeCall("load", (modules,))
        wanted = [dataclasses.astuple(cell) for cell in self.cells]
        return ProbeCall("cells", (modules, json.dumps(wanted), self.dtype))

    def record(self, finding: Finding) -> None:
        """Records a finding of the child process."""
        match finding.pop("kind"):
            case "importing":
                self.importing = finding["framework"]
            case "imported":
                self.importing = None
            case "converting":
                self.converting = self.cells[finding["number"]]
            case "converted":
                self.converting = None
                cell = self.cells[finding.pop("number")]
                self.done[cell] = Result(**finding)
            case "fast_paths":
                self.fast_paths = [FastPath(**path) for path in finding["paths"]]
            case "failed":
                self.error = finding["error"]

    @property
    def remaining(self) -> list[Cell]:
        """The cells that it has not started."""
        return [cell for cell in self.cells if cell not in self.done and cell != self.converting]

    @property
    def is_done(self) -> bool:
        """Whether it has completed."""
        return self.exit.kind == "done" and self.error is None

    @property
    def description(self) -> str:
        """How it ended, as a predicate: "raised ImportError: ..."."""
        return f"raised {self.error}" if self.error else self.exit.description

    @property
    def failure(self) -> str:
        """What failed, as a sentence."""
        if self.importing is None:
            imported = " and ".join(self.names) if len(self.names) < 3 else ", ".join(self.names)
            return f"the process that imported {imported} {self.description}"
        earlier = " and ".join(self.names[: self.names.index(self.importing)])
        after = f" after {earlier}" if earlier else ""
        return f"importing {self.importing}{after}: the process {self.description}"

    @property
    def failed_result(self) -> Result:
        """The result of a cell that was not converted because of the failure."""
        outcome: Outcome = "failed" if self.error else "crashed"
        if self.exit.kind == "hang":
            outcome = "hung"
        return Result(outcome, self.failure, self.exit.advice or REPORT_IT)
