"""Handing tensors to another process that is alive already, against the usual ways.

A figure is the time that the producer takes to make the message plus the time that the consumer
takes from having the message to having read the first element; the pipe between them is left out.
The tensor is where each method can share it, and is transferred repeatedly, so that all is warm.
Every result is checked at its ends and at places between, and once as a whole.
"""

import multiprocessing
import statistics
import time
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import process_methods
from process_methods import Method, values
from table import Section, verdict

import tensorferry as ferry
from tensorferry._tools.bench.measure import round_order

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# How much faster recycled shared memory has to be than new one.
MIN_PUBLISH_SPEEDUP = 4.0
# Transfers by one method before the next method has its turn.
IN_A_ROW = 4


def produce(connection: Connection, name: str, size: int, count: int, fresh: bool) -> None:
    """What the other process does: a message whenever asked for one, of new memory if fresh."""
    method: Method = process_methods.METHODS[name]()
    source = method.make(size, count)
    connection.send("ready")
    while connection.recv():
        if fresh:
            del source
            method.forget()
            source = method.make(size, count)
        start = time.perf_counter()
        message, kept = method.send(source)
        took = time.perf_counter() - start
        connection.send((took, message))
        connection.recv()
        del kept


class Other:
    """A producer in another process, and this one as its consumer."""

    def __init__(self, name: str, size: int, count: int, fresh: bool) -> None:
        self.method: Method = process_methods.METHODS[name]()
        self.expected = values(size)
        self.kept: Any = None
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        arguments = (theirs, name, size, count, fresh)
        self.process = context.Process(target=produce, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        if self.connection.recv() != "ready":
            raise AssertionError("the producer is not ready")

    def transfer(self, whole: bool = False, keep: bool = False) -> tuple[float, float]:
        """Seconds of the producer, and of the consumer, which may keep what it got."""
        self.connection.send(True)
        sending, message = self.connection.recv()
        start = time.perf_counter()
        taken = self.method.take(message)
        first = self.method.first(taken)
        taking = time.perf_counter() - start
        if first != self.expected[0]:
            raise AssertionError("another first element")
        self.method.check(taken, self.expected, whole)
        if keep:
            self.kept = taken
        else:
            self.method.drop(taken)
            del taken
        self.connection.send(None)
        return sending, taking

    def end(self) -> None:
        self.kept = None
        self.connection.send(False)
        self.process.join()


def measure(
    names: list[str], size: int, count: int, rounds: int, *, fresh: bool = False, keep: bool = False
) -> dict[str, tuple[float, ...]]:
    """Medians of both parts and of their sum, for each method, in turns."""
    others = {name: Other(name, size, count, fresh) for name in names}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for other in others.values():
        other.transfer(whole=True)
        other.transfer(keep=keep)
    for turn in range(rounds):
        for name in round_order(names, turn):
            # The ways before it have left nothing in the caches that is of use to this one.
            others[name].transfer()
            found[name] += [others[name].transfer() for _ in range(IN_A_ROW)]
    for other in others.values():
        other.end()
    return {
        name: (
            statistics.median(sending for sending, _ in figures),
            statistics.median(taking for _, taking in figures),
            statistics.median(sum(both) for both in figures),
        )
        for name, figures in found.items()
    }


def row(job: str, found: dict[str, tuple[float, ...]], limit: float | None) -> dict[str, Any]:
    """One row. The limit is one for the consumer, from message to first element; without one, the
    best of the other ways is the limit for both parts."""
    sending, taking, ours = found.pop(next(name for name in found if name.startswith("ours")))
    best = min(found, key=lambda name: found[name][2])
    allowed = found[best][2] if limit is None else limit
    return {
        "job": job,
        "publish us": sending * 1e6,
        "attach us": taking * 1e6,
        "ours us": ours * 1e6,
        "limit us": allowed * 1e6,
        "x best": found[best][2] / ours,
        "verdict": verdict((ours if limit is None else taking) <= allowed),
        **{f"{name} us": figures[2] * 1e6 for name, figures in found.items()},
    }


def publish_repeatedly(size: int, rounds: int) -> dict[str, Any]:
    """A row for `publish` of ordinary memory again and again: shared memory of the publication
    before, against new shared memory, which every publication had to take at first."""
    source = process_methods.filled(np.empty(size // 4, "float32"), size)
    figures: dict[str, list[float]] = {"recycled": [], "new": []}

    def publish(kind: str) -> None:
        start = time.perf_counter()
        ticket = ferry.publish(source)
        figures[kind].append(time.perf_counter() - start)
        result = ferry.attach(ticket, "numpy")
        if result[0] != source[0] or result[-1] != source[-1]:
            raise AssertionError("another tensor")
        del result
        while ticket.leases:
            time.sleep(0)
        ticket.withdraw()

    for _ in range(rounds):
        ferry.empty_cache()
        publish("new")
        publish("recycled")
    recycled, new = (statistics.median(figures[kind]) for kind in ("recycled", "new"))
    allowed = new / MIN_PUBLISH_SPEEDUP
    return {
        "job": f"publishing {size // MIB} MiB of ordinary memory again",
        "publish us": recycled * 1e6,
        "ours us": recycled * 1e6,
        "limit us": allowed * 1e6,
        "x best": new / recycled,
        "verdict": verdict(recycled <= allowed),
        "new memory us": new * 1e6,
    }


def section(title: str, peers: list[str]) -> Section:
    columns = {"job": "", "publish us": ",.0f", "attach us": ",.0f", "ours us": ",.0f"}
    columns |= {"limit us": ",.0f", "verdict": "", "x best": ",.1f"}
    return Section(title, columns | {f"{name} us": ",.0f" for name in peers})


def run(quick: bool) -> dict[str, Any]:
    peers = ["shared_memory", "torch queue", "pickle"]
    result = section("To another process, host memory, float32", peers)
    sizes = [(4 * KIB, "4 KiB"), (1 * MIB, "1 MiB"), (256 * MIB, "256 MiB"), (4 * GIB, "4 GiB")]
    for size, title in sizes[: 2 if quick else 4]:
        # A pickle of gigabytes is three copies of them.
        names = ["ours", *(peer for peer in peers if size < GIB or peer != "pickle")]
        found = measure(names, size, 0, 30 if size <= MIB else 6)
        result.rows.append(row(f"one tensor of {title}", found, 100e-6))
    found = measure(["ours", "torch queue", "pickle"], 64 * KIB, 1000, 3)
    result.rows.append(row("a dict of 1,000 tensors of 64 KiB", found, 10e-3))
    result.columns["new memory us"] = ",.0f"
    result.rows.append(publish_repeatedly(64 * MIB if quick else 256 * MIB, 9))
    result.notes.append(
        "`new memory`: `publish` of ordinary memory after `ferry.empty_cache()`; ours is the one "
        "after it, in the shared memory that a consumer had attached and released."
    )
    result.notes.append(
        "`shared_memory`: a NumPy array over multiprocessing.shared_memory, already there; "
        "`torch queue`: what torch.multiprocessing does with a tensor in shared memory, already "
        "there; `pickle`: the NumPy array, pickled."
    )
    return asdict(result)
