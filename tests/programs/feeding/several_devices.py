"""Runs the cases of `support.shardings`, prints what became of each as JSON, and exits in the
middle of epochs."""

from __future__ import annotations

from support.shardings import leave_epochs_open, main

main()
#: These live until the interpreter is finalised.
epochs = leave_epochs_open()
