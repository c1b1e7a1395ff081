"""The wording of the doctor: how processes end, problems, notices and the text of a report."""

from __future__ import annotations

from support import golden_text

from tensorferry._tools.cli.doctor_text import lines
from tensorferry._tools.cli.terminal import Terminal
from tensorferry._tools.doctor.findings import (
    Cell,
    Conflict,
    Device,
    Driver,
    FastPath,
    Framework,
    Gpu,
    ImportOrder,
    Machine,
    Pinned,
    Result,
)
from tensorferry._tools.doctor.processes import ProcessExit
from tensorferry._tools.doctor.report import Report
from tensorferry._tools.doctor.tasks import Task

EXITS = {
    "error": ProcessExit("error", 3),
    "error with output": ProcessExit("error", 3, "out of luck"),
    "crash": ProcessExit("crash", -11),
    "crash with output": ProcessExit("crash", -9, "out of luck"),
    "hang": ProcessExit("hang", -9, "", 4.0),
}


def sample_report() -> Report:
    numpy = Framework("numpy", "works", "1.26.4", 0.1, (Device("cpu"),))
    torch = Framework("torch", "works", "99.0.1+cu", 1.5, (Device("cpu"),), for_cuda=True)
    jax = Framework("jax", "works", "0.8", 1.5, (Device("cpu"), Device("cuda:0")))
    mlx = Framework("mlx", "absent")
    tensorflow = Framework("tensorflow", "crashes", "2.20", fact="it crashed", hint="reinstall it")
    paddle = Framework("paddle", "works", "3.2", 2.0, (Device("cpu"),))
    return Report(
        Machine("0.1", "3.11", "a processor", 2, 2**34, "6.1", "never", 2**23, 2**30),
        "float32",
        Driver("works", "13.0", "580.1", (Gpu(0, "a GPU", 2**36, "9.0"), Gpu(1, None, None, None))),
        [numpy, torch, jax, mlx, tensorflow, paddle],
        Pinned("works", "jax", 0),
        {
            Cell("numpy", "torch", "cpu", "cpu"): Result("shared", memory="seen"),
            Cell("torch", "numpy", "cpu", "cpu"): Result(
                "shared", memory="not checked: no address"
            ),
            Cell("numpy", "numpy", "cpu", "cpu"): Result("itself", memory="seen"),
            Cell("torch", "torch", "cpu", "cpu"): Result(
                "crashed", "the process crashed", "report it"
            ),
            Cell("numpy", "jax", "cpu", "cuda:0"): Result("copied", "another device", "keep it"),
        },
        [Conflict(("torch", "jax"), "importing jax after torch: the process crashed", "swap them")],
        [
            ImportOrder(("numpy", "torch"), "works"),
            ImportOrder(("jax", "torch"), "crashes", "it crashed", "swap them"),
        ],
        [
            FastPath("numpy.a", "numpy", "f", "g", "failed", "the probe differs"),
            FastPath("torch.b", "torch", "f", "g", "disabled", "it is off"),
        ],
        12.0,
    )


def test_wording():
    texts = {}
    for name, exit in EXITS.items():
        task = Task(["numpy", "torch"], importing="torch", exit=exit)
        running = Task(["numpy", "torch"], exit=exit)
        texts[name] = "\n".join((task.failure, running.failure, str(exit.advice)))
    report = sample_report()
    texts["report"] = "\n".join(lines(report, Terminal()))
    kinds = {
        "problems": report.problems,
        "warnings": report.warnings,
        "notices": report.notices,
    }
    for kind, problems in kinds.items():
        texts[kind] = "\n".join(f"{one.fact}\nhint: {one.hint}" for one in problems)
    golden_text.check("doctor", texts)


def test_problems_have_a_fact_and_a_hint():
    report = sample_report()
    assert len(report.problems) == 4
    assert len(report.warnings) == 3
    assert len(report.notices) == 3
    assert all(one.fact and one.hint for one in (*report.problems, *report.warnings))
