"""What a process holds, by what the system says: descriptors, mappings, folders."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

from support.subprocesses import HANG_SECONDS

import tensorferry as ferry

#: The name of a folder: pid namespace, process, start time, random number.
FOLDER_PATTERN = "tensorferry-*-*-*-*"


def descriptors() -> int:
    """Open descriptors, but for the one that is needed to count them."""
    return len(os.listdir("/proc/self/fd")) - 1


def mappings() -> int:
    """Mappings of our shared memory."""
    with open("/proc/self/maps") as file:
        return sum("/memfd:tensorferry" in line for line in file)


def folders() -> set[str]:
    """Folders of sockets, whoever's."""
    bases = [Path("/tmp"), Path(os.environ.get("XDG_RUNTIME_DIR", "/tmp"))]
    return {str(path) for base in bases for path in base.glob(FOLDER_PATTERN)}


def folders_of(process: int) -> set[str]:
    """Folders of sockets of one process."""
    return {path for path in folders() if _owner(Path(path)) == process}


def folder_owners(base: str) -> list[int]:
    """The process of each folder of a socket in a directory."""
    return [_owner(path) for path in Path(base).glob(FOLDER_PATTERN)]


def _owner(folder: Path) -> int:
    return int(folder.name.split("-")[2])


def shared_files() -> set[str]:
    """What lies in /dev/shm, but for what others on this machine put there: Python's own shared
    memory, semaphores and browsers."""
    others = ("psm_", "sem.", ".org.chromium", "torch_")
    return {name for name in os.listdir("/dev/shm") if not name.startswith(others)}


def held() -> tuple[int, int]:
    """Descriptors and mappings of this process, once all that is garbage or idle is gone."""
    gc.collect()
    ferry.empty_cache()
    return descriptors(), mappings()


def has_released_all(before: tuple[int, int]) -> bool:
    """Whether there is no more than `held` counted then. What was on its way out may be gone."""
    return all(now <= then for now, then in zip(held(), before, strict=True))


def sockets_of(process: int) -> int:
    """The sockets of a process. Files that it imports come and go, so they are not counted."""
    count = 0
    for entry in os.scandir(f"/proc/{process}/fd"):
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(entry.path).startswith("socket:")
    return count


def catch_up() -> None:
    """Returns when this process has noticed every lease that ended before the call.

    The server handles closed connections in the order in which they were closed. A lease that
    begins and ends here is therefore the last one that it notices.
    """
    import tensorferry as ferry

    for _ in range(2):
        ticket = ferry.publish(ferry.empty_shared(1, "uint8"))
        ferry.attach(ticket)
        assert soon(lambda ticket=ticket: ticket.consumers == 1 and ticket.leases == 0)


def soon(question: Callable[[], object], seconds: float = HANG_SECONDS) -> bool:
    """Whether the answer becomes yes. By default, only a hang takes as long as this waits."""
    end = time.monotonic() + seconds
    while not question():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True
