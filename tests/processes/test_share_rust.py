"""A Rust program and Python on one memory: the examples of the crate tensorferry, in both
directions, and killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from programs.processes import share_peer as there
from support import fake_driver
from support.peer_processes import Peer
from support.rust_examples import Example
from support.share_counts import has_released_all, held, soon

import tensorferry as ferry


def checksum(array: np.ndarray) -> str:
    """FNV-1a, as the example computes it."""
    value = 0xCBF29CE484222325
    for byte in np.ascontiguousarray(array).tobytes():
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{value:016x}"


WEIGHTS = {
    "layer.weight": np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4),
    "layer.bias": np.array([1.5, np.nan, -np.inf], ml_dtypes.bfloat16),
    "steps": np.array(7, "int64"),
    "mask": np.array([True, False]),
    "empty": np.zeros((0, 3), "float16"),
    # It has an arena of its own.
    "table": np.arange(5 << 20, dtype="int32"),
}


def attach_all(ticket: ferry.Ticket | str) -> dict[str, np.ndarray]:
    """The arrays of a ticket for a dict."""
    tree: dict[str, np.ndarray] = cast(Any, ferry.attach(ticket))
    return tree


def assert_weights(tree: dict[str, np.ndarray]) -> None:
    assert tree.keys() == WEIGHTS.keys()
    for name, array in tree.items():
        assert (array.dtype, array.shape) == (WEIGHTS[name].dtype, WEIGHTS[name].shape)
        assert array.tobytes() == WEIGHTS[name].tobytes(), name


@pytest.fixture
def before() -> tuple[int, int]:
    """What this process holds, once it has published: the server keeps its descriptors."""
    with ferry.publish(np.zeros(1)) as ticket:
        ferry.attach(ticket)
        assert soon(lambda: ticket.leases == 0)
    return held()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Example, str]]:
    """The example that serves a file, and its ticket."""
    path = tmp_path / "model.safetensors"
    ferry.save(path, WEIGHTS)
    with Example("serve_weights", path) as made:
        yield made, made.line()


def test_python_attaches_what_a_rust_program_serves(
    server: tuple[Example, str], before: tuple[int, int]
) -> None:
    example, ticket = server
    tree = attach_all(ticket)
    assert_weights(tree)
    assert not any(array.flags.writeable for array in tree.values())
    assert example.ask() == "1"
    weight = attach_all(ticket)["layer.weight"]
    assert example.ask() == "2"
    del tree
    assert soon(lambda: example.ask() == "1")
    assert weight.tolist() == WEIGHTS["layer.weight"].tolist()
    del weight
    assert soon(lambda: example.ask() == "0")
    assert example.finish() == (0, "")
    with pytest.raises(ferry.TicketError, match="that process has ended"):
        ferry.attach(ticket)
    assert soon(lambda: has_released_all(before))


def test_a_rust_server_that_is_killed(server: tuple[Example, str], before: tuple[int, int]) -> None:
    example, ticket = server
    tree = attach_all(ticket)
    example.kill()
    with pytest.raises(ferry.TicketError, match="that process has ended"):
        ferry.attach(ticket)
    # The memory stays readable, and can be published again.
    assert_weights(tree)
    with ferry.publish(tree, writable=False) as again:
        assert_weights(attach_all(again))
    del tree
    assert soon(lambda: has_released_all(before))


def test_a_python_consumer_that_is_killed(server: tuple[Example, str]) -> None:
    example, ticket = server
    with Peer() as consumer:
        consumer.run(there.attach, ticket)
        assert example.ask() == "1"
        consumer.kill()
    assert soon(lambda: example.ask() == "0")
    assert_weights(attach_all(ticket))
    assert example.finish() == (0, "")


def read_report(example: Example) -> list[str]:
    lines = []
    while (line := example.line()) != "done":
        lines.append(line)
    return lines


def test_a_rust_program_attaches_what_python_publishes() -> None:
    weight = ferry.empty_shared((3, 4), "float32")
    weight[:] = np.arange(12).reshape(3, 4)
    momentum = np.array([1.5, np.nan, -np.inf], ml_dtypes.bfloat16)
    state = {"layers": [{"weight": weight}, (momentum.T,)], 3: weight[:, ::-2], "step": 5}

    def expected() -> list[str]:
        return [
            f'"layers.0.weight" float32 [3, 4] 0 {checksum(weight)}',
            f'"layers.1.0" bfloat16 [3] 2 {checksum(momentum)}',
            f'"3" float32 [3, 2] 0 {checksum(weight[:, ::-2])}',
        ]

    trained = ferry.publish(state)
    single = ferry.publish(np.arange(3))
    with Example("attach_trainer", str(trained), str(single)) as example:
        last = f'"" int64 [3] 0 {checksum(np.arange(3))}'
        assert read_report(example) == [*expected(), last]
        assert (trained.leases, single.leases) == (1, 1)
        first = expected()
        # The memory is one: the program sees the next step of the trainer.
        weight += 1
        example.send()
        assert read_report(example) == [*expected(), last]
        assert expected() != first
        assert example.finish() == (0, "")
    assert soon(lambda: (trained.leases, single.leases) == (0, 0))


def test_a_rust_program_attaches_gpu_memory_of_python() -> None:
    array = np.arange(12, dtype="float32").reshape(3, 4)
    environment = fake_driver.environment()
    with Peer(**environment) as trainer:
        text = trainer.run(there.publish, {"w": array}, device="cuda:1")
        with Example("attach_trainer", text, **environment) as example:
            assert read_report(example) == [f'"w" float32 [3, 4] 0 {checksum(array)}']
            assert trainer.run(there.leases) == 1
            example.kill()
        assert trainer.run(there.has_no_leases_soon)


def test_a_rust_consumer_that_is_killed_returns_its_lease(before: tuple[int, int]) -> None:
    array = ferry.empty_shared(6 << 20, "float32")
    array[:] = 3
    ticket = ferry.publish(array)
    with Example("attach_trainer", str(ticket)) as example:
        assert read_report(example)[0].startswith('"" float32 [6291456] 0 ')
        assert ticket.leases == 1
        del ticket, array
        # Its lease holds the memory of the producer.
        assert not has_released_all(before)
        example.kill()
    assert soon(lambda: has_released_all(before))


def test_a_trainer_that_is_killed() -> None:
    with Peer() as trainer:
        text = trainer.run(there.publish, np.arange(1000, dtype="float32"))
        with Example("attach_trainer", text) as example:
            [first] = read_report(example)
            trainer.kill()
            example.send()
            assert read_report(example) == [first]
            assert example.finish() == (0, "")
        with Example("attach_trainer", text) as late:
            status, errors = late.finish()
            assert status == 1
            assert "that process has ended" in errors
            assert "hint: ask the producer for a new ticket" in errors
