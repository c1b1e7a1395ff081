"""What a peer process does with tickets: its functions are called by `Peer.run`.

What one call keeps under a name, the next one finds there. `attach` keeps "got" and `publish` keeps
"ticket" unless they are given another name.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import pickle
import resource
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from support.share_counts import descriptors, has_released_all, held, mappings, soon

import tensorferry as ferry

kept: dict[str, Any] = {}

Claim = ferry.Ticket | str | bytes


def attach(ticket: Claim, framework: str = "numpy", *, name: str = "got", **options: Any) -> None:
    """Attaches a ticket, and keeps what it leads to."""
    kept[name] = ferry.attach(ticket, framework, **options)


def attach_often(ticket: Claim, count: int) -> None:
    """Attaches a ticket several times, and keeps "more"."""
    kept["more"] = [ferry.attach(ticket) for _ in range(count)]


def attach_key(ticket: Claim, key: str, **options: Any) -> None:
    """Attaches a dict, and keeps one of its tensors alone."""
    tree: Any = ferry.attach(ticket, **options)
    kept["got"] = tree[key]


def attach_and_write(ticket: Claim, value: float, framework: str = "numpy", **options: Any) -> None:
    """Attaches a ticket, keeps the tensor, and writes its first element."""
    attach(ticket, framework, **options)
    kept["got"][0] = value


def attach_for_good(ticket: Claim) -> None:
    """Attaches a ticket again and again, until the process is killed."""
    while True:
        ferry.attach(ticket)


def map_memory_of(ticket: Claim) -> None:
    """Maps the memory of a ticket without tensorferry, and drops the tensor and its lease."""
    before = set(os.listdir("/proc/self/fd"))
    got = ferry.attach(ticket)
    for name in set(os.listdir("/proc/self/fd")) - before:
        path = Path("/proc/self/fd", name)
        if path.exists() and "memfd:tensorferry" in str(path.readlink()):
            with path.open("rb") as file:
                kept["map"] = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    assert np.frombuffer(kept["map"], "float32")[0] == got[0]
    del got


def mapped_values(count: int) -> list[float]:
    """The first and the last of `count` values in the memory that was mapped."""
    values = np.frombuffer(kept["map"], "float32", count)
    return [float(values[0]), float(values[-1])]


def unmap_memory() -> None:
    """Ends the mapping."""
    kept.pop("map").close()


def visit(ticket: Claim, framework: str = "numpy", *, count: int = 1, **options: Any) -> None:
    """Attaches a ticket, and drops what it leads to."""
    for _ in range(count):
        ferry.attach(ticket, framework, **options)


def fetch(ticket: Claim, framework: str = "numpy", **options: Any) -> Any:
    """What a ticket leads to, by plain pickling."""
    return ferry.attach(ticket, framework, **options)


def fetch_values(ticket: Claim, framework: str = "numpy", **options: Any) -> Any:
    """The values of the tensor of a ticket."""
    return fetch(ticket, framework, **options).tolist()


def fetch_all_values(ticket: Claim, framework: str) -> dict[str, Any]:
    """The values of the tensors of a dict."""
    return {name: tensor.tolist() for name, tensor in fetch(ticket, framework).items()}


def fetch_first_and_last(ticket: Claim) -> list[list[float]]:
    """The first and the last element of each tensor of a list."""
    return [[float(x[0]), float(x[-1])] for x in fetch(ticket)]


def fetch_from_environment(variable: str) -> Any:
    """The values of the tensor of a ticket that is in the environment."""
    return ferry.attach(os.environ[variable]).tolist()


def fetch_writable(tickets: Sequence[Claim]) -> list[bool]:
    """Whether the array of each ticket can be written."""
    return [ferry.attach(one).flags.writeable for one in tickets]


def fetch_sums(ticket: Claim, threads: int, timeout: float) -> list[float]:
    """The sums that as many threads find, each of which attaches the ticket."""
    if threads == 1:
        return [float(ferry.attach(ticket, timeout=timeout).sum())]
    with ThreadPoolExecutor(threads) as pool:
        made = [pool.submit(ferry.attach, ticket, timeout=timeout) for _ in range(threads)]
        return [float(one.result().sum()) for one in made]


def is_let_in(ticket: Claim, *, keep: bool) -> bool:
    """Whether a ticket lets this process in; keeps what it leads to, or drops it.

    A ticket that does not is one that has expired.
    """
    try:
        got = ferry.attach(ticket)
    except ferry.TicketError as late:
        assert "expired" in str(late), late
        assert late.hint, late
        return False
    if keep:
        kept["got"] = got
    return True


def publish(x: Any, *, name: str = "ticket", **options: Any) -> str:
    """Publishes `x`, and keeps the ticket."""
    kept[name] = ferry.publish(x, **options)
    return str(kept[name])


def publish_got(*, name: str = "ticket", **options: Any) -> str:
    """Publishes what was attached."""
    return publish(kept["got"], name=name, **options)


def hand_on(ticket: Claim, **options: Any) -> str:
    """Attaches a ticket and publishes what it leads to, both of which are kept."""
    attach(ticket)
    return publish_got(**options)


def publish_block(seconds: float, *, pickled: bool) -> int:
    """Keeps a ticket for 20 MiB that expires, or only a pickle of it; the number of mappings.

    The pickle is a promise that it lets one consumer in.
    """
    ticket = ferry.publish(np.ones(20 << 20, "u1"), timeout=seconds)
    kept["ticket"] = pickle.dumps(ticket) if pickled else ticket
    del ticket
    return mappings()


def leases() -> int | None:
    """The leases of the ticket that was published."""
    count: int | None = kept["ticket"].leases
    return count


def has_no_leases_soon() -> bool:
    """Whether the leases of the ticket that was published end."""
    return soon(lambda: kept["ticket"].leases == 0)


def socket_path() -> str:
    """The socket of the ticket that was published."""
    return bytes(kept["ticket"])[46:].decode()


def values() -> Any:
    """The values of what was attached."""
    return kept["got"].tolist()


def first_values() -> list[int]:
    """The first element of each tensor of a list that was attached."""
    return [int(x[0]) for x in kept["got"]]


def total() -> float:
    """The sum of what was attached."""
    return float(kept["got"].sum())


def name_of_dtype() -> str:
    """The element type of what was attached."""
    name: str = kept["got"].dtype.name
    return name


def array_and_strides() -> tuple[Any, tuple[int, ...]]:
    """What was attached, and its strides."""
    return kept["got"], kept["got"].strides


def is_writable() -> Any:
    """Whether the array that was attached, or each of a list, can be written."""
    got = kept["got"]
    if isinstance(got, list):
        return [one.flags.writeable for one in got]
    return got.flags.writeable


def write(index: Any, value: float) -> None:
    """Writes an element, or several, of what was attached."""
    kept["got"][index] = value


def write_leaf(key: Any, index: Any, value: float) -> None:
    """Writes an element of one tensor of a tree that was attached."""
    kept["got"][key][index] = value


def write_by_address(value: float) -> None:
    """Writes the first element of what was attached, past NumPy."""
    ctypes.c_float.from_address(kept["got"].ctypes.data).value = value


def make_page_writable() -> tuple[int, int]:
    """Asks for the right to write the memory that was attached: the status and `errno`."""
    page = kept["got"].ctypes.data & -4096
    libc = ctypes.CDLL(None, use_errno=True)
    read_and_write = 3
    status = libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(4096), read_and_write)
    return status, ctypes.get_errno()


def keep_key(key: str) -> None:
    """Keeps one tensor of a dict that was attached, and drops the others."""
    kept["got"] = kept["got"][key]
    gc.collect()


def drop(name: str) -> None:
    """Drops what was kept under a name."""
    del kept[name]


def tied_in_a_tree(ticket: Claim, framework: str) -> tuple[bool, bool, float]:
    """Attaches a tree with one tensor in several places, and writes it in one of them.

    Tells whether "a" is the object in "b", whether "c" is, and the first element of "c".
    """
    attach(ticket, framework)
    a, b, c = kept["got"]["a"], kept["got"]["b"], kept["got"]["c"]
    a[0] = 9
    return a is b[0] is b[1][0], c is a, float(c[0])


def write_one_of_a_tree(ticket: Claim, framework: str, index: Any) -> dict[str, float]:
    """Attaches a dict, writes its tensor "a", and tells the first element of each."""
    attach(ticket, framework)
    kept["got"]["a"][index] = 9
    return {name: float(x.reshape(-1)[0]) for name, x in kept["got"].items()}


def attach_state_dict(ticket: Claim) -> tuple[float, tuple[str, list[str], Any], int]:
    """Attaches a state dict, and keeps it: its sum, its form, and the descriptors that it took."""
    before = len(os.listdir("/proc/self/fd"))
    attach(ticket, "torch")
    state = kept["got"]
    form = type(state).__name__, list(state)[:2], state["layer.5.weight"].shape
    taken = len(os.listdir("/proc/self/fd")) - before
    return sum(float(value.sum()) for value in state.values()), form, taken


def add_one_to_each(tickets: Sequence[Claim]) -> list[str]:
    """Adds one to the tensors of tickets on four threads, and publishes copies."""

    def take(ticket: Claim) -> tuple[ferry.Ticket, Any]:
        got: Any = ferry.attach(ticket)
        got += 1
        return ferry.publish(got.copy()), got

    with ThreadPoolExecutor(4) as pool:
        kept["pairs"] = list(pool.map(take, tickets))
    return [str(ticket) for ticket, _ in kept["pairs"]]


def publish_one_more(ticket: Claim) -> str:
    """Attaches a dict, and publishes its tensor "a" plus one."""
    got: Any = ferry.attach(ticket)
    return publish(got["a"] + 1)


def attach_write_and_drop(ticket: Claim, value: float) -> None:
    """Attaches a ticket, writes the first element, and keeps nothing."""
    ferry.attach(ticket)[0] = value


def attach_and_clear(tickets: Sequence[Claim], framework: str) -> None:
    """Attaches tickets, holds all of them at once, and drops them."""
    all_of_them = [ferry.attach(ticket, framework) for ticket in tickets]
    all_of_them.clear()
    gc.collect()


def claim_and_leases(ticket: Claim) -> tuple[int, int | None]:
    """Keeps a ticket of another process: whose it is, and its leases as far as they are known."""
    kept["ticket"] = ferry.Ticket(ticket)
    return kept["ticket"].pid, kept["ticket"].leases


def withdraw() -> None:
    """Withdraws the ticket that is kept."""
    kept["ticket"].withdraw()


def enter_and_leave() -> None:
    """Uses the ticket that is kept as a context manager."""
    with kept["ticket"]:
        pass


def new_shape() -> tuple[int, ...]:
    """The shape of a new tensor in shared memory."""
    return tuple(ferry.empty_shared(3, "uint8").shape)


# ----- the process itself


def count_descriptors() -> int:
    """The descriptors of this process."""
    return descriptors()


def count_held() -> tuple[int, int]:
    """The descriptors and mappings of this process."""
    return held()


def releases_all(before: tuple[int, int]) -> bool:
    """Whether the process comes to hold no more than it held before."""
    return soon(lambda: has_released_all(before))


def releases_mappings() -> bool:
    """Whether all shared memory of this process becomes unmapped."""
    return soon(lambda: held()[1] == 0)


def limit_descriptors(count: int, most: int = 4096) -> None:
    """Limits the descriptors of this process."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, most))


def interrupt_by_ctrl_c() -> None:
    """Has SIGINT raise KeyboardInterrupt, whatever this process inherited."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def touch_at_signal(path: Path) -> None:
    """Has SIGUSR1 touch a file, and raise nothing."""
    signal.signal(signal.SIGUSR1, lambda *_: path.touch())


def run_shell_with_the_gil(command: bytes) -> None:
    """Runs a command of the shell in one call that keeps the interpreter's lock."""
    # A function of a PyDLL is called with the lock.
    ctypes.PyDLL(None).system(command)


def die_after(seconds: float) -> None:
    """Kills this process at a random moment that the test has chosen."""
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)
