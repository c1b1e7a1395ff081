"""Attaches the ticket of the argument; prints the sum of the first elements of its tensors."""

from __future__ import annotations

import sys

import tensorferry as ferry

print(sum(int(one[0]) for one in ferry.attach(sys.argv[1])))
