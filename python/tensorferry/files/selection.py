"""Which tensors of a file a call names: by names, and by patterns."""

from collections.abc import Iterable
from typing import Any

from tensorferry._native import File, InvalidArgumentError
from tensorferry.files.trees import value_names

# Characters that make a name a pattern of `fnmatch`.
_PATTERN_CHARACTERS = "*?["

# A hint lists all names of a file that has no more than these.
_MAX_LISTED_NAMES = 5


def select_names(file: File, names: Any) -> list[str]:
    """The names of the tensors to load, each once, in the order of the request.

    A name that exists is never taken for a pattern.
    """
    if names is None:
        return [tensor.name for tensor in file.tensors]
    requested = [names] if isinstance(names, str) or not isinstance(names, Iterable) else names
    known = _known_names(file)
    chosen: dict[str, None] = {}
    for text in requested:
        if not isinstance(text, str):
            raise InvalidArgumentError(
                f"names={names!r} is not a list of names"
                "\nhint: pass a name, a pattern or a list of them"
            )
        chosen |= dict.fromkeys(_matching(file, text, known))
    return list(chosen)


def _known_names(file: File) -> dict[str, None]:
    """All names, including those of entries that cannot be loaded, which then say why."""
    return dict.fromkeys(
        [tensor.name for tensor in file.tensors] + [name for name, _ in file.skipped]
    )


def _is_pattern(text: str) -> bool:
    return any(character in text for character in _PATTERN_CHARACTERS)


def _matching(file: File, text: str, known: dict[str, None]) -> list[str]:
    if text in known:
        return [text]
    found: list[str] = []
    if _is_pattern(text):
        from fnmatch import fnmatchcase  # deferred: it imports `re`

        found = [name for name in known if fnmatchcase(name, text)]
    if not found:
        what = "no tensor matches" if _is_pattern(text) else "no tensor is named"
        raise InvalidArgumentError(
            f"{file.path}: {what} {text!r}\nhint: {_suggest(file, text, known)}"
        )
    return found


def _suggest(file: File, text: str, known: dict[str, None]) -> str:
    """Advice for a name that no tensor of the file has."""
    if file._tree is not None and text in value_names(file._tree, known, str(file.path)):
        return "it is a number or text of the tree: pass nested=True instead of names"
    from difflib import get_close_matches  # deferred: only errors need it

    close = get_close_matches(text, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    if 0 < len(known) <= _MAX_LISTED_NAMES:
        return f"the file has {', '.join(map(repr, known))}"
    return "list the tensors with ferry.inspect(path)"
