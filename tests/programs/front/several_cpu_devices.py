"""Runs the cases of `support.cpu_devices` and prints what became of each as JSON."""

from __future__ import annotations

from support import cpu_devices
from support.cases import run_all

run_all(cpu_devices)
