"""Runs the cases of `support.cpu_devices` and prints what became of each as JSON."""

from __future__ import annotations

from support.cpu_devices import main

main()
