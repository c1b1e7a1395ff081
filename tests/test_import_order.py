"""Orders of import that end the process are refused by all that imports for the caller.

Each case is a child: what is tested is that it lives. The order that is refused ends a process
inside the frameworks' own libraries, which `test_the_table_is_true` sees.
"""

from __future__ import annotations

import signal

import pytest
from support import subprocesses
from support.oldest import OLDEST

from tensorferry._native import _import_orders


@pytest.mark.parametrize("importer", ["ferry", "caller"])
def test_tensorflow_and_then_paddle(importer):
    """Whoever imported TensorFlow: tensorferry for a conversion, or the caller."""
    subprocesses.run_program("front/paddle_after_tensorflow.py", importer)


def test_the_other_order_works():
    subprocesses.run_program("front/orders_that_work.py", "paddle_first")


def test_what_is_loaded_is_not_refused():
    """Paddle and TensorFlow both loaded before the first call, in the order that works."""
    subprocesses.run_program("front/orders_that_work.py", "both_loaded")


def test_a_module_whose_import_is_blocked_is_not_loaded():
    subprocesses.run_program("front/orders_that_work.py", "tensorflow_blocked")


def test_a_module_that_is_not_installed_is_not_refused():
    subprocesses.run_program("front/orders_that_work.py", "paddle_not_installed")


@pytest.mark.skipif(OLDEST, reason="the oldest supported versions do not crash")
@pytest.mark.parametrize("order", _import_orders(), ids=lambda order: f"{order[0]} first")
def test_the_table_is_true(order):
    """The order is refused because it ends the process. Once it does not, the table shrinks."""
    first, second, _, seen = order
    done = subprocesses.attempt_program("front/import_in_order.py", second, first)
    assert signal.Signals(-done.returncode).name == seen.partition(" ")[0], done.stderr
