"""What every test process needs before the first framework is loaded.

TensorFlow crashes the process when Paddle or Triton is imported after it, so the frameworks are
loaded here, once, in an order that works. Tests that must see a fresh interpreter start one.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import platform
import signal
import warnings

import pytest
from support import hang_guard, run_record

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("GLOG_minloglevel", "3")

with warnings.catch_warnings():
    # What a framework says while it is imported is about itself.
    warnings.simplefilter("ignore")
    import numpy  # noqa: I001
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


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(hang_guard, "hang_guard")


@pytest.fixture(autouse=True, scope="module")
def _freeze_older_objects() -> None:
    """Exempts the objects of frameworks and earlier tests from collections of garbage."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Returns them, because libraries report objects that are alive at the exit."""
    gc.unfreeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    run_record.add_option(parser)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    versions = [f"python-{platform.python_version()}", f"numpy-{numpy.__version__}"]
    run_record.write(terminalreporter, config, versions)
