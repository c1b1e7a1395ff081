"""What is left in folders, how many descriptors there may be, and where a socket can lie."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from support import subprocesses
from support.peer_processes import Peer, PeerError
from support.refusals import refused

import tensorferry as ferry

CHILDREN = """
import multiprocessing, os, sys
import numpy as np
import tensorferry as ferry
from support.subprocesses import HANG_SECONDS
from support.share_counts import folders_of

def work(queue):
    kept = ferry.publish(np.ones(3))
    queue.put((os.getpid(), len(folders_of(os.getpid()))))

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    child = context.Process(target=work, args=(queue,))
    child.start()
    number, count = queue.get(timeout=HANG_SECONDS)
    child.join(HANG_SECONDS)
    assert (child.exitcode, count) == (0, 1)
    print(len(folders_of(number)))
"""


@pytest.mark.parametrize(
    "method",
    ["spawn", "fork", "forkserver"],
)
def test_children_of_multiprocessing_leave_no_folder(method: str, tmp_path) -> None:
    """They end well, and are not killed."""
    script = tmp_path / "ending.py"
    script.write_text(CHILDREN)
    run = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, *sys.argv[1:]]))"
    assert subprocesses.run(run, str(script), method) == "0\n"


def test_a_ticket_in_a_forked_child_is_another_processs() -> None:
    """The words: "None where the ticket is another process's"; to withdraw such a one raises."""
    code = """
    import os
    import numpy as np
    import tensorferry as ferry

    ticket = ferry.publish(np.ones(3))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert ticket.leases is None, ticket.leases
            try:
                ticket.withdraw()
            except ferry.InvalidArgumentError:
                status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
    assert subprocesses.run(code) == ""


def test_several_hundred_arenas_with_one_ticket() -> None:
    """More descriptors than the system passes at a time."""
    large = [ferry.empty_shared(16 << 20, "uint8") for _ in range(300)]
    for number, x in enumerate(large):
        x[:2] = number % 251, 1
    ticket = ferry.publish(large, copy=False)
    with Peer() as peer:
        code = "got = ferry.attach(ticket); result = [int(x[0]) for x in got]; got[299][1] = 9"
        assert peer.run(code, ticket=str(ticket)) == [number % 251 for number in range(300)]
    assert large[299][1] == 9


def test_a_consumer_without_descriptors() -> None:
    """It is told so, nothing is lost, and afterwards it works."""
    large = [ferry.empty_shared(16 << 20, "uint8") for _ in range(30)]
    ticket = ferry.publish(large)
    with Peer() as peer:
        before = peer.run(
            """
            import resource
            from support.share_counts import held
            result = held()
            resource.setrlimit(resource.RLIMIT_NOFILE, (result[0] + 20, 4096))
            """
        )
        for _ in range(3):
            with pytest.raises(PeerError) as caught:
                peer.run("ferry.attach(ticket)", ticket=str(ticket))
            assert "descriptor" in caught.value.text or "open files" in caught.value.text
            assert "\nhint: " in caught.value.text
            assert peer.run("result = held()") == before
        peer.run("resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))")
        assert peer.run("result = len(ferry.attach(ticket))", ticket=str(ticket)) == 30


@pytest.mark.parametrize("name", ["relative", "/nonexistent", "/proc", "", "/tmp/" + "x" * 200])
def test_folders_that_cannot_be_used(name: str) -> None:
    with Peer(XDG_RUNTIME_DIR=name) as peer:
        text = peer.run("kept = ferry.publish(np.arange(3)); result = bytes(kept)[46:].decode()")
        assert text.startswith("/tmp/tensorferry-")
        assert peer.run("result = ferry.attach(kept).tolist()") == [0, 1, 2]


def test_a_folder_of_ones_own() -> None:
    """The names that pytest gives are too long for a socket."""
    home = Path(tempfile.mkdtemp(dir="/tmp"))
    with Peer(XDG_RUNTIME_DIR=str(home)) as peer:
        ticket = peer.run("kept = ferry.publish(np.arange(3)); result = str(kept)")
        assert ferry.attach(ticket).tolist() == [0, 1, 2]
        (folder,) = home.iterdir()
        assert os.stat(folder).st_mode & 0o777 == 0o700
        assert [path.name for path in folder.iterdir()] == ["socket"]
    home.rmdir()


def test_a_folder_that_is_removed_underneath() -> None:
    """A removed socket directory makes the ticket unreachable, and the producer lives."""
    with Peer() as peer:
        code = "kept = ferry.publish(np.arange(3)); result = str(kept), bytes(kept)[46:].decode()"
        ticket, path = peer.run(code)
        os.unlink(path)
        os.rmdir(os.path.dirname(path))
        error = refused(ferry.TicketError, ConnectionError, lambda: ferry.attach(ticket))
        assert "unreachable" in str(error)
        assert peer.run("result = ferry.empty_shared(3, 'uint8').shape") == (3,)


def test_registered_frameworks_and_modules() -> None:
    import torch

    ticket = ferry.publish({"k": np.arange(3.0)})
    assert isinstance(ferry.attach(ticket, torch)["k"], torch.Tensor)
    assert isinstance(ferry.attach(ticket, np)["k"], np.ndarray)
    with pytest.raises(ferry.InvalidArgumentError, match="hint: "):
        ferry.attach(ticket, "shared memory")
