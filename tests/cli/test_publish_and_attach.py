"""`tensorferry publish` and `tensorferry attach`, as users and shells meet them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from support import subprocesses
from support.share_counts import soon
from support.subprocesses import HANG_SECONDS
from support.terminals import Screen

import tensorferry as ferry
from tensorferry._tools import cli

TENSORFERRY = [sys.executable, "-m", "tensorferry"]
X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def sockets(monkeypatch):
    """Where servers lay their sockets. (Not this process's own, which outlives a test.)"""
    folder = tempfile.mkdtemp(prefix="ferry-")
    monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def socket_dir(tmp_path, monkeypatch):
    """A folder to work in, with a file."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.savez("x.npz", a=X, b=np.arange(4))
    return tmp_path


@contextlib.contextmanager
def published(*arguments: str, **options) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and the first line that it writes."""
    options = {"stderr": subprocess.PIPE, "preexec_fn": _listen, **options}
    line = [*TENSORFERRY, "publish", *arguments]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, **options) as server:
        try:
            assert select.select([server.stdout], [], [], HANG_SECONDS)[0], "nothing was written"
            yield server, server.stdout.readline()
        finally:
            server.kill()


def attempt(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    line = [*TENSORFERRY, *arguments]
    return subprocess.run(
        line, capture_output=True, text=True, timeout=HANG_SECONDS, check=False, **options
    )


def shell(script: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in which `ferry` is the command (no function: that is one more process)."""
    script = f"shopt -s expand_aliases\nalias ferry='{sys.executable} -m tensorferry'\n{script}"
    return subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )


def refusal(capsys, *arguments: str, code: int = 3) -> str:
    """The one line with which a command is refused, which must have a hint below it."""
    assert cli.main([*arguments]) == code
    told = capsys.readouterr()
    fact, hint = told.err.splitlines()
    assert told.out == ""
    assert fact.startswith("error: ")
    assert hint.startswith("hint: ")
    return fact


def test_the_whole_way(socket_dir, sockets):
    ferry.save("x.safetensors", {"w.0": X.astype(ml_dtypes.bfloat16), "s": np.array(2.5)})
    for source, target in (("x.npy", "y.npy"), ("x.npz", "y.npz"), ("x.safetensors", "z.npz")):
        done = shell(f"ferry publish --once {source} | ferry attach - {target}")
        assert (done.returncode, done.stderr) == (0, ""), done
        assert f"wrote {target}" in done.stdout
        want, found = ferry.load(source), ferry.load(target)
        if not isinstance(want, dict):
            want, found = {"": want}, {"": found}
        assert list(found) == list(want)
        for name, tensor in want.items():
            assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
            np.testing.assert_array_equal(found[name], tensor)
    assert os.listdir(sockets) == []


def test_a_ticket_in_a_variable_of_a_shell(socket_dir, sockets):
    """$(...) returns although the server goes on, because the server has closed standard output."""
    done = shell("""
    TICKET=$(ferry publish --timeout 600 x.npz 2> said &)
    ferry attach "$TICKET" --json
    ferry attach "$TICKET" y.safetensors
    """)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    told = json.loads("\n".join(lines[:-1]))
    assert [(one["name"], one["dtype"], one["shape"], one["bytes"]) for one in told["tensors"]] == [
        ("a", "float32", [3, 4], 48),
        ("b", "int64", [4], 32),
    ]
    assert lines[-1].startswith("wrote y.safetensors")
    np.testing.assert_array_equal(ferry.load("y.safetensors")["a"], X)
    os.kill(told["pid"], signal.SIGTERM)
    assert soon(lambda: not os.listdir(sockets)), "the server goes on"
    assert (socket_dir / "said").read_text() == ""


def test_it_is_the_same_memory_for_all_and_outlives_the_server(socket_dir, sockets):
    with published("x.npy") as (server, ticket):
        one, other = ferry.attach(ticket), ferry.attach(ticket, "torch")
        one[0, 0] = 7
        assert other[0, 0] == 7
        server.kill()
        server.wait()
        one[0, 1] = 8
        assert other[0, 1] == 8
    np.testing.assert_array_equal(np.load("x.npy"), X)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_order(socket_dir, sockets, number):
    with published("x.npy") as (server, ticket):
        held = ferry.attach(ticket)
        assert os.listdir(sockets) != []
        server.send_signal(number)
        assert server.communicate(timeout=HANG_SECONDS) == ("", "")
        assert server.returncode == 0
    assert os.listdir(sockets) == []
    np.testing.assert_array_equal(held, X)


def test_a_terminal_that_is_closed_ends_it(socket_dir, sockets):
    ours, theirs = pty.openpty()
    with published("x.npy", stderr=theirs, stdin=theirs, preexec_fn=_control) as (server, _):
        os.close(theirs)
        assert select.select([ours], [], [], HANG_SECONDS)[0]
        os.close(ours)
        assert server.wait(HANG_SECONDS) == 0
    assert os.listdir(sockets) == []


def _listen() -> None:
    """Whoever runs the tests may have had this signal ignored, by nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _control() -> None:
    """Makes the terminal on standard input the one that controls the process."""
    _listen()
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_an_ignored_interrupt_stays_ignored(socket_dir, sockets):
    """As it is for a job that a script puts into the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with published("x.npy") as (server, ticket):
            server.send_signal(signal.SIGINT)
            status = Path(f"/proc/{server.pid}/status").read_text()
            ignored = int(re.search(r"^SigIgn:\s*(\w+)$", status, re.MULTILINE)[1], 16)
            assert ignored & 1 << (signal.SIGINT - 1)
            np.testing.assert_array_equal(ferry.attach(ticket), X)
            server.terminate()
            assert server.wait(HANG_SECONDS) == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_killed_server(socket_dir, sockets, capsys):
    with published("x.npy") as (server, ticket):
        server.kill()
        server.wait()
        fact = refusal(capsys, "attach", ticket.strip(), "y.npy")
        assert f"of process {server.pid} is stale: that process has ended" in fact
    assert not os.path.exists("y.npy")
    assert len(os.listdir(sockets)) == 1
    assert attempt("publish", "--timeout", "0", "x.npy").returncode == 0
    assert os.listdir(sockets) == [], "the next producer removes what is left"


def test_the_first_consumer_ends_it(socket_dir, sockets, capsys):
    with published("--once", "x.npy") as (server, ticket):
        ferry.attach(ticket)  # and is gone at once, before anybody could look
        assert server.wait(HANG_SECONDS) == 0
        assert (server.stdout.read(), server.stderr.read()) == ("", "")
    assert os.listdir(sockets) == []
    assert "has ended" in refusal(capsys, "attach", ticket.strip())


def test_a_consumer_that_stays_does_not_keep_it(socket_dir, sockets):
    with published("--once", "x.npy") as (server, ticket):
        held = ferry.attach(ticket)
        assert server.wait(HANG_SECONDS) == 0
    np.testing.assert_array_equal(held, X)


def test_a_slow_consumer_of_very_many_tensors_gets_all_of_its_answer(socket_dir, sockets):
    """It does not fit into the socket at once, and the server waits until it is read."""
    ferry.save("many.safetensors", {f"{'n' * 200}{number}": X[:1, :1] for number in range(3000)})
    with (
        published("--once", "many.safetensors") as (server, ticket),
        socket.socket(socket.AF_UNIX) as connection,
    ):
        claim = bytes(ferry.Ticket(ticket))
        connection.connect(claim[46:])
        connection.sendall(struct.pack("<4sHHI", b"TFSH", 2, 1, 32) + claim[13:45])
        # The answer has begun. Each part that is read makes room for one more.
        assert select.select([connection], [], [], HANG_SECONDS)[0]
        assert server.poll() is None
        answer = b""
        while len(answer) < 12 or len(answer) < 12 + struct.unpack("<I", answer[8:12])[0]:
            got = connection.recv(1 << 10)
            assert got, "the answer is cut off"
            answer += got
        connection.close()
        assert server.wait(HANG_SECONDS) == 0
    assert len(answer) > 600_000


def test_the_time_runs_out(socket_dir, sockets):
    held = None
    for seconds in ("0.4", "4", "40"):
        with published("--timeout", seconds, "x.npy") as (server, ticket):
            # On a busy machine the time is over before, and more of it is given.
            with contextlib.suppress(ferry.TicketError):
                held = ferry.attach(ticket)
            assert server.wait(HANG_SECONDS) == 0
        if held is not None:
            break
    np.testing.assert_array_equal(held, X)
    done = attempt("publish", "--once", "--timeout", "0.2", "x.npy")
    assert done.returncode == 3
    assert re.match(r"error: .* 0\.2 s\nhint: ", done.stderr)
    assert os.listdir(sockets) == []


@pytest.mark.parametrize(
    ("script", "fact"),
    [
        ("ferry publish --timeout 600 x.npy >&-", "standard output is closed"),
        (
            "ferry publish --timeout 600 x.npy | true; exit ${PIPESTATUS[0]}",
            "reader of standard output",
        ),
    ],
)
def test_a_ticket_without_a_reader(socket_dir, sockets, script, fact):
    done = shell(script)
    assert done.returncode == 3
    assert fact in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert os.listdir(sockets) == []


def test_a_reader_that_leaves_does_not_end_it(socket_dir, sockets):
    with published("x.npy") as (server, ticket):
        server.stdout.close()
        np.testing.assert_array_equal(ferry.attach(ticket), X)
        server.terminate()
        assert server.stderr.read() == ""
        assert server.wait(HANG_SECONDS) == 0


def test_without_standard_error(socket_dir, sockets):
    done = shell("TICKET=$(ferry publish --once --timeout 600 x.npy 2>&- &); ferry attach $TICKET")
    assert "float32  3x4" in done.stdout, done


def test_one_line_for_programs(socket_dir, sockets):
    with published("--json", "--read-only", "--names", "a", "--to-dtype", "float16", "x.npz") as (
        server,
        line,
    ):
        told = json.loads(line)
        assert told["pid"] == server.pid
        assert (told["once"], told["timeout"], told["writable"]) == (False, None, False)
        tensor = {"name": "a", "dtype": "float16", "shape": [3, 4], "bytes": 24}
        assert told["tensors"] == [tensor]
        found = ferry.attach(told["ticket"])
        assert list(found) == ["a"]
        assert not found["a"].flags.writeable
        np.testing.assert_array_equal(found["a"], X.astype(np.float16))
        assert select.select([server.stdout], [], [], HANG_SECONDS)[0], "standard output goes on"
        assert server.stdout.read() == ""
        assert server.poll() is None


def test_on_a_terminal(socket_dir, sockets):
    ours, theirs = pty.openpty()
    try:
        with (
            published("x.npy", stderr=theirs) as (server, ticket),
            contextlib.closing(Screen(ours, server)) as screen,
        ):
            text = screen.read_until("0 consumers; Ctrl-C to stop")
            assert "published x.npy: 1 tensor, 48 B\r\n" in text
            assert "to attach: tensorferry attach TICKET" in text
            assert ticket.strip() not in text
            held = ferry.attach(ticket)
            screen.read_until("1 consumer; Ctrl-C to stop")
            del held
            screen.read_until("0 consumers; Ctrl-C to stop")
            server.send_signal(signal.SIGINT)
            assert server.wait(HANG_SECONDS) == 0
            assert screen.read_until("\r\x1b[K") == "\r\x1b[K"
    finally:
        os.close(ours)
        os.close(theirs)


def test_raw_bytes_and_pieces(socket_dir, sockets, monkeypatch, capsys):
    """Bytes that do not say what they are; and a large tensor is laid down piece by piece."""
    X.tofile("x.raw")
    with published("x.raw", "--dtype", "float32", "--shape", "3,4") as (_, ticket):
        monkeypatch.setattr("tensorferry._tools.cli.convert.BLOCK_ELEMENTS", 5)
        assert cli.main(["attach", ticket, "y.npy"]) == 0
    np.testing.assert_array_equal(np.load("y.npy"), X)


TREE = {
    "images": X,
    "nested": [np.arange(3), {"deep": np.ones((2, 2), bool)}],
    "epoch": 3,
    "name": "a \x1b[2Jname",
    "rate": float("nan"),
}


def test_a_tree_of_a_program(socket_dir, capsys):
    with ferry.publish(TREE, writable=False) as ticket:
        done = attempt("attach", "-", input=f"{ticket}\n")
        assert done.returncode == 0, done.stderr
        lines = [line.split() for line in done.stdout.splitlines()]
        assert lines[0] == ["process", f"{os.getpid()}:", "3", "tensors,", "76", "B"]
        assert ["nested.1.deep", "bool", "2x2", "4", "B", "read-only"] in lines
        assert ["epoch", "=", "3"] in lines
        assert "\x1b" not in done.stdout
        assert cli.main(["attach", str(ticket), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert {"name": "rate", "value": "nan"} in told["values"]
        assert [one["writable"] for one in told["tensors"]] == [False] * 3
        assert cli.main(["attach", str(ticket), "y.safetensors", "--to-dtype", "float64"]) == 0
        note = capsys.readouterr().err
        assert note.startswith("note: ")
        assert "epoch = 3" in note
        assert cli.main(["attach", str(ticket), "y.npz", "--names", "nested.0", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["tensors"], told["left_out"]) == (["nested.0"], [])
    found = ferry.load("y.safetensors")
    assert sorted(found) == ["images", "nested.0", "nested.1.deep"]
    np.testing.assert_array_equal(found["images"], X.astype(np.float64))
    np.testing.assert_array_equal(ferry.load("y.npz")["nested.0"], np.arange(3))


def test_keys_that_no_file_can_hold_are_listed(socket_dir, capsys):
    with ferry.publish({(1, 2): X}) as ticket:
        assert cli.main(["attach", str(ticket)]) == 0
        assert "(1, 2)  float32" in capsys.readouterr().out
        assert "the key (1, 2)" in refusal(capsys, "attach", str(ticket), "y.npz")


def test_tickets_that_are_none(socket_dir, capsys):
    ticket = ferry.publish(X)
    text = str(ticket)
    assert "does not begin with" in refusal(capsys, "attach", "hello", "y.npy")
    assert "truncated" in refusal(capsys, "attach", text[:-1])
    assert "tensorferry-ticket:1:" in refusal(capsys, "attach", "")
    changed = bytearray(bytes(ticket))
    changed[30] ^= 1
    wrong = str(ferry.Ticket(bytes(changed)))
    assert "never issued" in refusal(capsys, "attach", wrong)
    ticket.withdraw()
    assert "was withdrawn" in refusal(capsys, "attach", text)
    expired = ferry.publish(X, timeout=0)
    assert "has expired" in refusal(capsys, "attach", str(expired))
    once = ferry.publish(X, once=True)
    assert cli.main(["attach", str(once)]) == 0
    capsys.readouterr()
    assert "was used" in refusal(capsys, "attach", str(once))
    nothing = attempt("attach", "-", stdin=subprocess.DEVNULL)
    assert nothing.returncode == 3
    assert re.match(r"error: .*standard input.*\nhint: ", nothing.stderr)
    assert sorted(os.listdir()) == ["x.npy", "x.npz"]


def test_a_stopped_server_is_not_waited_for_for_ever(socket_dir, sockets, capsys):
    with published("x.npy") as (server, ticket):
        subprocesses.stop(server)
        fact = refusal(capsys, "attach", ticket, "--timeout", "0.2")
        assert "did not reply within" in fact


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (["y.what"], 3),
        (["nowhere/y.npy"], 3),
        (["y.npy", "--compression", "3"], 3),
        (["y.npy", "--to-dtype", "q"], 2),
    ],
)
def test_what_cannot_be_written_does_not_use_up_a_ticket(socket_dir, capsys, wrong, code):
    ticket = ferry.publish(X, once=True)
    refusal(capsys, "attach", str(ticket), *wrong, code=code)
    assert cli.main(["attach", str(ticket), "y.npy"]) == 0
    np.testing.assert_array_equal(np.load("y.npy"), X)
    assert sorted(os.listdir()) == ["x.npy", "x.npz", "y.npy"]


@pytest.mark.parametrize(
    ("arguments", "fact", "code"),
    [
        (["publish", "nothing.npy"], "No such file", 3),
        (["publish", "x.npz", "--names", "q"], 'has no tensor "q"', 3),
        (["publish", "x.npy", "--to-dtype", "q"], "q", 2),
    ],
)
def test_what_cannot_be_published(socket_dir, sockets, capsys, arguments, fact, code):
    assert fact in refusal(capsys, *arguments, code=code)


@pytest.mark.parametrize("time", ["soon", "-1", "nan", "inf"])
def test_times_that_are_none(capsys, time):
    for command in ("publish", "attach"):
        assert cli.main([command, "x", f"--timeout={time}"]) == 2
        assert "is not a time" in capsys.readouterr().err
