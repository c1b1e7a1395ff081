"""Tickets through queues, pipes and pools, by every way to start a process."""

from __future__ import annotations

import pytest
from support import subprocesses

# One script for each way, because an interpreter that forks must not have loaded the frameworks.
SCRIPT = """
import concurrent.futures, gc, multiprocessing, sys
import numpy as np
import tensorferry as ferry
from support.subprocesses import HANG_SECONDS

def total(ticket):
    got = ferry.attach(ticket)
    return float(got.sum())

def take(queue, answers):
    # The ticket object of the producer is gone once it is pickled, before it is sent.
    while (ticket := queue.get(timeout=HANG_SECONDS)) is not None:
        answers.put(total(ticket))

def talk(pipe):
    while (ticket := pipe.recv()) is not None:
        got = ferry.attach(ticket)
        got[0] = -1
        pipe.send(float(got.sum()))
        pipe.send(ferry.publish(got * 2))

def make(number):
    # Nobody keeps this ticket: that it was pickled lets one consumer in.
    return ferry.publish(np.full(100, number, np.float32))

def through_a_queue(context):
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

def through_a_pipe(context):
    here, there = context.Pipe()
    child = context.Process(target=talk, args=(there,))
    child.start()
    shared = ferry.empty_shared(3, "float32")
    shared[:] = 1
    for _ in range(3):
        here.send(ferry.publish(shared))
        assert here.recv() == 1 and shared[0] == -1
        back = ferry.attach(here.recv(), "numpy")
        assert back.tolist() == [-2, 2, 2], back
    here.send(None)
    child.join(HANG_SECONDS)
    assert child.exitcode == 0, child.exitcode

def through_arguments(context):
    queue = context.Queue()
    tickets = [ferry.publish(np.ones(3)), ferry.publish(np.ones(4))]
    child = context.Process(target=take_all, args=(tickets, queue))
    child.start()
    assert queue.get(timeout=HANG_SECONDS) == [3.0, 4.0]
    child.join(HANG_SECONDS)

def take_all(tickets, queue):
    queue.put([total(ticket) for ticket in tickets])

def through_a_pool(context):
    with context.Pool(2) as pool:
        tickets = [ferry.publish(np.full(5, number, np.float32)) for number in range(6)]
        assert pool.map(total, tickets) == [5.0 * number for number in range(6)]
        assert pool.apply(total, (ferry.publish(np.ones(7)),)) == 7
        # And back: what a worker has published, and dropped at once.
        made = pool.map(make, range(6))
        assert [float(ferry.attach(one).mean()) for one in made] == [0, 1, 2, 3, 4, 5]

def through_futures(context):
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        tickets = [ferry.publish(np.full(5, number, np.float32)) for number in range(6)]
        assert list(pool.map(total, tickets)) == [5.0 * number for number in range(6)]
        made = [pool.submit(make, number) for number in range(6)]
        made = [one.result(HANG_SECONDS) for one in made]
        assert [float(ferry.attach(one).mean()) for one in made] == [0, 1, 2, 3, 4, 5]

def through_a_manager(context):
    with context.Manager() as manager:
        box = manager.dict()
        ticket = ferry.publish(np.ones(3))
        box["ticket"] = ticket
        assert total(box["ticket"]) == 3

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    for way in (through_a_queue, through_a_pipe, through_arguments):
        way(context)
    for way in (through_a_pool, through_futures):
        way(context)
    if sys.argv[1] == "spawn":
        through_a_manager(context)
    print("out")
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_and_futures(method: str, tmp_path) -> None:
    script = tmp_path / "passing.py"
    script.write_text(SCRIPT)
    run = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, *sys.argv[1:]]))"
    assert subprocesses.run(run, str(script), method) == "out\n"


def test_torch_loaders_pass_tickets(tmp_path) -> None:
    """A worker of a DataLoader makes batches in shared memory, and passes tickets."""
    code = """
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset
    import tensorferry as ferry

    class Batches(Dataset):
        def __len__(self):
            return 6
        def __getitem__(self, index):
            batch = ferry.empty_shared((4, 3), "float32", framework="torch")
            batch[:] = index
            return ferry.publish(batch, copy=False)

    loader = DataLoader(Batches(), batch_size=None, num_workers=2, multiprocessing_context="fork")
    got = [float(ferry.attach(ticket, "torch").mean()) for ticket in loader]
    print(got)
    """
    assert subprocesses.run(code) == "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]\n"
