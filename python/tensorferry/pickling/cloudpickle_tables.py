"""Inserts the dispatch table into the picklers of cloudpickle and of Ray's copy of it.

Each of these modules has a class `CloudPickler` whose `dispatch_table` is a ChainMap: its own
entries, then those of `copyreg`. The table goes between them, so that their own entries keep their
priority. `copyreg` itself stays as it is: an entry there would change `torch.save`, `copy.copy` and
pickles of protocol 4.
"""

import importlib.abc
import importlib.machinery
import sys
from collections import ChainMap
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from tensorferry._native import _DispatchTable

#: The modules that define a class CloudPickler.
_MODULES = (
    "cloudpickle.cloudpickle",
    "joblib.externals.cloudpickle.cloudpickle",
    "ray.cloudpickle.cloudpickle",
)

_table = _DispatchTable()


def enable() -> None:
    """Makes cloudpickle, Ray and joblib pickle tensors as `dumps` does, in this process.

    Modules that are imported later are included. Only pickles with out-of-band buffers profit;
    in others the bytes are in the stream. `pickle.dumps`, `torch.save` and `copy.copy` do not
    change. The reader needs tensorferry too, but need not call this function.

    Returns:
        None. A second call changes nothing.

    Example:
        >>> ferry.pickling.enable()
        >>> ferry.pickling.disable()
    """
    for name in _MODULES:
        if name in sys.modules:
            _insert(sys.modules[name])
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def disable() -> None:
    """Undoes `enable`. Pickles that were written meanwhile can still be loaded.

    Returns:
        None. A second call changes nothing.

    Example:
        >>> ferry.pickling.disable()
    """
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    for name in _MODULES:
        maps = _maps(sys.modules.get(name))
        maps[:] = [each for each in maps if each is not _table]


def _maps(module: ModuleType | None) -> list[Any]:
    """The maps of the dispatch table of a module's CloudPickler."""
    table = getattr(getattr(module, "CloudPickler", None), "dispatch_table", None)
    return table.maps if isinstance(table, ChainMap) else []


def _insert(module: ModuleType) -> None:
    maps = _maps(module)
    if maps and not any(each is _table for each in maps):
        maps.insert(1, _table)


class _Finder(importlib.abc.MetaPathFinder):
    """Inserts the table when one of the modules is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _MODULES:
            return None
        others = (finder for finder in sys.meta_path if not isinstance(finder, _Finder))
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Executes a module with its own loader, and then inserts the table."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _insert(module)

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # a copy of the loader that is not complete
            raise AttributeError(name)
        return getattr(self._loader, name)
