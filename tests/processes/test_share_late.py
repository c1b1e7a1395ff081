"""Consumers that read late, and producers that run out: nobody gets another's values."""

from __future__ import annotations

from support import subprocesses

RELAY = """
import array, gc, mmap, socket, struct, subprocess, sys
import numpy as np
import tensorferry as ferry
from support.share_counts import catch_up

MIDDLE = '''
import sys, time
import tensorferry as ferry
got = ferry.attach(sys.stdin.readline())
again = ferry.publish(got, once=True, writable=sys.argv[1] == "True")
del got
print(again, flush=True)
while not again.consumers:
    time.sleep(0.001)
'''
x = ferry.empty_shared(1000, "int64")
x[:] = 1
ticket = ferry.publish(x)
middle = subprocess.Popen([sys.executable, "-c", MIDDLE, sys.argv[1]], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE)
middle.stdin.write(f"{ticket}\\n")
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
_, told, _, _ = last.recvmsg(65536, 1040)
last.close()
memory = mmap.mmap(array.array("i", told[0][2][:4])[0], 0, prot=mmap.PROT_READ)
assert np.frombuffer(memory, "int64", 1000).tolist() == [1] * 1000
"""


def test_memory_on_its_way_to_a_late_reader_is_not_used_again() -> None:
    for writable in ("True", "False"):
        assert subprocesses.run(RELAY, writable) == ""


def test_a_ticket_for_one_outlives_a_producer_without_descriptors() -> None:
    code = """
    import os, resource, subprocess, sys
    import numpy as np
    import tensorferry as ferry

    CONSUMER = "import sys, tensorferry as ferry; sys.stdin.readline(); "
    CONSUMER += "print(len(ferry.attach(sys.argv[1])))"
    ticket = ferry.publish([np.full(1 << 21, i) for i in range(3)], once=True, writable=False)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))

    def consumer():
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([sys.executable, "-c", CONSUMER, str(ticket)], text=True, **pipes)

    unlucky, full = consumer(), []
    try:
        while True:
            full.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        # One for the connection, and one for the first of three memories.
        os.close(full.pop())
        os.close(full.pop())
    said = unlucky.communicate("go")
    assert unlucky.returncode != 0 and "no descriptor left" in said[1], said
    for descriptor in full:
        os.close(descriptor)
    assert ticket.consumers == 0
    said = consumer().communicate("go")
    assert said[0].strip() == "3", said
    assert ticket.consumers == 1
    """
    assert subprocesses.run(code) == ""


def test_many_large_tensors_with_few_descriptors() -> None:
    """A descriptor for each on either side, and no more."""
    code = """
    import resource, subprocess, sys
    import tensorferry as ferry

    CONSUMER = "import sys, tensorferry as ferry; "
    CONSUMER += "print(sum(int(one[0]) for one in ferry.attach(sys.argv[1])))"
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
    tree = [ferry.empty_shared(16 << 20, "uint8") for _ in range(300)]
    for number, x in enumerate(tree):
        x[0] = number % 251
    ticket = ferry.publish(tree)
    command = [sys.executable, "-c", CONSUMER, str(ticket)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.strip() == str(sum(n % 251 for n in range(300))), done.stderr
    """
    assert subprocesses.run(code) == ""
