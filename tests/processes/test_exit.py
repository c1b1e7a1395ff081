"""At interpreter exit nothing crashes, hangs or complains, whoever still holds what."""

from __future__ import annotations

import pytest
from support import subprocesses
from support.refusals import TARGETS

# Every direction between some frameworks, held in every place that is emptied late or never.
HELD = """
import atexit, ctypes, itertools, sys, threading
{imports}
import numpy as np
# Runs after our own function at exit, which is registered by the import below.
atexit.register(lambda: dropper.join())
import tensorferry as ferry

names = sys.argv[1:]
want = np.arange(64, dtype=np.float32)
kept = []

def trip(a, b, **options):
    x = ferry.to(want, a, copy=True)
    y = ferry.to(x, b, **options)
    z = ferry.to(y, a)
    return x, y, z

def all_trips():
    ways = itertools.permutations(names, 2)
    return [trip(*way, **options) for way in ways for options in ({{}}, {{"copy": True}})]

# A module's globals, with the sources and without.
sources_and_results = all_trips()
results_only = [(y, z) for x, y, z in all_trips()]
# A chain: each result is the source of the next, and only the last is held.
chain = np.arange(64, dtype=np.float32)
for name in names + names[::-1]:
    chain = ferry.to(chain, name)
# A frozen source lent to whoever takes it.
frozen = np.frombuffer(bytes(256), np.float32)
lent = [ferry.to(frozen, name) for name in names]
# A cycle that only the last collection finds.
class Cycle: pass
cycle = Cycle()
cycle.me, cycle.held = cycle, all_trips()
# An object that nobody will ever release.
immortal = all_trips()
ctypes.pythonapi.Py_IncRef(ctypes.py_object(immortal))
# Functions that run at exit, before and after our own.
atexit.register(lambda: kept.append(all_trips()))
# An object whose end uses the library again.
class Late:
    def __del__(self):
        try:
            all_trips()
        except Exception:
            pass
late = Late()
# Threads that hold results, or are in the middle of a copy, when the process ends. (Not in the
# middle of a C++ framework: Python 3.11 unwinds such a thread, and PyTorch alone aborts then.)
def hold(held):
    threading.Event().wait()
threading.Thread(target=hold, args=(all_trips(),), daemon=True).start()
begun = threading.Semaphore(0)
def busy():
    big = np.ones((1 << 18,), np.float32)
    while True:
        ferry.to(big, "numpy", copy=True)
        ferry.to(want[::2], "numpy", dtype="float64")
        begun.release()
for _ in range(2):
    threading.Thread(target=busy, daemon=True).start()
# A thread that lets go as soon as the main thread has ended, while our own function at exit runs.
# It is done before Python finalises: JAX and PyTorch alone abort a thread that lets go after that.
def wait_and_drop(held):
    threading.main_thread().join()
    held.clear()
dropper = threading.Thread(target=wait_and_drop, args=(all_trips(),), daemon=True)
dropper.start()
for _ in range(20):
    begun.acquire()
for x, y, z in sources_and_results:
    assert ferry.to(z, "numpy").tolist() == want.tolist()
print("out", flush=True)
"""

# Each pair is in one of these; an import of TensorFlow costs as much as a hundred other tests.
GROUPS = (
    ("numpy", "torch"),
    ("numpy", "jax"),
    ("numpy", "mlx"),
    ("numpy", "paddle"),
    ("numpy", "tensorflow"),
    ("torch", "jax", "mlx"),
    TARGETS,
)


@pytest.mark.parametrize("names", GROUPS, ids="-".join)
def test_shares_that_are_held_at_exit(names):
    code = HELD.format(imports=subprocesses.imports(*names))
    assert subprocesses.run(code, *names) == "out\n"


SLOW = """
import atexit, threading, time
# Runs after our own function at exit, which is registered by the import below.
atexit.register(print, "exit", flush=True)
import tensorferry as ferry
from support.invalid_capsules import Producer

begun = threading.Event()

class Slow(Producer):
    def _delete(self, address):
        begun.set()
        threading.main_thread().join()
        # The main thread has every chance to go on, and does not.
        for _ in range(1000):
            time.sleep(0)
        print("released", flush=True)

held = [ferry.to(Slow(), "numpy")]
threading.Thread(target=held.clear, daemon=True).start()
begun.wait()
print("out", flush=True)
"""


def test_a_release_that_has_begun_is_waited_for():
    """It would come back to an interpreter that unwinds it, through C++ that cannot be unwound."""
    assert subprocesses.run(SLOW) == "out\nreleased\nexit\n"


LATEST = """
import sys
import numpy as np
import tensorferry as ferry

class Late:
    def __init__(self, *arguments, **options):
        self.call, self.arguments, self.options = ferry.to, arguments, options
    def __del__(self):
        try:
            self.call(*self.arguments, **self.options)
        except Exception:
            pass

# The last thing that Python takes apart, and the first call with keywords, a tree, a mistake.
sys.late = [
    Late(np.ones(3), "numpy", copy=True),
    Late([np.ones(3)], "numpy"),
    Late(3, "numpy"),
    Late(np.ones(3), "numpy"),
]
print("out", flush=True)
"""


def test_the_first_call_comes_while_python_is_taken_apart():
    assert subprocesses.run(LATEST) == "out\n"


# Holders that outlive Python itself: C code that lets go after, or while, the interpreter ends.
NATIVE = """
import ctypes, sys, threading
import numpy as np
import tensorferry as ferry
from support.invalid_capsules import Versioned

libc = ctypes.CDLL(None)
get = ctypes.pythonapi.PyCapsule_GetPointer
get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
rename = ctypes.pythonapi.PyCapsule_SetName
rename.argtypes = (ctypes.py_object, ctypes.c_void_p)
USED = ctypes.create_string_buffer(b"used_dltensor_versioned")

def native():
    \"\"\"A managed tensor of ours in C's hands: its address and the address of its deleter.\"\"\"
    capsule = parcels.pop().__dlpack__(max_version=(1, 0))
    address = get(capsule, b"dltensor_versioned")
    rename(capsule, ctypes.addressof(USED))
    managed = Versioned.from_address(address)
    return address, ctypes.cast(managed.deleter, ctypes.c_void_p).value

class Toy:
    pass
parcels = []
ferry.register_framework("toy", types=[Toy], read=None, write=parcels.append, alignment=1)

def held(**options):
    ferry.to(np.arange(1000, dtype=np.float32), "toy", **options)
    return native()
"""

AFTER = """
cxa_atexit = libc.__cxa_atexit
cxa_atexit.argtypes = (ctypes.c_void_p,) * 3
for options in ({}, {"copy": True}):
    for _ in range(10):
        address, deleter = held(**options)
        cxa_atexit(deleter, address, None)
# Memory of a bytearray, and frozen memory.
for buffer in (bytearray(64), bytes(64), memoryview(bytearray(64))):
    ferry.to(buffer, "toy")
    address, deleter = native()
    cxa_atexit(deleter, address, None)
print("out")
"""

WITHOUT_PYTHON = """
import gc, weakref
from support.share_counts import soon
class Array(np.ndarray):
    pass
thread = ctypes.c_ulong()
for _ in range(100):
    array = np.arange(1000, dtype=np.float32).view(Array)
    alive = weakref.ref(array)
    ferry.to(array, "toy")
    del array
    address, deleter = native()
    gc.collect()
    assert alive() is not None
    call = ctypes.c_void_p(deleter), ctypes.c_void_p(address)
    assert libc.pthread_create(ctypes.byref(thread), None, *call) == 0
    assert libc.pthread_join(thread, None) == 0
    assert soon(lambda: alive() is None), "let go for a thread that Python has never seen"
print("out")
"""

WHILE = """
# A timer of POSIX calls the deleter on a thread of its own, at a moment of its own.
class Event(ctypes.Structure):
    _fields_ = (("value", ctypes.c_void_p), ("signal", ctypes.c_int), ("notify", ctypes.c_int),
                ("function", ctypes.c_void_p), ("rest", ctypes.c_char * 40))
class Times(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_long) for name in ("every_s", "every_ns", "in_s", "in_ns"))
start = float(sys.argv[1])
for number in range(300):
    address, deleter = held()
    event, timer = Event(value=address, notify=2, function=deleter), ctypes.c_void_p()
    assert libc.timer_create(1, ctypes.byref(event), ctypes.byref(timer)) == 0
    when = Times(in_ns=int((start + number / 300 * 0.15) * 1e9))
    assert libc.timer_settime(timer, 0, ctypes.byref(when), None) == 0
print("out", flush=True)
"""


def test_c_lets_go_after_python_is_gone():
    assert subprocesses.run(NATIVE + AFTER) == "out\n"


def test_a_thread_without_python_lets_go():
    assert subprocesses.run(NATIVE + WITHOUT_PYTHON) == "out\n"


@pytest.mark.parametrize("start", ["0.001", "0.02", "0.05"])
def test_threads_release_while_python_exits(start):
    assert subprocesses.run(NATIVE + WHILE, start) == "out\n"


STATIC = """
import torch
import numpy as np
import tensorferry as ferry
x = np.arange(64, dtype=np.float32)

class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("held", ferry.to(x, "torch"))
    def forward(self, a):
        return a + self.held

# TorchScript keeps modules, and what they hold, in a compilation unit of static lifetime.
module = torch.jit.freeze(torch.jit.trace(Module().eval(), torch.ones(64)))
library = torch.library.Library("ferry_tests", "DEF")
library.define("held(Tensor a) -> Tensor")
library.impl("held", lambda a, t=ferry.to(x, "torch"): a + t, "CPU")
assert torch.ops.ferry_tests.held(torch.ones(64)).tolist() == (x + 1).tolist()
assert module(torch.ones(64)).tolist() == (x + 1).tolist()
print("out")
"""


def test_torch_statics_at_exit():
    done = subprocesses.attempt(STATIC)
    assert (done.returncode, done.stdout) == (0, "out\n"), done.stderr


COMPILED = """
import jax, jax.numpy as jnp, tensorflow as tf
import numpy as np
import tensorferry as ferry
x = ferry.to(tf.range(64.0), "numpy", copy=True)
# Constants of compiled functions, and of graphs, live in caches of the frameworks.
j = ferry.to(x, "jax")
assert jax.jit(lambda a: a + j)(jnp.ones(64)).tolist() == (x + 1).tolist()
t = ferry.to(x, "tensorflow")
assert ferry.plan(x, "tensorflow").shares and ferry.plan(x, "jax").shares
function = tf.function(lambda a: a + t)
assert function(tf.ones(64)).numpy().tolist() == (x + 1).tolist()
table = tf.Variable(t)
data = iter(tf.data.Dataset.from_tensor_slices(t).repeat().prefetch(4))
assert float(next(data)) == 0
print("out")
"""


def test_compiled_constants_at_exit():
    assert subprocesses.run(COMPILED) == "out\n"


@pytest.mark.parametrize("how", ["sys.exit(0)", "os._exit(0)", "os.kill(os.getpid(), 15)"])
def test_other_ways_out(how):
    code = f"""
    import os, sys, threading
    import numpy as np
    import tensorferry as ferry
    big = np.ones((4 << 20,), np.float32)
    held = ferry.to(memoryview(big), "numpy")
    begun = threading.Semaphore(0)
    def copy():
        while True:
            ferry.to(big, "numpy", copy=True)
            begun.release()
    threading.Thread(target=copy, daemon=True).start()
    for _ in range(5):
        begun.acquire()
    print("out", flush=True)
    {how}
    """
    done = subprocesses.attempt(code)
    assert (done.returncode, done.stdout, done.stderr) == (-15 if "kill" in how else 0, "out\n", "")


def test_an_error_on_the_way_out_is_told_as_usual():
    done = subprocesses.attempt("""
        import numpy as np
        import tensorferry as ferry
        held = ferry.to(memoryview(np.ones(3)), "numpy")
        ferry.to(3, "numpy")
        """)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("hint: make a tensor of it first: numpy.asarray(x)")


SUBINTERPRETER = """
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
import sys
if sys.argv[1] == "main first":
    import tensorferry
code = '''
try:
    import tensorferry
except ImportError as error:
    text = str(error)
    assert "interpreter" in text, text
else:
    raise AssertionError("it was imported")
'''
for _ in range(2):
    inner = interpreters.create()
    error = interpreters.run_string(inner, code)
    assert error is None, error
    interpreters.destroy(inner)
import array
import tensorferry as ferry
assert ferry.to(array.array("f", [1, 2]), "numpy").tolist() == [1, 2]
print("out")
"""


@pytest.mark.parametrize("order", ["main first", "main last"])
def test_subinterpreters_get_an_import_error(order):
    assert subprocesses.run(SUBINTERPRETER, order) == "out\n"
