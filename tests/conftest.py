"""What every test process needs before the first framework is loaded.

TensorFlow crashes the process when Paddle or Triton is imported after it, so the frameworks are
loaded here, once, in an order that works. Tests that must see a fresh interpreter start one.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import warnings
from collections.abc import Generator

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("GLOG_minloglevel", "3")

with warnings.catch_warnings():
    # What a framework says while it is imported is about itself.
    warnings.simplefilter("ignore")
    import numpy  # noqa: F401, I001
    import ml_dtypes  # noqa: F401
    import paddle  # noqa: F401
    import torch

    with contextlib.suppress(ImportError):
        import triton  # noqa: F401 (torch loads it later, for nested tensors among others)
    import jax  # noqa: I001
    import tensorflow  # noqa: F401
    import mlx.core  # noqa: F401

    jax.devices()

# A run in the background may be told to ignore Ctrl-C, which the children of tests would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
logging.getLogger("jax").setLevel(logging.WARNING)
torch.set_num_threads(1)

# No test takes a tenth of this on two cores; one that is marked as slow may take minutes.
LONGEST_SECONDS, LONGEST_SLOW_SECONDS = 600, 3600
standard_error = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    # What tests print is not captured yet.
    config.stash[standard_error] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[standard_error])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Ends the process where a test hangs, also one that holds the interpreter, and shows what its
    threads are at. With several workers, the test is then reported as the one that failed."""
    slow = item.get_closest_marker("slow") is not None
    faulthandler.dump_traceback_later(
        LONGEST_SLOW_SECONDS if slow else LONGEST_SECONDS,
        exit=True,
        file=item.config.stash[standard_error],
    )
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
