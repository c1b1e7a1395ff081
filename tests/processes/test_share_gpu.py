"""GPU memory between processes, on the stand-in for the driver; tests/gpu has a real one."""

from __future__ import annotations

import pytest
from support.fake_driver import SETUP, run

# A second process with the same driver, which runs code and gives what it leaves as `answer`.
OTHER = """
import json, os, subprocess, sys

SERVE = '''
import json, sys
import numpy as np
import tensorferry as ferry
try:
    import cupy
except OSError:  # without a driver
    pass
for line in sys.stdin:
    names = globals()
    try:
        exec(json.loads(line), names)
        told = {"answer": names.get("answer")}
    except Exception as error:
        told = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(told), flush=True)
'''

class Other:
    def __init__(self, **environment):
        self.process = subprocess.Popen([sys.executable, "-c", SERVE], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    def run(self, code):
        self.process.stdin.write(json.dumps(code) + "\\n")
        self.process.stdin.flush()
        told = json.loads(self.process.stdout.readline())
        if "error" in told:
            raise RuntimeError(told["error"])
        return told["answer"]
    def end(self):
        self.process.stdin.close()
        assert self.process.wait(600) == 0
        self.process.stdout.close()

def told(**options):
    with ferry.trace() as trips:
        ticket = ferry.publish(x, **options)
    return ticket, trips[0].plan

x = on_gpu(np.arange(12, dtype="float32").reshape(3, 4))
"""


def standin(code: str, **environment: str) -> str:
    return run(SETUP, OTHER, code, **environment)


def test_a_gpu_tensor_is_given_as_it_is() -> None:
    standin("""
    ticket, plan = told()
    assert plan.shares and plan.device == "cuda:0", plan
    other = Other()
    code = f"got = ferry.attach({str(ticket)!r}, 'cupy', copy=False)"
    other.run(code)
    assert other.run("answer = got.get().tolist()") == np.arange(12).reshape(3, 4).tolist()
    assert ticket.leases == 1
    # The same memory.
    other.run("got.set(np.full((3, 4), 9, 'float32'))")
    other.run("cupy.cuda.get_current_stream().synchronize()")
    assert x.get().tolist() == [[9] * 4] * 3
    # A view of it, and the host, which needs a copy.
    ticket = ferry.publish({"row": x[1], "all": x}, copy=False)
    code = f"got = ferry.attach({str(ticket)!r}, 'numpy'); answer = got['row'].tolist()"
    assert other.run(code) == [9] * 4
    other.end()
    """)


def test_read_only_gpu_memory_is_a_copy_that_can_be_protected() -> None:
    standin("""
    ticket, plan = told(writable=False)
    assert not plan.shares and "read-only" in str(plan), plan
    try:
        ferry.publish(x, writable=False, copy=False)
        raise AssertionError("it was shared")
    except ferry.CopyRequiredError as error:
        assert "ferry.empty" in error.hint
    y = ferry.empty_shared((2, 2), "float32", framework="cupy", device="cuda")
    y.set(np.ones((2, 2), "float32"))
    ticket = ferry.publish(y, writable=False, copy=False)
    other = Other()
    code = f"got = ferry.attach({str(ticket)!r}, 'numpy'); answer = got.tolist()"
    assert other.run(code) == [[1, 1], [1, 1]]
    other.end()
    """)


def test_between_host_and_gpu() -> None:
    standin("""
    ticket, plan = told(device="cpu")
    assert not plan.shares and plan.device == "cpu", plan
    other = Other()
    code = f"got = ferry.attach({str(ticket)!r}); answer = got.tolist()"
    assert other.run(code) == np.arange(12).reshape(3, 4).tolist()
    x = np.arange(5, dtype="float32")
    ticket, plan = told(device="cuda", dtype="float64")
    assert not plan.shares and plan.device == "cuda:0", plan
    code = f"got = ferry.attach({str(ticket)!r}, 'cupy'); answer = got.get().tolist()"
    assert other.run(code) == [0, 1, 2, 3, 4]
    assert other.run("answer = str(got.dtype)") == "float64"
    other.end()
    """)


def test_a_small_tensor_of_a_large_allocation_is_copied_unless_told_otherwise() -> None:
    standin("""
    large = cupy.empty((100 << 20,), np.uint8)
    x = large[5:10]
    _, plan = told()
    assert not plan.shares and "100 MiB" in str(plan), plan
    ticket, plan = told(copy=False)
    assert plan.shares
    assert ferry.attach(ticket, "cupy").data.ptr == large.data.ptr + 5
    """)


def test_published_again_and_attached_by_the_producer() -> None:
    standin("""
    ticket, _ = told()
    middle = Other()
    middle.run(f"got = ferry.attach({str(ticket)!r}, 'cupy')")
    again = middle.run("ticket = ferry.publish(got, copy=False); answer = str(ticket)")
    last = Other()
    code = f"got = ferry.attach({again!r}, 'numpy'); answer = got.tolist()"
    assert last.run(code) == np.arange(12).reshape(3, 4).tolist()
    # And back where it came from, which has it already.
    assert ferry.attach(again, "cupy").data.ptr == x.data.ptr
    middle.end()
    last.end()
    """)


def test_a_gpu_that_the_other_does_not_see() -> None:
    standin("""
    ticket, _ = told()
    blind = Other(LD_LIBRARY_PATH="/nowhere")
    try:
        blind.run(f"answer = ferry.attach({str(ticket)!r}, 'numpy').tolist()")
        raise AssertionError("it was attached")
    except RuntimeError as error:
        assert str(error).startswith("UnsupportedError"), error
    blind.end()
    """)


@pytest.mark.parametrize(
    "call", ["cuIpcGetMemHandle", "cuMemCreate", "cuMemExportToShareableHandle"]
)
def test_a_driver_that_refuses_leaves_nothing_half_done(call: str) -> None:
    standin(f"""
    before = len(os.listdir("/proc/self/fd"))
    driver.testdriver_fail(b"{call}", 0, 999)
    try:
        ferry.publish(x, writable=False if "{call}" != "cuIpcGetMemHandle" else None)
        raise AssertionError("it was published")
    except ferry.FrameworkError:
        pass
    assert len(os.listdir("/proc/self/fd")) <= before
    ticket, _ = told()
    assert ferry.attach(ticket, "numpy").sum() == 66
    """)


def test_empty_on_a_gpu() -> None:
    standin("""
    for empty in (ferry.empty_shared, ferry.empty_aligned):
        y = empty((3, 4), "float16", framework="cupy", device="cuda")
        assert isinstance(y, cupy.ndarray) and y.shape == (3, 4) and str(y.dtype) == "float16"
        y.set(np.full((3, 4), 2, "float16"))
        ticket = ferry.publish(y, copy=False)
        assert ferry.attach(ticket, "numpy").tolist() == [[2] * 4] * 3
    # CuPy has no other place.
    assert isinstance(ferry.empty_shared(3, "int32", framework="cupy"), cupy.ndarray)
    """)


# Work that waits for the GPU until another thread, which needs the interpreter, has done its own.
BESIDE = """
import threading, time

def beside(work):
    done, ended = [], threading.Event()
    def count():
        while not driver.testdriver_waits():
            if ended.is_set():
                return
            time.sleep(0.001)
        for turn in range(20):
            time.sleep(0)
        done.append("beside")
        driver.testdriver_hold(0)
    thread = threading.Thread(target=count)
    driver.testdriver_hold(1)
    thread.start()
    work()
    done.append("work")
    ended.set()
    thread.join()
    driver.testdriver_hold(0)
    assert done == ["beside", "work"], done

other = Other()
def published():
    other.run("x = ferry.empty_shared(9 << 20, 'uint8', framework='cupy', device='cuda')")
    return other.run("ticket = ferry.publish(x, copy=False); answer = str(ticket)")
"""


def test_others_continue_while_gpu_memory_is_released() -> None:
    """The wait is for the GPU alone: a thread that wants the interpreter has it."""
    run(
        SETUP,
        OTHER,
        BESIDE,
        """
        held = {"x": ferry.attach(published(), "cupy", copy=False)}
        beside(held.clear)
        # What was copied is let go before attach is back.
        ticket = published()
        beside(lambda: ferry.attach(ticket, "numpy"))
        # So is what goes wrong on the way.
        def refuse():
            try:
                ferry.attach(ticket, "cupy", dtype="bfloat16")
            except ferry.FerryError:
                return
            raise AssertionError("it was attached")
        beside(refuse)
        # Memory of our own.
        held = {"x": ferry.empty_shared(9 << 20, "uint8", framework="cupy", device="cuda")}
        beside(held.clear)
        # And on a thread of its own, which has the interpreter too.
        held = {"x": ferry.attach(ticket, "cupy", copy=False)}
        def elsewhere():
            thread = threading.Thread(target=held.clear)
            thread.start()
            thread.join()
        beside(elsewhere)
        other.end()
        """,
    )
