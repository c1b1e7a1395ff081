"""Import orders that are known to end a process, and what the doctor finds out about them here.

Each is tried on this machine. An order begins with a framework that the doctor imports alone in any
case, so the process of that framework tries it at its end. Large frameworks take most of the
doctor's time, and are imported as few times as possible.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tensorferry._native import _import_orders
from tensorferry._tools.doctor.findings import ImportOrder, State
from tensorferry._tools.doctor.probe import is_installed
from tensorferry._tools.doctor.tasks import Task
from tensorferry.framework_register import FRAMEWORKS


@dataclass
class Order:
    """An order to try: `first` after `second`, which is known to end a process."""

    first: str
    second: str
    framework: str
    """The framework that imports `first`: itself, or one that imports it on demand."""
    task: Task
    was_tried: bool = False


def known_orders(names: Collection[str]) -> list[Order]:
    """The orders to try if these frameworks work.

    Only known pairs are tried: all pairs of frameworks in both orders would take minutes.
    """
    return [
        Order(first, second, framework, Task([second, first]))
        for first, second, framework, _ in _import_orders()
        if {framework, second} <= set(names) and is_installed(first)
    ]


def with_modules(names: Sequence[str], orders: Sequence[Order]) -> list[str]:
    """The frameworks, each followed by modules that it imports on demand and that have an order."""
    found: list[str] = []
    for name in names:
        found.append(name)
        found += [
            one.first for one in orders if one.framework == name and one.first not in FRAMEWORKS
        ]
    return found


def are_in_order(order: Order, imported: Sequence[str]) -> bool:
    """Whether a process that imported these names has imported `first` before `second`."""
    if not {order.first, order.second} <= set(imported):
        return False
    return imported.index(order.first) < imported.index(order.second)


def findings(order: Order, *, reverse_works: bool) -> list[ImportOrder]:
    """The order with what happened, and the reverse order if that avoids a failure."""
    task, names = order.task, (order.second, order.first)
    if task.is_done:
        fact = f"importing {order.first} after {order.second} works here, but ferry.to refuses it"
        hint = f'write "import {order.first}" before the call'
        return [ImportOrder(names, "works", fact, hint)]
    state: State = "fails" if task.error else "crashes"
    if task.exit.kind == "hang":
        state = "hangs"
    if not reverse_works:
        return [ImportOrder(names, state, task.failure, "use them in separate processes")]
    hint = f"import {order.first} before {order.second}, which works here"
    return [ImportOrder(names, state, task.failure, hint), ImportOrder(names[::-1], "works")]
