"""Forks a child that leaves through the finalisation of its interpreter, with a share held."""

from __future__ import annotations

import os
import sys

from support.fork_work import big, work
from support.forks import fork, wait

import tensorferry as ferry

work()
held = ferry.to(big.data, "numpy")
sys.stdout.flush()
wait(fork(work, leave=sys.exit) or os._exit(9))
print("out")
