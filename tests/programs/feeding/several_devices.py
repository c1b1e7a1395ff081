"""Runs the cases of `support.shardings`, prints what became of each as JSON, and exits in the
middle of epochs."""

from __future__ import annotations

from support import shardings
from support.cases import run_all

run_all(shardings)
#: These live until the interpreter is finalised.
epochs = shardings.leave_epochs_open()
