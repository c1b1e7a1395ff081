"""What a child is sent to do with several frameworks loaded, and how far it has come."""

import dataclasses
import json
from dataclasses import dataclass, field

from tensorferry._tools.doctor.findings import Cell, FastPath, Outcome, Result
from tensorferry._tools.doctor.processes import Ending, Finding, Job
from tensorferry.framework_register import FRAMEWORKS

REPORT_IT = "please report it, with the output of --json"


@dataclass
class Errand:
    """Imports these frameworks in this order, then carries a tensor for each of these cells."""

    names: list[str]
    cells: list[Cell] = field(default_factory=list)
    dtype: str = "float32"
    loading: str | None = None
    """What it was importing when it was last heard of."""
    carrying: Cell | None = None
    done: dict[Cell, Result] = field(default_factory=dict)
    fast_paths: list[FastPath] = field(default_factory=list)
    error: str | None = None
    ending: Ending = field(default_factory=lambda: Ending("done"))

    @property
    def job(self) -> Job:
        """The same, for the child."""
        # An order of import may name a module that a framework loads, such as Triton.
        modules = json.dumps(
            [(name, FRAMEWORKS[name].module if name in FRAMEWORKS else name) for name in self.names]
        )
        if not self.cells:
            return Job("load", (modules,))
        wanted = [dataclasses.astuple(cell) for cell in self.cells]
        return Job("cells", (modules, json.dumps(wanted), self.dtype))

    def hear(self, finding: Finding) -> None:
        """Takes down what the child tells."""
        match finding.pop("kind"):
            case "loading":
                self.loading = finding["framework"]
            case "loaded":
                self.loading = None
            case "carrying":
                self.carrying = self.cells[finding["number"]]
            case "carried":
                self.carrying = None
                cell = self.cells[finding.pop("number")]
                self.done[cell] = Result(**finding)
            case "fast_paths":
                self.fast_paths = [FastPath(**path) for path in finding["paths"]]
            case "failed":
                self.error = finding["error"]

    @property
    def left(self) -> list[Cell]:
        """The cells that it has not come to, beyond the one at which it died."""
        return [cell for cell in self.cells if cell not in self.done and cell != self.carrying]

    @property
    def is_done(self) -> bool:
        """Whether it did all that it was sent for."""
        return self.ending.how == "done" and self.error is None

    @property
    def how(self) -> str:
        """What became of it, to follow the name of what it did."""
        return f"raised {self.error}" if self.error else self.ending.words

    @property
    def what_failed(self) -> str:
        """The same as a whole sentence."""
        if self.loading is None:
            loaded = " and ".join(self.names) if len(self.names) < 3 else ", ".join(self.names)
            return f"the process with {loaded} loaded {self.how}"
        earlier = " and ".join(self.names[: self.names.index(self.loading)])
        after = f" after {earlier}" if earlier else ""
        return f"importing {self.loading}{after}: the process {self.how}"

    @property
    def verdict(self) -> Result:
        """What that means for a cell that was not verified because of it."""
        outcome: Outcome = "failed" if self.error else "crashed"
        if self.ending.how == "hang":
            outcome = "hung"
        return Result(outcome, self.what_failed, self.ending.advice or REPORT_IT)
