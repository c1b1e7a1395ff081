"""Used before and after `fork()`, it works in the child."""

from __future__ import annotations

import pytest
from support import subprocesses

COMMON = """
import os, signal, sys, threading, warnings
import numpy as np
import tensorferry as ferry
from support.forks import fork, wait

big = np.arange(2 << 20, dtype=np.float32).reshape(2048, 1024)

def work():
    got = ferry.to(big, "numpy", copy=True)
    assert got.ctypes.data != big.ctypes.data and (got == big).all()
    got = ferry.to(big.T, "numpy", copy=True)
    assert (got == big.T).all()
    got = ferry.to(big[::-1], "numpy", dtype="float64")
    assert (got == big[::-1]).all()
    share = ferry.to(memoryview(big), "numpy")
    share[0, 0] = 7
    assert big[0, 0] == 7
    big[0, 0] = 0
"""


def tell(code: str, **environment: str) -> None:
    environment.setdefault("TENSORFERRY_THREADS", "4")
    assert subprocesses.run(COMMON + code + "\nprint('out')", **environment) == "out\n"


def test_before_and_after():
    subprocesses.run_program("processes/fork_before_and_after.py", TENSORFERRY_THREADS="4")


def test_first_used_in_the_child():
    tell("""
for _ in range(3):
    wait(fork(work))
work()
""")


def test_many_children_at_once():
    tell("""
work()
for child in [fork(work) for _ in range(6)]:
    wait(child)
work()
""")


def test_a_child_that_ends_as_a_script_does():
    tell("""
work()
held = ferry.to(memoryview(big), "numpy")
sys.stdout.flush()
wait(fork(work, leave=sys.exit) or os._exit(9))
""")


def test_a_fork_in_the_middle_of_a_copy():
    tell("""
stop = False
def copy():
    while not stop:
        ferry.to(big, "numpy", copy=True)
        ferry.to(big.T, "numpy", copy=True)
threads = [threading.Thread(target=copy) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(10):
    wait(fork(work))
stop = True
for thread in threads:
    thread.join()
""")


FIRST_CALLS = """
array = np.arange(6, dtype=np.float32).reshape(2, 3)

def fail():
    try:
        ferry.to(object(), "numpy")
    except ferry.FerryError:
        return
    raise AssertionError("no error")

def race(call):
    ended = threading.Event()
    def first():
        call()
        ended.set()
    thread = threading.Thread(target=first)
    thread.start()
    wait(fork(call))
    while not ended.is_set():
        wait(fork(call))
    thread.join()

for call in [
    lambda: ferry.to(array, "numpy", copy=True),
    lambda: ferry.to(memoryview(array), "numpy"),
    lambda: ferry.to({"a": [array, (array,)]}, "numpy", copy=True),
    lambda: str(ferry.plan(array.T, "numpy")),
    fail,
]:
    for _ in range(40):
        wait(fork(lambda: race(call)))
"""


def test_a_fork_in_the_middle_of_the_first_call():
    """Each child of this process makes its first call on one thread and forks on another."""
    tell(FIRST_CALLS)


@pytest.mark.parametrize("threads", ["1", "16"])
def test_one_thread_and_many(threads):
    tell("work()\nwait(fork(work))\nwork()", TENSORFERRY_THREADS=threads)


@pytest.mark.parametrize("target", ["torch", "paddle", "mlx", "jax"])
def test_other_frameworks_in_the_child(target):
    """Sharing needs none of the framework's threads, which the child does not have."""
    imports = subprocesses.imports(target).strip()
    tell(f"""
{imports}
small = ferry.to(np.arange(16, dtype=np.float32), "numpy", copy=True)
held = ferry.to(small, {target!r})
def body():
    there = ferry.to(small, {target!r})
    assert ferry.to(there, "numpy").tolist() == list(range(16))
    assert ferry.to(held, "numpy").tolist() == list(range(16))
    work()
for _ in range(3):
    wait(fork(body))
body()
""")


LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        image = np.full((512, 1024), index, np.float32)
        dense = ferry.to(image.T, "torch", copy=True)
        half = ferry.to(image[::2], "torch", dtype="float16")
        shared = ferry.to(image, "torch")
        assert shared.data_ptr() == image.ctypes.data
        return {"dense": dense, "half": half, "shared": shared, "kept": ferry.to(held, "numpy")}

held = ferry.to(np.arange(6, dtype=np.float32), "torch")

def check(batches):
    seen = 0
    for number, batch in enumerate(batches):
        want = torch.arange(4.0 * number, 4.0 * number + 4)
        assert batch["dense"].shape == (4, 1024, 512)
        assert (batch["dense"][:, 0, 0] == want).all() and (batch["dense"][:, -1, -1] == want).all()
        assert (batch["half"][:, 7, 7].float() == want).all()
        assert (batch["shared"].mean((1, 2)) == want).all()
        assert batch["kept"][0].tolist() == [0, 1, 2, 3, 4, 5]
        back = ferry.to(batch, "numpy")
        assert (back["shared"][:, 3, 3] == want.numpy()).all()
        seen += 1
    assert seen == 3
"""


def test_loader_workers():
    tell(f"""{LOADER}
from support.subprocesses import HANG_SECONDS
def loader():
    return DataLoader(Images(), batch_size=4, num_workers=2, multiprocessing_context="fork",
                      timeout=HANG_SECONDS, persistent_workers=True)
first = loader()
check(first)
work()
check(DataLoader(Images(), batch_size=4))
check(loader())
check(first)
""")


SPAWN = """
import multiprocessing, sys
import numpy as np
from support.subprocesses import HANG_SECONDS

def work(number, queue):
    import tensorferry as ferry
    x = np.full((1024, 1024), number, np.float32)
    got = ferry.to(x.T, "numpy", copy=True)
    queue.put((number, float(got.mean()), ferry.to(memoryview(np.arange(3)), "numpy")))

if __name__ == "__main__":
    import tensorferry as ferry
    for method in sys.argv[1:]:
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        children = [context.Process(target=work, args=(n, queue)) for n in range(2)]
        for child in children:
            child.start()
        got = sorted((queue.get(timeout=HANG_SECONDS) for _ in children), key=lambda item: item[0])
        assert [item[:2] for item in got] == [(0, 0.0), (1, 1.0)], got
        assert all(item[2].tolist() == [0, 1, 2] for item in got)
        for child in children:
            child.join(HANG_SECONDS)
            assert child.exitcode == 0, child.exitcode
    print("out")
"""


def test_spawn_and_forkserver(tmp_path):
    script = tmp_path / "spawning.py"
    script.write_text(SPAWN)
    run = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, *sys.argv[1:]]))"
    assert subprocesses.run(run, str(script), "spawn", "forkserver") == "out\n"
