"""Sends memory through a process that ends before the last one in the row reads it.

The argument says whether the one in the middle publishes it as writable.
"""

from __future__ import annotations

import array
import gc
import mmap
import socket
import struct
import subprocess
import sys

import numpy as np
from support.share_counts import catch_up
from support.subprocesses import program_path

import tensorferry as ferry

x = ferry.empty_shared(1000, "int64")
x[:] = 1
ticket = ferry.publish(x)
middle = subprocess.Popen(
    [sys.executable, program_path("processes/share_hand_on.py"), sys.argv[1]],
    text=True,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
)
assert middle.stdin is not None
assert middle.stdout is not None
middle.stdin.write(f"{ticket}\n")
middle.stdin.flush()
claim = bytes(ferry.Ticket(middle.stdout.readline()))
ticket.withdraw()
del x, ticket
gc.collect()
last = socket.socket(socket.AF_UNIX)
last.connect(claim[46:])
last.sendall(struct.pack("<4sHHI", b"TFSH", 2, 1, 32) + claim[13:45])
middle.communicate()
catch_up()
# The one in the middle is gone with its lease, and the answer is still on its way.
y = ferry.empty_shared(1000, "int64")
y[:] = 2
told = last.recvmsg(65536, 1040)[1]
last.close()
memory = mmap.mmap(array.array("i", told[0][2][:4])[0], 0, prot=mmap.PROT_READ)
assert np.frombuffer(memory, "int64", 1000).tolist() == [1] * 1000
