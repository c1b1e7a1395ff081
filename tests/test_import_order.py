"""Orders of import that end the process are refused by all that imports for the caller.

Each case is a child: what is tested is that it lives. The order that is refused ends a process
inside the frameworks' own libraries, which `test_the_table_is_true` sees.
"""

from __future__ import annotations

import signal

import pytest
from support import subprocesses

from tensorferry._native import _import_orders

ERROR_TEXT = """
import tensorferry as ferry

def refused(function):
    try:
        function()
    except ferry.FrameworkNotFoundError as error:
        fact, hint = str(error).split("\\nhint: ")
        assert "paddle after tensorflow" in fact and "SIGSEGV" in fact, fact
        assert hint.startswith("import paddle before tensorflow"), hint
        assert isinstance(error, ImportError)
        return
    raise AssertionError("nothing was refused")
"""

METHODS = """
import pathlib, sys, tempfile
import numpy as np
from tensorferry import framework_register
from tensorferry._tools import samples

x = np.arange(6, dtype=np.float32)
file = pathlib.Path(tempfile.mkdtemp()) / "x.npy"
ferry.save(file, x)
ticket = ferry.publish(x)
for way in (
    lambda: ferry.to(x, "paddle"),
    lambda: ferry.to(x, framework="paddle", copy=True),
    lambda: ferry.to({"a": [x]}, "paddle"),
    lambda: ferry.plan(x, "paddle"),
    lambda: ferry.to_async(x, "paddle").result(),
    lambda: ferry.load(file, "paddle"),
    lambda: ferry.attach(ticket, "paddle"),
    lambda: ferry.empty_shared((2, 3), "float32", framework="paddle"),
    lambda: ferry.via("paddle")(lambda t: t)(x),
    lambda: ferry.via("numpy", returns="paddle")(lambda a: a)(x),
    lambda: framework_register.load("paddle"),
    lambda: samples.make("paddle", (2, 3)),
):
    refused(way)
    refused(way)
assert "paddle" not in sys.modules
# All else goes on.
assert (ferry.to(ferry.to(x, "tensorflow"), "numpy") == x).all()
assert {info.name for info in ferry.frameworks() if info.loaded} >= {"numpy", "tensorflow"}
assert not next(info.loaded for info in ferry.frameworks() if info.name == "paddle")
"""


def run(code: str) -> None:
    subprocesses.run(code, timeout=600)


def test_tensorflow_that_we_imported_and_then_paddle():
    run(f"""{ERROR_TEXT}
import numpy as np
ferry.to(np.arange(6, dtype=np.float32), "tensorflow")
{METHODS}""")


def test_tensorflow_that_the_caller_imported_and_then_paddle():
    run(f"import tensorflow\n{ERROR_TEXT}\n{METHODS}")


def test_the_other_order_works():
    run("""
import numpy as np
import tensorferry as ferry

x = np.arange(6, dtype=np.float32)
ferry.to(x, "paddle")
t = ferry.to(x, "tensorflow")
assert (ferry.to(ferry.to(t, "paddle"), "numpy") == x).all()
ferry.to(x, "torch")
""")


def test_what_is_loaded_is_not_refused():
    """Paddle and TensorFlow both loaded before the first call, in the order that works."""
    run("""
import paddle
import tensorflow
import numpy as np
import tensorferry as ferry

x = np.arange(6, dtype=np.float32)
assert (ferry.to(ferry.to(x, "paddle"), "tensorflow").numpy() == x).all()
""")


def test_a_module_whose_import_is_blocked_is_not_loaded():
    run("""
import sys
sys.modules["tensorflow"] = None
import numpy as np
import tensorferry as ferry

assert ferry.to(np.arange(6), "paddle").numpy().tolist() == list(range(6))
""")


@pytest.mark.parametrize("order", _import_orders(), ids=lambda order: f"{order[0]} first")
def test_the_table_is_true(order):
    """The order is refused because it ends the process. Once it does not, the table shrinks."""
    first, second, _, seen = order
    done = subprocesses.attempt(f"import {second}\nimport {first}", timeout=600)
    assert signal.Signals(-done.returncode).name == seen.partition(" ")[0], done.stderr
