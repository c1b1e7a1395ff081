"""The guides for extensions in C, C++ and Cython: their code is built, their sessions run."""

from __future__ import annotations

import doctest
import importlib.util
import re
import sys
from pathlib import Path

import pytest
from support.compilers import build
from support.oldest import OLDEST

GUIDES = Path(__file__).parent.parent.parent / "docs" / "guides"
# The page, the kind of its blocks, the module that they are, and how many blocks that takes.
PAGES = {
    "extensions-c": ("c", "means.c", 1),
    "extensions-pybind11": ("cpp", "sums.cpp", 2),
    "extensions-cython": ("cython", "norms.pyx", 2),
}

pytestmark = pytest.mark.skipif(OLDEST, reason="the pages are about frameworks of today")


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.M | re.S)


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_guide_is_built_and_its_session_runs(page: str, tmp_path: Path) -> None:
    kind, file, count = PAGES[page]
    text = (GUIDES / f"{page}.md").read_text()
    source = tmp_path / file
    source.write_text("\n".join(blocks(text, kind)[:count]))
    built = build(source, source.stem, tmp_path)
    spec = importlib.util.spec_from_file_location(source.stem, built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[source.stem] = module
    try:
        session = doctest.DocTestParser().get_doctest(
            "\n".join(blocks(text, "pycon")), {}, page, None, 0
        )
        assert session.examples
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        shown: list[str] = []
        runner.run(session, out=shown.append)
        assert runner.failures == 0, "".join(shown)
    finally:
        del sys.modules[source.stem]
