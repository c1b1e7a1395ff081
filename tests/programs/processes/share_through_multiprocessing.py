"""Passes tickets through queues, pipes, arguments, pools and futures.

The argument is the method by which children are started. It is a program of its own because an
interpreter that forks must not have loaded the frameworks.
"""

from __future__ import annotations

import concurrent.futures
import gc
import multiprocessing
import sys
from typing import Any

import numpy as np
from support.subprocesses import HANG_SECONDS

import tensorferry as ferry


def total(ticket: ferry.Ticket) -> float:
    """The sum of what a ticket leads to."""
    got = ferry.attach(ticket)
    return float(got.sum())


def take(queue: Any, answers: Any) -> None:
    """Answers each ticket of a queue with its sum."""
    # The ticket object of the producer is gone once it is pickled, before it is sent.
    while (ticket := queue.get(timeout=HANG_SECONDS)) is not None:
        answers.put(total(ticket))


def talk(pipe: Any) -> None:
    """Writes what comes by a pipe, and answers with a sum and a ticket."""
    while (ticket := pipe.recv()) is not None:
        got: Any = ferry.attach(ticket)
        got[0] = -1
        pipe.send(float(got.sum()))
        pipe.send(ferry.publish(got * 2))


def make(number: int) -> ferry.Ticket:
    """A ticket that nobody keeps: that it was pickled lets one consumer in."""
    return ferry.publish(np.full(100, number, np.float32))


def take_all(tickets: list[ferry.Ticket], queue: Any) -> None:
    """Answers several tickets at once."""
    queue.put([total(ticket) for ticket in tickets])


def through_a_queue(context: Any) -> None:
    queue, answers = context.Queue(), context.Queue()
    child = context.Process(target=take, args=(queue, answers))
    child.start()
    for number in range(10):
        queue.put(ferry.publish(np.full(100, number, np.float32)))
        gc.collect()
    queue.put(None)
    got = [answers.get(timeout=HANG_SECONDS) for _ in range(10)]
    assert got == [100.0 * number for number in range(10)], got
    child.join(HANG_SECONDS)
    assert child.exitcode == 0, child.exitcode


def through_a_pipe(context: Any) -> None:
    here, there = context.Pipe()
    child = context.Process(target=talk, args=(there,))
    child.start()
    shared = ferry.empty_shared(3, "float32")
    shared[:] = 1
    for _ in range(3):
        here.send(ferry.publish(shared))
        assert here.recv() == 1
        assert shared[0] == -1
        back: Any = ferry.attach(here.recv(), "numpy")
        assert back.tolist() == [-2, 2, 2], back
    here.send(None)
    child.join(HANG_SECONDS)
    assert child.exitcode == 0, child.exitcode


def through_arguments(context: Any) -> None:
    queue = context.Queue()
    tickets = [ferry.publish(np.ones(3)), ferry.publish(np.ones(4))]
    child = context.Process(target=take_all, args=(tickets, queue))
    child.start()
    assert queue.get(timeout=HANG_SECONDS) == [3.0, 4.0]
    child.join(HANG_SECONDS)


def through_a_pool(context: Any) -> None:
    with context.Pool(2) as pool:
        tickets = [ferry.publish(np.full(5, number, np.float32)) for number in range(6)]
        assert pool.map(total, tickets) == [5.0 * number for number in range(6)]
        assert pool.apply(total, (ferry.publish(np.ones(7)),)) == 7
        # And back: what a worker has published, and dropped at once.
        made = pool.map(make, range(6))
        assert [float(ferry.attach(one).mean()) for one in made] == [0, 1, 2, 3, 4, 5]


def through_futures(context: Any) -> None:
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        tickets = [ferry.publish(np.full(5, number, np.float32)) for number in range(6)]
        assert list(pool.map(total, tickets)) == [5.0 * number for number in range(6)]
        futures = [pool.submit(make, number) for number in range(6)]
        made = [one.result(HANG_SECONDS) for one in futures]
        assert [float(ferry.attach(one).mean()) for one in made] == [0, 1, 2, 3, 4, 5]


def through_a_manager(context: Any) -> None:
    with context.Manager() as manager:
        box = manager.dict()
        ticket = ferry.publish(np.ones(3))
        box["ticket"] = ticket
        assert total(box["ticket"]) == 3


def main() -> None:
    context = multiprocessing.get_context(sys.argv[1])
    for way in (through_a_queue, through_a_pipe, through_arguments):
        way(context)
    for way in (through_a_pool, through_futures):
        way(context)
    if sys.argv[1] == "spawn":
        through_a_manager(context)
    print("out")


if __name__ == "__main__":
    main()
