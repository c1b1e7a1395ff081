"""What the functions return to mypy and pyright: the comments of the scripts in this folder.

pyright reads the installed frameworks. mypy takes a minute to read them, so it reads the stand-ins
of this folder, whose classes have the same names; the slow test is mypy with the frameworks.
"""

import json
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.oldest import OLDEST
from support.subprocesses import HANG_SECONDS

import tensorferry as ferry
from tensorferry._native import register

HERE = Path(__file__).parent
WITH_FRAMEWORKS = ("results.py", "decorated.py")
WITHOUT_FRAMEWORKS = ("missing.py",)

pytestmark = pytest.mark.skipif(OLDEST, reason="the checkers are among today's tools")

#: What a checker says about each line: the type that it reveals, or "error".
Findings = dict[tuple[str, int], str]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of mypy, so that it reads NumPy once."""
    return tmp_path_factory.mktemp("mypy")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has the package and NumPy only."""
    root = tmp_path_factory.mktemp("environment")
    venv.create(root, symlinks=True)
    folder = root / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    for module in (ferry, np):
        source = Path(module.__file__).parent
        (folder / source.name).symlink_to(source)
    return root / "bin/python"


def test_mypy(bare: Path, cache: Path):
    assert mypy(WITH_FRAMEWORKS, bare, cache, HERE / "standins") == expected(
        WITH_FRAMEWORKS, "mypy"
    )


@pytest.mark.slow
def test_mypy_with_the_frameworks(cache: Path):
    # SciPy has no types of its own, which mypy reports. A base class of paddle.Tensor is Any to
    # mypy, so a Paddle tensor matches the overload for sparse tensors too, and its result is Any.
    known = {
        ("results.py", line("results.py", "import scipy.sparse")): "error",
        ("results.py", line("results.py", 'reveal_type(ferry.to(p, "jax"))  # Array')): "Any",
    }
    found = mypy(WITH_FRAMEWORKS, Path(sys.executable), cache, outside_of_site_packages())
    assert found == expected(WITH_FRAMEWORKS, "mypy") | known


def test_mypy_without_frameworks(bare: Path, cache: Path):
    assert mypy(WITHOUT_FRAMEWORKS, bare, cache) == expected(WITHOUT_FRAMEWORKS, "mypy")


def test_pyright(tmp_path: Path):
    found = pyright(WITH_FRAMEWORKS, Path(sys.executable), tmp_path, outside_of_site_packages())
    assert found == expected(WITH_FRAMEWORKS, "pyright")


def test_pyright_without_frameworks(bare: Path, tmp_path: Path):
    # Only the strict mode reports the type Unknown, which the result must not have.
    found = pyright(WITHOUT_FRAMEWORKS, bare, tmp_path, mode="strict")
    assert found == expected(WITHOUT_FRAMEWORKS, "pyright")


def test_the_names_are_those_of_the_register():
    stub = Path(ferry.__file__).parent / "_framework_types" / "__init__.pyi"
    literals = re.findall(r"Name: TypeAlias = Literal\[(.*)\]", stub.read_text())
    typed = {names[0]: names for names in (re.findall('"(.+?)"', text) for text in literals)}
    assert typed == {
        row.name: [row.name, *(alias for alias in row.aliases if "sparse" not in alias)]
        for row in register()
        if row.name in typed
    }
    assert sorted(typed) == ["jax", "mlx", "numpy", "paddle", "torch"]


def expected(scripts: tuple[str, ...], checker: str) -> Findings:
    found: Findings = {}
    for script in scripts:
        for number, text in lines(script):
            comment = re.search(r"\S  # (.+?)(?:, mypy: (.+))?$", text)
            if comment is None:
                continue
            finding = (comment[2] if checker == "mypy" else None) or comment[1]
            if finding != "nothing":
                found[script, number] = finding
    return found


def line(script: str, text: str) -> int:
    return next(number for number, found in lines(script) if found.strip() == text)


def lines(script: str) -> Iterator[tuple[int, str]]:
    return enumerate((HERE / script).read_text().splitlines(), 1)


def outside_of_site_packages() -> Path | None:
    """The folder of the package, where checkers do not find it by themselves."""
    folder = Path(ferry.__file__).parent.parent
    return None if folder.name == "site-packages" else folder


def mypy(scripts: tuple[str, ...], python: Path, cache: Path, path: Path | None = None) -> Findings:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file=", "--output=json"),
            *("--python-executable", str(python), "--cache-dir", str(cache)),
            *scripts,
        ],
        cwd=HERE,
        env={"PATH": "", **({"MYPYPATH": str(path)} if path else {})},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    said = [json.loads(text) for text in done.stdout.splitlines()]
    return findings((one["file"], one["line"], one["severity"], one["message"]) for one in said)


def pyright(
    scripts: tuple[str, ...],
    python: Path,
    folder: Path,
    path: Path | None = None,
    mode: str = "standard",
) -> Findings:
    for script in scripts:
        shutil.copy(HERE / script, folder)
    settings = {
        "include": scripts,
        "typeCheckingMode": mode,
        "extraPaths": [str(path)] if path else [],
        # The scripts are expressions on purpose.
        "reportUnusedExpression": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pyright", "--project", str(folder)),
            *("--pythonpath", str(python), "--outputjson"),
        ],
        # Neither a newer version is looked up nor one of the system's Node.js used.
        env={"PATH": "", "HOME": str(folder), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return findings(
        (one["file"], one["range"]["start"]["line"] + 1, one["severity"], one["message"])
        for one in json.loads(done.stdout)["generalDiagnostics"]
    )


def findings(said: Iterator[tuple[str, int, str, str]]) -> Findings:
    found: Findings = {}
    for file, number, severity, message in said:
        place = (Path(file).name, number)
        revealed = re.match(r'Revealed type is "(.*)"$|Type of ".*" is "(.*)"$', message, re.S)
        if severity == "error":
            found[place] = "error"
        elif revealed:
            found[place] = short(revealed[1] or revealed[2])
    return found


def short(name: str) -> str:
    """A type without modules. pyright calls the Any of an ambiguous call Unknown."""
    return re.sub(r"\bUnknown\b", "Any", re.sub(r"\b(?:\w+\.)+(?=\w)", "", name))
