"""Attaches the ticket of the argument when a line comes on stdin; prints its number of tensors."""

from __future__ import annotations

import sys

import tensorferry as ferry

sys.stdin.readline()
print(len(ferry.attach(sys.argv[1])))
