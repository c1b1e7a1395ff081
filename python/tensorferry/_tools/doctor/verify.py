"""Verifies the cells: with all frameworks in one process, and two by two where that does not work.

Importing frameworks is what takes the time, so one child does it all while all goes well. A
framework that cannot be loaded with the others is left out of it, and a death on the way ends it;
what is left is done by a child for each pair, which loads those two alone.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tensorferry._native import _import_orders
from tensorferry._tools.doctor import processes
from tensorferry._tools.doctor.fast_paths import merge
from tensorferry._tools.doctor.findings import Cell, Conflict, FastPath, ImportOrder, Result, State
from tensorferry._tools.doctor.probe import is_installed
from tensorferry._tools.doctor.processes import Finding, Job
from tensorferry._tools.doctor.tasks import Errand
from tensorferry.framework_register import TENSOR_FRAMEWORKS

Progress = Callable[[int, int, str], object]


@dataclass
class Verifier:
    """What has been verified so far."""

    dtype: str
    timeout: float
    at_once: int
    progress: Progress
    results: dict[Cell, Result] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)
    orders: list[ImportOrder] = field(default_factory=list)
    fast_paths: list[FastPath] = field(default_factory=list)
    total: int = 0

    def verify(self, cells: Sequence[Cell]) -> dict[Cell, Result]:
        """What came of each cell."""
        self.total = len(cells)
        names = _in_order({name for cell in cells for name in (cell.source, cell.target)})
        dead = self._together(cells, names)
        self._two_by_two([cell for cell in cells if cell not in self.results or cell == dead])
        return {cell: self.results[cell] for cell in cells}

    def _together(self, cells: Sequence[Cell], names: list[str]) -> Cell | None:
        """Carries what can be in one process; gives the cell to try again with fewer loaded."""
        while wanted := [cell for cell in cells if {cell.source, cell.target} <= set(names)]:
            errand = Errand(names, wanted, self.dtype)
            self._send([errand])
            if errand.loading is None:
                self.orders.append(ImportOrder(tuple(names), "works"))
                if errand.carrying is not None:
                    self._keep(errand.carrying, errand.verdict)
                return errand.carrying if len(names) > 2 else None
            self._find_conflict(errand)
            names = [name for name in names if name != errand.loading]
        return None

    def try_orders(self, names: Sequence[str]) -> None:
        """Imports in the wrong order what is known to end a process then, and in the right order.

        A child for each pair of the table: a child for each pair of frameworks in both orders would
        take minutes.
        """
        wrong = [
            Errand([second, first])
            for first, second, framework, _ in _import_orders()
            if {framework, second} <= set(names) and is_installed(first)
        ]
        self._send(wrong)
        right = {errand.job: Errand(errand.names[::-1]) for errand in wrong if not errand.is_done}
        self._send(list(right.values()))
        for errand in wrong:
            other_way = right.get(errand.job)
            self.orders.append(_tried(errand, other_way))
            if other_way is not None and other_way.is_done:
                self.orders.append(ImportOrder(tuple(other_way.names), "works"))

    def _two_by_two(self, cells: Sequence[Cell]) -> None:
        """Carries each pair in a process of its own, and in another one behind every death."""
        pairs: dict[tuple[str, ...], list[Cell]] = {}
        for cell in cells:
            pairs.setdefault(self._order(cell), []).append(cell)
        errands = [Errand(list(names), wanted, self.dtype) for names, wanted in pairs.items()]
        while errands:
            self._send(errands)
            behind = []
            for errand in errands:
                if errand.carrying is not None:
                    self._keep(errand.carrying, errand.verdict)
                    behind.append(Errand(errand.names, errand.left, self.dtype))
                    continue
                for cell in errand.left:
                    self._keep(cell, errand.verdict)
            errands = [errand for errand in behind if errand.cells]

    def _order(self, cell: Cell) -> tuple[str, ...]:
        """The order in which to import a pair: that which works, where one does not."""
        names = tuple(_in_order({cell.source, cell.target}))
        for conflict in self.conflicts:
            if conflict.works_as is not None and set(conflict.works_as) == set(names):
                return conflict.works_as
        return names

    def _send(self, errands: Sequence[Errand]) -> None:
        """Sends children on errands, and hears of all that they find."""
        of_job = {errand.job: errand for errand in errands}

        def hear(job: Job, finding: Finding) -> None:
            errand = of_job[job]
            known = set(errand.done)
            errand.hear(finding)
            for cell in errand.done.keys() - known:
                self._keep(cell, errand.done[cell])
            what = f"importing {errand.loading}" if errand.loading else str(errand.carrying or "")
            self.progress(len(self.results), self.total, what)

        jobs = list(of_job)
        endings = processes.run(jobs, hear, timeout=self.timeout, at_once=self.at_once)
        for job, ending in zip(jobs, endings, strict=True):
            of_job[job].ending = ending
        told = [path for errand in errands for path in errand.fast_paths]
        self.fast_paths = merge([*self.fast_paths, *told])

    def _keep(self, cell: Cell, result: Result) -> None:
        """Keeps a result; a cell that died among many and is tried once more stays dead."""
        if before := self.results.get(cell):
            how = "fails as well" if result.is_failure else f"is {result.outcome}"
            fact = f"{before.fact}; with only {cell.source} and {cell.target} loaded it {how}"
            result = dataclasses.replace(before, fact=fact)
        self.results[cell] = result

    def _find_conflict(self, errand: Errand) -> None:
        """Finds out with which of the others a framework cannot be imported."""
        late = errand.loading or ""
        earlier = errand.names[: errand.names.index(late)]
        found = [Errand([name, late]) for name in earlier]
        self._send(found)
        found = [pair for pair in found if not pair.is_done]
        turned = [Errand(pair.names[::-1]) for pair in found]
        self._send(turned)
        for pair, other_way in zip(found, turned, strict=True):
            self.conflicts.append(_conflict(pair, other_way))
        if not found:
            self.conflicts.append(_conflict(errand))


def _conflict(errand: Errand, other_way: Errand | None = None) -> Conflict:
    names = tuple(errand.names[: errand.names.index(errand.loading or "") + 1])
    if other_way is not None and other_way.is_done:
        late, early = names[-1], names[0]
        hint = f"import {late} before {early}, which works, or use them in separate processes"
        return Conflict(names, errand.what_failed, hint, tuple(other_way.names))
    return Conflict(names, errand.what_failed, "use them in separate processes")


def _tried(errand: Errand, other_way: Errand | None) -> ImportOrder:
    second, first = errand.names
    names = tuple(errand.names)
    if other_way is None:
        fact = f"importing {first} after {second} works here; ferry.to does not do it"
        return ImportOrder(names, "works", fact, f'write "import {first}" before the call')
    how: State = "fails" if errand.error else "crashes"
    if errand.ending.how == "hang":
        how = "hangs"
    hint = "use them in separate processes"
    if other_way.is_done:
        hint = f"import {first} before {second}, which works here"
    return ImportOrder(names, how, errand.what_failed, hint)


def _in_order(names: set[str]) -> list[str]:
    return sorted(names, key=TENSOR_FRAMEWORKS.index)
