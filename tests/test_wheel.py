"""The wheel: what its metadata say, which installers take it, and on which C libraries it loads."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from support.oldest import OLDEST

ROOT = Path(__file__).parent.parent
needs_tools = pytest.mark.skipif(OLDEST, reason="the tools are not beside the oldest frameworks")


@pytest.fixture(scope="module")
def installed() -> metadata.PackageMetadata:
    """The metadata of the installed wheel, which is the one that users get."""
    return metadata.metadata("tensorferry")


# The metadata.


def test_every_framework_is_an_extra(installed):
    """Each brings its framework at the oldest version that is tested, or a later one.

    CuPy has none: it has a package for each version of CUDA.
    """
    oldest = (ROOT / "requirements" / "oldest.in").read_text()
    pins = dict(re.findall(r"^([\w-]+(?:\[\w+\])?)==(\S+)", oldest, re.M))
    # The tests run without a GPU, and the extra is for both.
    pins["tensorflow"] = pins.pop("tensorflow-cpu")
    packages = {
        "torch": "torch",
        "jax": "jax",
        "tensorflow": "tensorflow",
        "paddle": "paddlepaddle",
        "mlx": "mlx[cpu]",
    }
    assert set(installed.get_all("Provides-Extra")) == {*packages, "arrow", "dask", "ray"}
    assert sorted(required(installed, *packages)) == sorted(
        f"{package}>={pins[package]} ; extra == '{extra}'" for extra, package in packages.items()
    )


def test_libraries_of_tables_are_an_extra_that_the_tests_install(installed):
    tables = {line.partition(" ")[0] for line in required(installed, "arrow")}
    assert tables == {"pyarrow", "polars", "pandas", "duckdb", "datasets"}
    for name in ("test", "oldest"):
        lines = (ROOT / "requirements" / f"{name}.in").read_text()
        assert tables <= set(re.findall(r"^[\w-]+", lines, re.M))


@pytest.mark.parametrize(("extra", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_engines_are_extras_at_the_version_that_is_tested(installed, extra, package):
    lock = (ROOT / "requirements" / "distributed.lock").read_text()
    (version,) = re.findall(rf"^{package}==(\S+)", lock, re.M)
    assert required(installed, extra) == [f"{package}>={version} ; extra == '{extra}'"]


def required(installed: metadata.PackageMetadata, *extras: str) -> list[str]:
    """What some of the extras require."""
    lines = [line.replace('"', "'") for line in installed.get_all("Requires-Dist")]
    return [line for line in lines if line.endswith(tuple(f"extra == '{name}'" for name in extras))]


def test_no_framework_is_a_dependency(installed):
    dependencies = [line for line in installed.get_all("Requires-Dist") if "extra ==" not in line]
    names = {re.match(r"[\w-]+", line)[0] for line in dependencies}
    assert names == {"numpy", "ml-dtypes", "array-api-compat"}


def test_classifiers_name_the_pythons_that_are_tested(installed):
    named = {
        line.rpartition(" ")[2]
        for line in installed.get_all("Classifier")
        if re.fullmatch(r"Programming Language :: Python :: \d\.\d+", line)
    }
    release = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    matrix = re.search(r"^ +python: \[(.*)\]$", release, re.M)[1]
    assert named == set(re.findall(r'"([\d.]+)"', matrix))
    assert installed["Requires-Python"] == f">={min(named)}"


def test_the_description_is_the_readme(installed):
    assert installed["Description-Content-Type"].startswith("text/markdown")
    text = metadata.distribution("tensorferry").read_text("METADATA")
    assert text.partition("\n\n")[2].strip() == (ROOT / "README.md").read_text().strip()
    assert installed["License-Expression"] == "Apache-2.0"


# The name of the wheel.


@needs_tools
def test_python_without_the_gil_does_not_take_the_wheel():
    """Installers look for a tag of theirs, and have none with abi3 there."""
    from packaging import tags

    (tag,) = re.findall(
        r"^Tag: (.*)$", metadata.distribution("tensorferry").read_text("WHEEL"), re.M
    )
    interpreter, abi, platform = tag.split("-")
    assert (interpreter, abi) == ("cp311", "abi3")
    assert platform.startswith("manylinux_2_28_")
    for minor in (13, 14):
        version, platforms = (3, minor), [platform]
        for gil in (f"cp3{minor}", f"cp3{minor}t"):
            accepted = set(map(str, tags.cpython_tags(version, [gil], platforms)))
            assert (tag in accepted) == (not gil.endswith("t")), gil


# The symbols of its modules.


def check(folder: Path, source: str, *options: str, platform: str = "manylinux_2_28") -> list[str]:
    """What the lint says of a wheel with one module, compiled here."""
    (folder / "module.c").write_text(source)
    command = ["cc", "-shared", "-fPIC", "-o", "module.so", "module.c", *options]
    subprocess.run(command, cwd=folder, check=True)
    wheel = folder / f"example-1.0-cp311-abi3-{platform}_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(folder / "module.so", "example/module.so")
    lint = [sys.executable, "-B", ROOT / "lints" / "wheel_symbols.py", wheel]
    done = subprocess.run(lint, capture_output=True, text=True, check=False)
    assert not done.stderr
    assert done.returncode == bool(done.stdout)
    return done.stdout.splitlines()


# Uses the unwinder of libgcc, as every Rust module does.
UNWINDS = "void _Unwind_Resume(void *); void unwind(void) { _Unwind_Resume(0); }\n"
LIBGCC = "-lgcc_s"


@needs_tools
@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("", None),
        ("void PyErr_Clear(void); void f(void) { PyErr_Clear(); }", None),
        ("extern int nowhere(void) __attribute__((weak)); int f(void) { return nowhere(); }", None),
        ("int nowhere(void); int f(void) { return nowhere(); }", "nowhere has no version"),
        ("int dlclose(void *); int f(void) { return dlclose(0); }", "dlclose is of GLIBC_2.34"),
    ],
    ids=["fits", "python", "weak", "unversioned", "too young"],
)
def test_a_symbol_that_an_old_c_library_lacks_is_found(tmp_path, source, problem):
    found = check(tmp_path, UNWINDS + source, LIBGCC)
    assert len(found) == (problem is not None)
    assert problem is None or found[0].startswith(f"example/module.so: {problem}")


@needs_tools
def test_an_unwinder_of_the_module_itself_is_found(tmp_path):
    (found,) = check(tmp_path, '#include <stdio.h>\nvoid f(void) { puts("f"); }')
    assert "the unwinder is part of the module" in found


@needs_tools
def test_a_wheel_for_this_machine_alone_is_refused(tmp_path):
    (found,) = check(tmp_path, UNWINDS, LIBGCC, platform="linux")
    assert "promises no manylinux version" in found
