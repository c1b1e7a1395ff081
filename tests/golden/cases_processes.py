"""Errors of sharing between processes: tickets, trees, arguments of `publish` and `attach`.

The number of this process and the number of a ticket differ in each run: `PID` and `NUMBER`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tensorferry as ferry

Case = Callable[[Path], object]


def attach(change: Callable[[ferry.Ticket], object], **options: Any) -> Case:
    """Attaches what `change` makes of a ticket that is valid."""

    def case(_: Path) -> object:
        with ferry.publish(np.arange(3)) as ticket:
            claim = change(ticket)
            try:
                return ferry.attach(claim, **options)
            except ferry.FerryError as error:
                number = bytes(ticket)[13:17].hex()
                text = str(error).replace(number, "NUMBER")
                return re.sub(rf"\b{os.getpid()}\b", "PID", text)

    return case


def publish(tree: object, **options: Any) -> Case:
    return lambda _: ferry.publish(tree, **options)


def withdrawn(ticket: ferry.Ticket) -> ferry.Ticket:
    ticket.withdraw()
    return ticket


def tree_that_contains_itself(_: Path) -> object:
    tree: list[object] = []
    tree.append(tree)
    return ferry.publish(tree)


def unknown(ticket: ferry.Ticket) -> bytes:
    """A ticket of this process that it has never issued: the secret is another."""
    raw = bytearray(bytes(ticket))
    raw[29] ^= 1
    return bytes(raw)


CASES: dict[str, Case] = {
    "ticket: truncated text": attach(lambda ticket: str(ticket)[:-1]),
    "ticket: other text": attach(lambda _: "hello"),
    "ticket: truncated bytes": attach(lambda ticket: bytes(ticket)[:-1]),
    "ticket: too short bytes": attach(lambda ticket: bytes(ticket)[:20]),
    "ticket: number": attach(lambda _: 3),
    "ticket: unknown": attach(unknown),
    "ticket: withdrawn": attach(withdrawn),
    "attach: negative timeout": attach(lambda ticket: ticket, timeout=-1),
    "publish: set": publish({"a": [{1, 2}]}),
    "publish: key": publish({"a": {frozenset((1,)): np.ones(1)}}),
    "publish: large number": publish({"k": [2**127]}),
    "publish: tree that holds itself": tree_that_contains_itself,
    "publish: too many bytes": publish({"k": bytes(17 << 20)}),
    "publish: copy=False": publish(np.arange(3.0), copy=False),
    "publish: budget": publish(np.zeros(100, np.uint8), budget=99),
    "publish: negative timeout": publish(np.ones(3), timeout=-1),
    "empty: framework that is immutable": lambda _: ferry.empty_shared(
        2, "float32", framework="jax"
    ),
    "empty: negative shape": lambda _: ferry.empty_shared((2, -1), "float32"),
}
