"""Runs out of descriptors while it lets in the one consumer of a ticket, and then lets one in."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import numpy as np
from support.subprocesses import program_path

import tensorferry as ferry

ticket = ferry.publish([np.full(1 << 21, i) for i in range(3)], once=True, writable=False)
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))


def consumer() -> subprocess.Popen[str]:
    """A process that attaches when it gets a line."""
    return subprocess.Popen(
        [sys.executable, program_path("processes/share_count_at_a_line.py"), str(ticket)],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


unlucky = consumer()
full: list[int] = []
try:
    while True:
        full.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    # One for the connection, and one for the first of three memories.
    os.close(full.pop())
    os.close(full.pop())
said = unlucky.communicate("go")
assert unlucky.returncode != 0, said
assert "no descriptor left" in said[1], said
for descriptor in full:
    os.close(descriptor)
assert ticket.consumers == 0
said = consumer().communicate("go")
assert said[0].strip() == "3", said
assert ticket.consumers == 1
