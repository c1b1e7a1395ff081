"""Public functions and classes say what they take, give and raise, with an example that runs."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

import pytest
from support import subprocesses

import tensorferry as ferry

# Functions that raise nothing of their own.
NO_ERRORS = {
    *("trace", "memory_stats", "empty_cache", "frameworks", "sparse.is_sparse"),
    *("pickling.enable", "pickling.disable", "pickling.dispatch_table"),
    "get_include",
}


def public() -> dict[str, Any]:
    """Functions and classes by their public names; errors are described by one sentence each."""
    found = {name: getattr(ferry, name) for name in ferry.__all__ if name != "__version__"}
    for name in [name for name, thing in found.items() if inspect.ismodule(thing)]:
        module = found.pop(name)
        found |= {f"{name}.{inner}": getattr(module, inner) for inner in module.__all__}
    return {
        name: thing
        for name, thing in found.items()
        if not (isinstance(thing, type) and issubclass(thing, Exception))
    }


PUBLIC = public()
# These need the environment of Ray and Dask: tests/distributed runs their examples.
DISTRIBUTED = ("dask.", "ray.")
EXAMPLES = sorted(name for name in PUBLIC if not name.startswith(DISTRIBUTED))


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[int, str]]:
    """How many examples each docstring has, and what failed."""
    # Older versions of TensorFlow write to stderr whatever their log level is.
    done = subprocesses.attempt_program("front/docstring_examples.py", *EXAMPLES)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, tuple[int, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs(outcomes: dict[str, tuple[int, str]], name: str) -> None:
    attempted, failed = outcomes[name]
    assert attempted > 0, "there is no example"
    assert failed == ""


@pytest.mark.parametrize("name", [name for name in EXAMPLES if not isinstance(PUBLIC[name], type)])
def test_functions_say_what_they_take_give_and_raise(name: str) -> None:
    doc = inspect.getdoc(PUBLIC[name]) or ""
    sections = re.findall(r"^(\w+):$", doc, re.MULTILINE)
    parameters = inspect.signature(PUBLIC[name]).parameters
    expected = ["Args"] if parameters else []
    expected += ["Returns"] if name in NO_ERRORS else ["Returns", "Raises"]
    assert sections == [*expected, "Example"]
    described = doc.partition("\nArgs:\n")[2].partition("\nReturns:\n")[0]
    words = set(
        re.findall(r"\w+", " ".join(re.findall(r"^    (\S[^:]*):", described, re.MULTILINE)))
    )
    assert set(parameters) <= words


@pytest.mark.parametrize("name", [name for name in ferry.__all__ if name.endswith("Error")])
def test_errors_have_a_sentence(name: str) -> None:
    assert (getattr(ferry, name).__doc__ or "").endswith(".")
