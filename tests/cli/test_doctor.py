"""`tensorferry doctor`: what works is verified, and what dies, hangs or lies is reported."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import fake_driver, fake_frameworks, subprocesses
from support.oldest import OLDEST
from support.share_counts import soon
from support.subprocesses import HANG_SECONDS

from tensorferry._tools.cli import main

DOCTOR = [sys.executable, "-m", "tensorferry", "doctor"]


def environment(*paths: Path | str, **more: str) -> dict[str, str]:
    """Ours, with modules in front of all others, and no GPU."""
    path = os.pathsep.join(map(str, (*paths, os.environ.get("PYTHONPATH", ""))))
    quiet = {
        "PYTHONPATH": path.rstrip(os.pathsep),
        "CUDA_VISIBLE_DEVICES": "",
        "JAX_PLATFORMS": "cpu",
    }
    return {**os.environ, **quiet, **more}


def doctor(
    *arguments: str, paths: tuple[Path | str, ...] = (), **more: str
) -> subprocess.CompletedProcess[str]:
    # A child that is only slow is not taken to hang, unless the test gives a limit of its own.
    return subprocess.run(
        [*DOCTOR, "--timeout", str(HANG_SECONDS // 2), *arguments],
        env=environment(*paths, **more),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


def report(*arguments: str, code: int, paths: tuple[Path | str, ...] = (), **more: str) -> Any:
    """What it says with --json, after it has ended with this code and without a word on stderr."""
    done = doctor("--json", *arguments, paths=paths, **more)
    assert (done.returncode, done.stderr) == (code, ""), done.stdout
    return json.loads(done.stdout)


def outcomes(found: Any) -> dict[tuple[str, str], str]:
    return {(cell["source"], cell["target"]): cell["outcome"] for cell in found["cells"]}


def states(found: Any) -> dict[str, str]:
    return {framework["name"]: framework["state"] for framework in found["frameworks"]}


def fakes(folder: Path, **frameworks: list[str]) -> dict[str, Any]:
    """Options of `doctor` with modules in place of frameworks."""
    return {"paths": (folder,), **fake_frameworks.install(folder, **frameworks)}


def changed(folder: Path, change: str) -> dict[str, Any]:
    """Options of `doctor` with changed interpreters: see site_changes.py."""
    shutil.copy(subprocesses.program_path("cli/site_changes.py"), folder / "sitecustomize.py")
    return {"paths": (folder,), "SITE_CHANGE": change}


MLX_ALONE = {
    ("numpy", "numpy"): "itself",
    ("numpy", "mlx"): "copied",
    ("mlx", "numpy"): "shared",
    ("mlx", "mlx"): "itself",
}

# ----- without problems


def test_every_cell_is_verified():
    found = report("--frameworks", "numpy,torch,jax", code=0)
    assert found["healthy"]
    assert states(found) == dict.fromkeys(("numpy", "torch", "jax"), "works")
    for framework in found["frameworks"]:
        installed = importlib.metadata.version(framework["name"])
        assert framework["version"].partition("+")[0] == installed.partition("+")[0]
        assert framework["seconds"] > 0
        assert framework["devices"] == [{"name": "cpu", "title": None}]
    names = ("numpy", "torch", "jax")
    expected = {(a, b): "itself" if a == b else "shared" for a in names for b in names}
    expected["numpy", "jax"] = "copied"
    assert outcomes(found) == expected
    assert all(cell["memory"] == "seen" for cell in found["cells"])
    assert found["problems"] == found["conflicts"] == []
    used = {path["name"] for path in found["fast_paths"] if path["state"] == "active"}
    assert used >= {
        *("numpy.array_struct", "torch.tensor_base", "torch.lazy_bits", "torch.pytree"),
        *("jax.buffer_protocol", "jax.tree_unflatten", "scipy.without_constructor"),
    }
    assert {path["framework"] for path in found["fast_paths"]} == {*names, "scipy"}
    machine = found["machine"]
    assert machine["cores"] == len(os.sched_getaffinity(0))
    assert machine["memory_bytes"] > 2**28
    assert machine["pool_limit_bytes"] > 0
    assert found["pinned"]["state"] == "absent"


def test_the_matrix_is_shown():
    done = doctor("--frameworks", "numpy,mlx")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    rows = [line.split() for line in lines]
    start = rows.index(["numpy", "mlx"])
    assert rows[start + 1 : start + 3] == [
        ["numpy", "itself", "copied", "1"],
        ["mlx", "shared", "itself"],
    ]
    assert "  1 MLX supports only memory that it allocated" in lines
    assert ": 1 shared, 1 copied, 2 itself; 4 cells in " in lines[-1]
    assert max(map(len, lines)) <= 80
    # The columns are aligned.
    assert len({line.index("itself") for line in lines[start : start + 2] if "itself" in line}) == 1


def test_what_a_framework_cannot_hold_is_no_failure():
    found = report("--frameworks", "numpy,mlx", "--dtype", "complex128", code=0)
    (cell,) = (one for one in found["cells"] if (one["source"], one["target"]) == ("numpy", "mlx"))
    assert cell["outcome"] == "impossible"
    assert "complex128" in cell["fact"]
    assert cell["hint"]


def test_an_absent_framework_is_no_failure_unless_it_was_asked_for(tmp_path):
    # A folder without code is no framework either, and hides none.
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "readme").write_text("no code")
    if not importlib.util.find_spec("cupy"):
        (tmp_path / "cupy").mkdir()
    change = changed(tmp_path, "hide torch")
    done = doctor("--json", "--frameworks", "numpy,torch,cupy", **change)
    assert done.returncode == 1
    assert done.stderr.startswith("error: not installed: torch")
    found = json.loads(done.stdout)
    assert found["healthy"]
    assert states(found).items() >= {"numpy": "works", "torch": "absent"}.items()
    if not importlib.util.find_spec("cupy"):
        assert states(found)["cupy"] == "absent"
    assert outcomes(found) == {("numpy", "numpy"): "itself"}


# ----- frameworks that do not import

# What a fake does at its import, the state that is reported, and parts of the report.
FAILING_IMPORTS = {
    "torch": (["abort"], "crashes", ("importing torch: ", "SIGABRT", "luck")),
    "paddle": (
        ["fail", "ImportError", "libluck.so.1: cannot open"],
        "fails",
        ("importing paddle ", "ImportError: libluck.so.1: cannot open"),
    ),
    "cupy": (["leave"], "fails", ("importing cupy ", "SystemExit: 3")),
    # Its import works, and the process dies when it is asked for its devices.
    "jax": (["work"], "crashes", ("devices of jax: ", "SIGILL")),
    "tensorflow": (["hang"], "hangs", ("importing tensorflow: ", "{seconds} s")),
}


def report_hang(*good: str, arguments: tuple[str, ...] = (), **options: Any) -> tuple:
    """A report about something that hangs, and the limit in seconds after which it was ended.

    The limit holds for what works too. Where that takes longer, the next limit is tried.
    """
    for seconds in ("4", "16", "64", "256"):
        found = report(*arguments, "--timeout", seconds, code=1, **options)
        if all(states(found)[name] != "hangs" for name in good):
            break
    return found, seconds


def test_frameworks_that_do_not_import_are_reported(tmp_path):
    modules = {name: deed for name, (deed, _, _) in FAILING_IMPORTS.items()}
    found, seconds = report_hang("numpy", "mlx", **fakes(tmp_path, **modules))
    assert states(found) == {
        "numpy": "works",
        "mlx": "works",
        **{name: state for name, (_, state, _) in FAILING_IMPORTS.items()},
    }
    facts = [problem["fact"] for problem in found["problems"]]
    assert len(facts) == len(FAILING_IMPORTS)
    for fact, (_, _, parts) in zip(facts, FAILING_IMPORTS.values(), strict=True):
        assert all(part.format(seconds=seconds) in fact for part in parts), fact
    assert all(problem["hint"] for problem in found["problems"])
    assert outcomes(found) == MLX_ALONE


def test_a_failure_is_shown(tmp_path):
    modules = fakes(tmp_path, jax=["fail", "RuntimeError", "no luck"])
    done = doctor("--frameworks", "numpy,jax", **modules)
    assert done.returncode == 1
    assert re.search(r"jax .* FAILED: see below", done.stdout)
    assert "  - importing jax raised RuntimeError: no luck\n    hint: " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 problem: 1 itself; 1 cell in ")


# ----- frameworks that do not live together


def test_a_conflict_is_named_and_the_rest_verified(tmp_path):
    modules = fakes(tmp_path, tensorflow=["abort_after", "mlx.core"])
    found = report("--frameworks", "numpy,mlx,tensorflow", code=1, **modules)
    assert set(states(found).values()) == {"works"}
    (conflict,) = found["conflicts"]
    assert conflict["frameworks"] == ["mlx", "tensorflow"]
    assert conflict["works_as"] == ["tensorflow", "mlx"]
    assert conflict["fact"].startswith("importing tensorflow after mlx: ")
    assert "SIGABRT" in conflict["fact"]
    assert conflict["hint"].startswith("import tensorflow before mlx")
    assert conflict["fact"] in [problem["fact"] for problem in found["problems"]]
    assert outcomes(found).items() >= MLX_ALONE.items()
    # In the order that works the process lives, and the fake is found out.
    assert outcomes(found)["mlx", "tensorflow"] == "failed"


def test_a_conflict_in_any_order(tmp_path):
    modules = fakes(tmp_path, tensorflow=["abort_with", "mlx.core"])
    found = report("--frameworks", "numpy,mlx,tensorflow", code=1, **modules)
    (conflict,) = found["conflicts"]
    assert conflict["frameworks"] == ["mlx", "tensorflow"]
    assert conflict["works_as"] is None
    assert outcomes(found).items() >= MLX_ALONE.items()
    assert outcomes(found)["mlx", "tensorflow"] == "crashed"
    assert outcomes(found)["tensorflow", "mlx"] == "crashed"


def test_a_conflict_of_more_than_two(tmp_path):
    modules = fakes(tmp_path, tensorflow=["abort_after", "numpy", "mlx.core"])
    found = report("--frameworks", "numpy,mlx,tensorflow", code=1, **modules)
    (conflict,) = found["conflicts"]
    assert conflict["frameworks"] == ["numpy", "mlx", "tensorflow"]
    assert outcomes(found).items() >= MLX_ALONE.items()


# ----- fast paths that are off, or fail


def test_a_fast_path_that_fails_its_probe_is_named(tmp_path):
    done = doctor("--frameworks", "numpy,mlx", **changed(tmp_path, "hide bases"))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    reason = "the field base differs from the attribute base"
    said = " ".join(done.stdout.split())
    assert f"numpy.array_struct FAILED: {reason}" in said
    better = said.partition(" notices ")[2]
    assert f"the fast path numpy.array_struct failed its probe: {reason}" in better
    assert "`PyArray_SetBaseObject`" in better


def test_a_fast_path_that_is_switched_off_is_named():
    found = report("--frameworks", "numpy,mlx", code=0, TENSORFERRY_DISABLE="numpy.array_struct")
    assert outcomes(found) == MLX_ALONE
    (path,) = (one for one in found["fast_paths"] if one["name"] == "numpy.array_struct")
    assert (path["state"], path["reason"]) == ("disabled", "disabled by TENSORFERRY_DISABLE")
    assert found["notices"] == [one for one in found["notices"] if "fast path" not in one["fact"]]


# ----- conversions that do not do what they should


def test_a_wrong_value_is_reported(tmp_path):
    lie = changed(tmp_path, "wrong values")
    found = report("--frameworks", "numpy,mlx", code=1, **lie)
    assert outcomes(found) == {**MLX_ALONE, ("mlx", "numpy"): "wrong"}
    (problem,) = found["problems"]
    assert "source" in problem["fact"]
    assert problem["where"] == ["mlx to numpy"]


def test_a_crash_on_the_way_is_one_cell(tmp_path):
    found = report("--frameworks", "numpy,mlx", code=1, **changed(tmp_path, "crash"))
    assert outcomes(found) == {**MLX_ALONE, ("mlx", "numpy"): "crashed"}
    (problem,) = found["problems"]
    assert "numpy and mlx" in problem["fact"]
    assert "SIGSEGV" in problem["fact"]


def test_a_crash_that_needs_a_third(tmp_path):
    options = {
        **changed(tmp_path, "crash beside tensorflow"),
        **fakes(tmp_path, tensorflow=["work"]),
    }
    found = report("--frameworks", "numpy,mlx,tensorflow", code=1, **options)
    assert outcomes(found).items() >= {**MLX_ALONE, ("mlx", "numpy"): "crashed"}.items()
    (fact,) = (cell["fact"] for cell in found["cells"] if cell["outcome"] == "crashed")
    assert "numpy, mlx, tensorflow" in fact
    assert "SIGABRT" in fact
    assert re.search("with only mlx and numpy .* shared$", fact)


def test_a_hang_on_the_way_is_one_cell(tmp_path):
    options = changed(tmp_path, "hang")
    found, _ = report_hang("numpy", "mlx", arguments=("--frameworks", "numpy,mlx"), **options)
    assert outcomes(found) == {**MLX_ALONE, ("mlx", "numpy"): "hung"}


# ----- GPUs, on the stand-in for the driver


def test_gpus_are_verified_too():
    found = report(
        "--frameworks",
        "numpy,cupy,mlx",
        code=0,
        paths=(fake_driver.STANDIN,),
        LD_LIBRARY_PATH=str(fake_driver.DRIVER),
    )
    assert found["driver"]["cuda"] == "13.0"
    assert [gpu["index"] for gpu in found["driver"]["gpus"]] == [0, 1]
    assert found["pinned"]["framework"] == "cupy"
    assert found["pinned"]["pinned_bytes"] > 0
    seen = {
        (cell["source"], cell["origin"], cell["target"], cell["destination"]): cell
        for cell in found["cells"]
    }
    assert len(seen) == 4 + 2 * (1 + 2 + 2)
    assert all(cell["memory"] == "seen" for cell in found["cells"])
    assert seen["cupy", "cuda:1", "cupy", "cuda:1"]["outcome"] == "itself"
    assert seen["numpy", "cpu", "cupy", "cuda:1"]["outcome"] == "copied"
    down = seen["cupy", "cuda:0", "numpy", "cpu"]
    assert down["fact"] == "the source is on cuda:0 and NumPy holds host memory only"


def test_gpus_are_shown():
    done = doctor(
        "--frameworks",
        "numpy,cupy",
        paths=(fake_driver.STANDIN,),
        LD_LIBRARY_PATH=str(fake_driver.DRIVER),
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^  cuda:1 ", done.stdout, re.MULTILINE)
    assert "\ncpu to cuda:0 (same on cuda:1), float32" in done.stdout
    assert re.search(r"pinned memory +works, \d+ MiB after downloads from cupy", done.stdout)
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_driver_that_does_not_start_is_a_failure(tmp_path):
    (tmp_path / "libcuda.so.1").write_text("no library")
    found = report("--frameworks", "numpy", code=1, LD_LIBRARY_PATH=str(tmp_path))
    assert found["driver"]["state"] == "fails"
    assert re.match("the CUDA driver .*: OSError", found["problems"][0]["fact"])


# ----- manners


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_an_interrupt_leaves_no_processes(sent, code, tmp_path):
    mark = tmp_path / "mark"
    options = fakes(tmp_path, jax=["hang_with_a_child", str(mark)])
    process = subprocess.Popen(
        [*DOCTOR, "--frameworks", "numpy,jax", "--timeout", "3600"],
        env=environment(*options.pop("paths"), **options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert soon(mark.exists)
    child, its_own = map(int, mark.read_text().split())
    assert is_running(child)
    process.send_signal(sent)
    # The child would go on for longer than that: an hour.
    stdout, stderr = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, stdout, stderr) == (code, "", "")
    assert soon(lambda: not is_running(child))
    if sent == signal.SIGINT:
        assert soon(lambda: not is_running(its_own))
    else:
        os.kill(its_own, signal.SIGKILL)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(("wish", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_on_a_terminal(wish, coloured):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*DOCTOR, "--frameworks", "numpy"],
        env=environment(TERM="xterm", **wish),
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            got = os.read(ours, 65536)
        except OSError:  # how a terminal says that nobody is left
            break
        if not got:
            break
        shown += got
    os.close(ours)
    assert process.communicate()[1] == b""
    assert b"no problems" in shown
    assert (b"\x1b[" in shown) == coloured


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--frameworks", "numpy,caffe"), 'unknown framework "caffe"'),
        (("--frameworks", ","), "--frameworks"),
        (("--timeout", "0"), "the time is zero"),
        (("--timeout", "soon"), '"soon" is not'),
    ],
)
def test_wrong_usage(wrong, said, capsys):
    assert main(["doctor", *wrong]) == 2
    assert said in capsys.readouterr().err


def test_child_processes_do_not_import_frameworks():
    loaded = subprocesses.run_program("cli/doctor_probe_imports.py")
    assert loaded.strip() == ""


# ----- orders of import


def import_orders(found: Any) -> dict[tuple[str, ...], dict[str, Any]]:
    return {tuple(order["modules"]): order for order in found["import_orders"]}


def test_an_order_of_import_that_ends_the_process(tmp_path):
    modules = fakes(tmp_path, tensorflow=["work"], paddle=["abort_after", "tensorflow"])
    found = report("--frameworks", "numpy,paddle,tensorflow", code=1, **modules)
    orders = import_orders(found)
    assert orders["numpy", "paddle", "tensorflow"]["state"] == "works"
    assert orders["paddle", "tensorflow"]["state"] == "works"
    wrong = orders["tensorflow", "paddle"]
    assert wrong["state"] == "crashes"
    assert wrong["fact"].startswith("importing paddle after tensorflow: ")
    assert "SIGABRT" in wrong["fact"]
    assert wrong["hint"] == "import paddle before tensorflow, which works here"
    # It can be avoided, so it is not a problem.
    assert wrong["fact"] in [warning["fact"] for warning in found["warnings"]]
    assert wrong["fact"] not in [problem["fact"] for problem in found["problems"]]
    assert found["conflicts"] == []
    shown = doctor("--frameworks", "numpy,paddle,tensorflow", **modules).stdout
    assert "import order\n  works    numpy, paddle, tensorflow\n" in shown
    assert "  crashes  tensorflow, paddle\n  works    paddle, tensorflow\n" in shown
    assert "hint: import paddle before tensorflow, which works here" in shown


def test_the_child_decides_and_not_the_table(tmp_path):
    modules = fakes(tmp_path, tensorflow=["work"], paddle=["work"])
    found = report("--frameworks", "paddle,tensorflow", code=0, **modules)
    order = import_orders(found)["tensorflow", "paddle"]
    assert order["state"] == "works"
    assert order["fact"].startswith("importing paddle after tensorflow works here")
    assert order["hint"] == 'write "import paddle" before the call'


def test_no_order_of_import_works(tmp_path):
    modules = fakes(
        tmp_path, tensorflow=["abort_before", "paddle"], paddle=["abort_before", "tensorflow"]
    )
    found = report("--frameworks", "paddle,tensorflow", code=1, **modules)
    wrong = import_orders(found)["tensorflow", "paddle"]
    assert (wrong["state"], wrong["hint"]) == ("crashes", "use them in separate processes")
    assert [conflict["works_as"] for conflict in found["conflicts"]] == [None]


@pytest.mark.skipif(OLDEST, reason="the oldest supported versions do not crash")
def test_the_orders_of_the_real_frameworks():
    found = report("--frameworks", "paddle,tensorflow", "--timeout", "300", code=0)
    orders = import_orders(found)
    assert orders["paddle", "tensorflow"]["state"] == "works"
    assert orders["tensorflow", "paddle"]["state"] == "crashes"
    assert orders["tensorflow", "paddle"]["hint"].startswith("import paddle before tensorflow")
    assert "SIGSEGV" in orders["tensorflow", "paddle"]["fact"]


def test_orders_of_frameworks_that_are_not_here_are_not_tried():
    found = report("--frameworks", "numpy,mlx", code=0)
    assert [order["modules"] for order in found["import_orders"]] == [["numpy", "mlx"]]
