"""Uses the framework `plugged`, which a test has put on the path with its entry point."""

from __future__ import annotations

import array
import importlib
import sys
import warnings

from support.cases import case, main
from support.errors import raised

import tensorferry as ferry


@case
def by_name() -> None:
    """Names the framework, which imports its module."""
    assert "plugged" not in sys.modules
    import numpy as np

    x = ferry.to(np.arange(3.0), "plugged")
    assert type(x).__module__ == "plugged"
    assert x.values.tolist() == [0, 1, 2]
    assert ferry.to(x, "numpy").tolist() == [0, 1, 2]
    assert "plugged" in [info.name for info in ferry.frameworks()]


@case
def by_tensor() -> None:
    """Reads a tensor of the framework, whose name was not used before."""
    plugged = importlib.import_module("plugged")
    import numpy as np

    assert ferry.to(plugged.Array(np.arange(3.0)), "numpy").tolist() == [0, 1, 2]


@case
def that_fails() -> None:
    """The module cannot be imported: one warning names it, and all else works."""
    assert ferry.to(array.array("f", [1]), "numpy").tolist() == [1], "others go on"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        error = raised(ferry.InvalidArgumentError, ferry.to, array.array("f", [1]), "plugged")
    assert "numpy" in (error.hint or "")
    [warning] = caught
    text = str(warning.message)
    assert warning.category is RuntimeWarning
    assert "plugged" in text, text
    assert "tensorferry_has_no_such_module" in text, text
    tree = ferry.to({"a": object, "b": array.array("f", [1])}, "numpy")
    assert tree["b"].tolist() == [1]


if __name__ == "__main__":
    main()
