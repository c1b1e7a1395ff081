"""What is left in folders, how many descriptors there may be, and where a socket can lie."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from programs.processes import share_peer as there
from support.peer_processes import Peer, PeerError
from support.refusals import refused
from support.subprocesses import run_program

import tensorferry as ferry


@pytest.mark.parametrize(
    "method",
    ["spawn", "fork", "forkserver"],
)
def test_children_of_multiprocessing_leave_no_folder(method: str) -> None:
    """They end well, and are not killed."""
    assert run_program("processes/share_in_a_child_of_multiprocessing.py", method) == "0\n"


def test_a_ticket_in_a_forked_child_is_another_processs() -> None:
    """The words: "None where the ticket is another process's"; to withdraw such a one raises."""
    assert run_program("processes/share_ticket_of_the_parent.py") == ""


def test_several_hundred_arenas_with_one_ticket() -> None:
    """More descriptors than the system passes at a time."""
    large = [ferry.empty_shared(16 << 20, "uint8") for _ in range(300)]
    for number, x in enumerate(large):
        x[:2] = number % 251, 1
    ticket = ferry.publish(large, copy=False)
    with Peer() as peer:
        peer.run(there.attach, str(ticket))
        assert peer.run(there.first_values) == [number % 251 for number in range(300)]
        peer.run(there.write_leaf, 299, 1, 9)
    assert large[299][1] == 9


def test_a_consumer_without_descriptors() -> None:
    """It is told so, nothing is lost, and afterwards it works."""
    large = [ferry.empty_shared(16 << 20, "uint8") for _ in range(30)]
    ticket = ferry.publish(large)
    with Peer() as peer:
        before = peer.run(there.count_held)
        peer.run(there.limit_descriptors, before[0] + 20)
        for _ in range(3):
            with pytest.raises(PeerError) as caught:
                peer.run(there.visit, str(ticket))
            assert "descriptor" in caught.value.text or "open files" in caught.value.text
            assert "\nhint: " in caught.value.text
            assert peer.run(there.count_held) == before
        peer.run(there.limit_descriptors, 4096)
        peer.run(there.attach, str(ticket))
        assert len(peer.run(there.first_values)) == 30


@pytest.mark.parametrize("name", ["relative", "/nonexistent", "/proc", "", "/tmp/" + "x" * 200])
def test_folders_that_cannot_be_used(name: str) -> None:
    with Peer(XDG_RUNTIME_DIR=name) as peer:
        ticket = peer.run(there.publish, np.arange(3))
        assert peer.run(there.socket_path).startswith("/tmp/tensorferry-")
        assert peer.run(there.fetch_values, ticket) == [0, 1, 2]


def test_a_folder_of_ones_own() -> None:
    """The names that pytest gives are too long for a socket."""
    home = Path(tempfile.mkdtemp(dir="/tmp"))
    with Peer(XDG_RUNTIME_DIR=str(home)) as peer:
        ticket = peer.run(there.publish, np.arange(3))
        assert ferry.attach(ticket).tolist() == [0, 1, 2]
        (folder,) = home.iterdir()
        assert os.stat(folder).st_mode & 0o777 == 0o700
        assert [path.name for path in folder.iterdir()] == ["socket"]
    home.rmdir()


def test_a_folder_that_is_removed_underneath() -> None:
    """A removed socket directory makes the ticket unreachable, and the producer lives."""
    with Peer() as peer:
        ticket = peer.run(there.publish, np.arange(3))
        path = peer.run(there.socket_path)
        os.unlink(path)
        os.rmdir(os.path.dirname(path))
        error = refused(ferry.TicketError, ConnectionError, lambda: ferry.attach(ticket))
        assert "unreachable" in str(error)
        assert peer.run(there.new_shape) == (3,)


def test_registered_frameworks_and_modules() -> None:
    import torch

    ticket = ferry.publish({"k": np.arange(3.0)})
    assert isinstance(ferry.attach(ticket, torch)["k"], torch.Tensor)
    assert isinstance(ferry.attach(ticket, np)["k"], np.ndarray)
    with pytest.raises(ferry.InvalidArgumentError, match="hint: "):
        ferry.attach(ticket, "shared memory")


def test_a_process_without_descriptors_leaves_the_folders_of_others() -> None:
    """A process whose state cannot be read for lack of descriptors has not ended."""
    ticket = ferry.publish(np.arange(3))
    for count in range(1, 9):
        run_program("processes/share_publish_with_few_descriptors.py", str(count))
        assert ferry.attach(str(ticket)).tolist() == [0, 1, 2], count
