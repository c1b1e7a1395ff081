"""Verifies the cells: with all frameworks in one process, or in one process per pair.

Importing frameworks takes most of the time, so one child process converts all cells if possible. A
framework that cannot be imported with the others is left out. After a crash, the remaining cells
are converted by one child process per pair, which imports only these two frameworks.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tensorferry._tools.doctor import orders, processes
from tensorferry._tools.doctor.fast_paths import merge
from tensorferry._tools.doctor.findings import Cell, Conflict, FastPath, ImportOrder, Result
from tensorferry._tools.doctor.orders import Order
from tensorferry._tools.doctor.processes import Finding, ProbeCall
from tensorferry._tools.doctor.tasks import Task
from tensorferry.framework_register import FRAMEWORKS, TENSOR_FRAMEWORKS

Progress = Callable[[int, int, str], object]


@dataclass
class Verifier:
    """The results, conflicts and import orders that were found so far."""

    dtype: str
    timeout: float
    max_processes: int
    progress: Progress
    results: dict[Cell, Result] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)
    orders: list[ImportOrder] = field(default_factory=list)
    fast_paths: list[FastPath] = field(default_factory=list)
    imported: list[str] = field(default_factory=list)
    """What one process has imported, in this order."""
    total: int = 0

    def verify(self, cells: Sequence[Cell], known: Sequence[Order] = ()) -> dict[Cell, Result]:
        """The result of each cell; tries the import orders beside it."""
        self.total = len(cells)
        names = _in_order({name for cell in cells for name in (cell.source, cell.target)})
        crashed = self._verify_together(cells, names, known)
        self._try_orders(known)
        self._verify_pairs([cell for cell in cells if cell not in self.results or cell == crashed])
        return {cell: self.results[cell] for cell in cells}

    def _verify_together(
        self, cells: Sequence[Cell], names: list[str], known: Sequence[Order]
    ) -> Cell | None:
        """Converts cells in one process; returns the cell that crashed it, to be tried again."""
        beside = [order.task for order in known if not order.was_tried]
        names = orders.with_modules(names, known)
        while wanted := [cell for cell in cells if {cell.source, cell.target} <= set(names)]:
            task = Task(names, wanted, self.dtype)
            self._run([task, *beside])
            beside = []
            if task.importing is None:
                self.imported = names
                self.orders.append(ImportOrder(tuple(names), "works"))
                if task.converting is not None:
                    self._record(task.converting, task.failed_result)
                return task.converting if len(names) > 2 else None
            frameworks = [name for name in names if name in FRAMEWORKS]
            if frameworks == names:
                self._find_conflict(task)
                frameworks.remove(task.importing)
            names = frameworks  # modules that are no frameworks are left out first
        self._run(beside)
        return None

    def _try_orders(self, known: Sequence[Order]) -> None:
        """Records the orders, and tries the reverse of those that fail, unless it is known."""
        reverse = {
            (order.first, order.second): Task([order.first, order.second])
            for order in known
            if not order.task.is_done and not orders.are_in_order(order, self.imported)
        }
        self._run(list(reverse.values()))
        for order in known:
            task = reverse.get((order.first, order.second))
            self.orders += orders.findings(order, reverse_works=task is None or task.is_done)

    def _verify_pairs(self, cells: Sequence[Cell]) -> None:
        """Converts each pair in its own process, and in a new process after each crash."""
        pairs: dict[tuple[str, ...], list[Cell]] = {}
        for cell in cells:
            pairs.setdefault(self._order(cell), []).append(cell)
        tasks = [Task(list(names), wanted, self.dtype) for names, wanted in pairs.items()]
        while tasks:
            self._run(tasks)
            remaining = []
            for task in tasks:
                if task.converting is not None:
                    self._record(task.converting, task.failed_result)
                    remaining.append(Task(task.names, task.remaining, self.dtype))
                    continue
                for cell in task.remaining:
                    self._record(cell, task.failed_result)
            tasks = [task for task in remaining if task.cells]

    def _order(self, cell: Cell) -> tuple[str, ...]:
        """The order in which to import a pair: the one that works, if the default order fails."""
        names = tuple(_in_order({cell.source, cell.target}))
        for conflict in self.conflicts:
            if conflict.works_as is not None and set(conflict.works_as) == set(names):
                return conflict.works_as
        return names

    def _run(self, tasks: Sequence[Task]) -> None:
        """Runs tasks in child processes, and records their findings."""
        tasks_by_call = {task.call: task for task in tasks}

        def on_finding(call: ProbeCall, finding: Finding) -> None:
            task = tasks_by_call[call]
            known = set(task.done)
            task.record(finding)
            for cell in task.done.keys() - known:
                self._record(cell, task.done[cell])
            what = f"importing {task.importing}" if task.importing else str(task.converting or "")
            self.progress(len(self.results), self.total, what)

        calls = list(tasks_by_call)
        exits = processes.run_probes(
            calls, on_finding, timeout=self.timeout, max_processes=self.max_processes
        )
        for call, exit in zip(calls, exits, strict=True):
            tasks_by_call[call].exit = exit
        found = [path for task in tasks for path in task.fast_paths]
        self.fast_paths = merge([*self.fast_paths, *found])

    def _record(self, cell: Cell, result: Result) -> None:
        """Records a result; a cell that crashed stays crashed when it is tried again."""
        if before := self.results.get(cell):
            again = "fails as well" if result.is_failure else f"is {result.outcome}"
            fact = f"{before.fact}; with only {cell.source} and {cell.target} imported it {again}"
            result = dataclasses.replace(before, fact=fact)
        self.results[cell] = result

    def _find_conflict(self, task: Task) -> None:
        """Finds the frameworks after which another one cannot be imported."""
        last = task.importing or ""
        earlier = task.names[: task.names.index(last)]
        found = [Task([name, last]) for name in earlier]
        self._run(found)
        found = [pair for pair in found if not pair.is_done]
        reversed_tasks = [Task(pair.names[::-1]) for pair in found]
        self._run(reversed_tasks)
        for pair, reverse in zip(found, reversed_tasks, strict=True):
            self.conflicts.append(_conflict(pair, reverse))
        if not found:
            self.conflicts.append(_conflict(task))


def _conflict(task: Task, reverse: Task | None = None) -> Conflict:
    names = tuple(task.names[: task.names.index(task.importing or "") + 1])
    if reverse is not None and reverse.is_done:
        last, first = names[-1], names[0]
        hint = f"import {last} before {first}, which works, or use them in separate processes"
        return Conflict(names, task.failure, hint, tuple(reverse.names))
    return Conflict(names, task.failure, "use them in separate processes")


def _in_order(names: set[str]) -> list[str]:
    return sorted(names, key=TENSOR_FRAMEWORKS.index)
