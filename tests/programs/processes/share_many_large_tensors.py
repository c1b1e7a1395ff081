"""Publishes 300 large tensors with 400 descriptors, to a process that has as few."""

from __future__ import annotations

import resource
import subprocess
import sys

from support.subprocesses import program_path

import tensorferry as ferry

resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
tree = [ferry.empty_shared(16 << 20, "uint8") for _ in range(300)]
for number, x in enumerate(tree):
    x[0] = number % 251
ticket = ferry.publish(tree)
command = [sys.executable, program_path("processes/share_sum_of_firsts.py"), str(ticket)]
done = subprocess.run(command, capture_output=True, text=True, check=False)
assert done.stdout.strip() == str(sum(n % 251 for n in range(300))), done.stderr
