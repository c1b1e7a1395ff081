"""The doctor's table of tested versions: it follows the locks, and what lies outside is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tensorferry._tools.doctor.versions import TESTED, _release, warning
from tensorferry.framework_register import FRAMEWORKS, TENSOR_FRAMEWORKS

ROOT = Path(__file__).parents[2]


def pins(name: str) -> dict[str, str]:
    """The versions of frameworks in a file of requirements."""
    text = (ROOT / "requirements" / name).read_text()
    found = dict(re.findall(r"^([a-z0-9-]+)(?:\[\w+\])?==([\w.]+)", text, re.MULTILINE))
    return {
        framework: found[distribution]
        for framework in TENSOR_FRAMEWORKS
        for distribution in FRAMEWORKS[framework].distributions
        if distribution in found
    }


def test_the_versions_are_those_of_the_locks():
    oldest, newest = pins("oldest.in"), pins("newest.lock")
    assert oldest.keys() == {*TENSOR_FRAMEWORKS} - {"cupy"}
    for name, version in pins("test.lock").items():
        newest[name] = max(newest[name], version, key=_release)
    assert {name: versions for name, versions in TESTED.items() if name != "cupy"} == {
        name: (oldest[name], newest[name]) for name in oldest
    }


def test_the_version_of_cupy_is_that_of_a_gpu_record():
    oldest, newest = TESTED["cupy"]
    assert oldest == newest  # one version was tested
    records = [path.read_text() for path in (ROOT / "benches/records").glob("*nvidia*.json")]
    assert any(f'"cupy": "{newest}"' in text for text in records)


@pytest.mark.parametrize(
    ("version", "fact"),
    [
        ("2.5.1", "PyTorch 2.5.1 is older than 2.6.0, the oldest supported version"),
        ("2.5.1+cpu", "PyTorch 2.5.1+cpu is older than 2.6.0, the oldest supported version"),
        ("2.6.0rc1", None),
        ("2.6", None),
        ("2.9.1+cu128", None),
        ("2.15.7", None),
        ("2.16.0", "PyTorch 2.16.0 is newer than 2.15.0, the newest tested version"),
        ("3.0", "PyTorch 3.0 is newer than 2.15.0, the newest tested version"),
        ("unknown", None),
        (None, None),
    ],
)
def test_versions_outside_are_named(version, fact, monkeypatch):
    monkeypatch.setitem(TESTED, "torch", ("2.6.0", "2.15.0"))
    found = warning("torch", version)
    assert (found.fact if found else None) == fact
    assert found is None or found.hint
