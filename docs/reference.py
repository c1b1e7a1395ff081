"""Writes the pages of the site that the code itself can write: the reference and the command line.

docs/build.py adds them to the others. Every name in `tensorferry.__all__` belongs to a topic, and
each topic is a page. Signatures and types are those of the stubs and of the code, texts are the
docstrings.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.resources
import inspect
import io
import os
import re
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import tensorferry as ferry
from tensorferry._tools import cli

# A topic: its page, its title, what it is about, and its names. Errors find their page themselves.
TOPICS = (
    ("to", "Carrying tensors", "From any framework to any other.", ("to", "to_async", "Job")),
    (
        "feeding",
        "Feeding",
        "Batches of any loader, converted before the training step asks for them.",
        ("feed", "Feed", "FeedStats"),
    ),
    (
        "plan",
        "Plans and traces",
        "What will happen, and what did.",
        ("plan", "Plan", "trace", "Trip"),
    ),
    (
        "functions",
        "Functions for every framework",
        "Code that does not care whose tensor it gets.",
        ("array_namespace", "agnostic", "via"),
    ),
    (
        "files",
        "Files",
        "Tensors in files, mapped and checked.",
        ("load", "load_raw", "save", "inspect", "File", "FileTensor"),
    ),
    (
        "processes",
        "Between processes",
        "The same memory, in another process.",
        ("publish", "attach", "empty_shared", "Ticket"),
    ),
    (
        "memory",
        "Memory",
        "What tensorferry holds, and how to get it back.",
        ("empty_aligned", "memory_stats", "empty_cache", "MemoryStats"),
    ),
    (
        "frameworks",
        "Frameworks",
        "Which are here, and how to add your own.",
        (
            *("frameworks", "FrameworkInfo", "register_framework", "register_container"),
            *("ExportedTensor", "__version__"),
        ),
    ),
    ("extensions", "Extensions", "For modules in C, C++ and Cython.", ("get_include",)),
    ("sparse", "Sparse tensors", "Formats, and dense tensors of sparse ones.", ("sparse",)),
    ("pickling", "Pickling", "Pickles with out-of-band buffers.", ("pickling",)),
    ("arrow", "Tables", "Columns and tables of Arrow.", ("arrow",)),
    ("dask", "Dask", "Tensors through Dask.", ("dask",)),
    ("ray", "Ray", "Tensors through Ray.", ("ray",)),
    ("tf1", "TensorFlow 1.x", "Tensors in and out of graphs.", ("tf1",)),
)
ERRORS = (
    "errors",
    "Errors",
    "Each is a FerryError, and also the builtin that one would expect. The first line of a message "
    "is a fact; the second says what to do, and `hint` has it.",
)

COMMAND_LINE = """\
```sh
tensorferry doctor                                      # what works here
tensorferry plan torch jax --shape 1024,1024            # what a conversion would do
tensorferry inspect model.safetensors                   # what is in a file
tensorferry convert x.npy x.safetensors                 # another format
tensorferry bench --from numpy,torch --output results   # what conversions cost here
tensorferry publish x.npy                               # a ticket for other processes
source <(tensorferry completion bash)                   # or zsh, or fish
```

- `doctor` imports each framework in a process of its own, so one that crashes or hangs is reported
  and does no harm. It carries a tensor between every pair, and checks the values. It also lists the
  [fast paths](../how-it-works/fast-paths.md) that are in use, and why one is not.
- `bench` checks every result bit by bit, and writes JSON and one HTML page that needs no network.
  `bench --compare results/tensorferry-bench.json` measures again, and shows what changed.
- All commands take `--help`, `--debug` and, but for `completion`, `--json`.

| exit code | meaning |
|---|---|
| 0 | success; `publish` also ends so on Ctrl-C |
| 1 | a check failed |
| 2 | invalid usage |
| 3 | the command failed |
| 130 | interrupted |

Below is what `tensorferry --help` and each command's `--help` print."""

SECTION = re.compile(r"^(Args|Returns|Raises):$")
STUB = {
    node.name: node
    for node in ast.parse(
        importlib.resources.files("tensorferry").joinpath("_native.pyi").read_text()
    ).body
    if isinstance(node, ast.FunctionDef | ast.ClassDef)
}


# The pages.


def topics() -> dict[tuple[str, str, str], list[str]]:
    """The names of each topic; every public name is in one of them."""
    public = list(ferry.__all__)
    found = {
        (page, title, about): [name for name in names if name in public]
        for page, title, about, names in TOPICS
    }
    errors = [name for name in public if is_error(getattr(ferry, name))]
    found[ERRORS] = sorted(errors, key=lambda name: (name != "FerryError", name))
    homeless = set(public) - {name for names in found.values() for name in names}
    if homeless:
        raise LookupError(f"no topic of docs/reference.py has {sorted(homeless)}: add them to one")
    return {topic: names for topic, names in found.items() if names}


def pages() -> dict[str, str]:
    """The text of each page, by its name."""
    made = {}
    for (page, title, about), names in topics().items():
        parts = [f"# {title}", about, *(part for name in names for part in entry(name))]
        made[page] = "\n\n".join(parts) + "\n"
    return {**made, "command-line": command_line()}


def entry(name: str) -> Iterator[str]:
    """What there is to say about one public name."""
    thing = getattr(ferry, name)
    yield f"## {name}" if not name.startswith("_") else f"## `{name}`"
    if isinstance(thing, str):
        yield f'`ferry.{name}` is the version, such as `"{thing}"`.'
    elif isinstance(thing, ModuleType):
        yield rendered(thing)
        for inner in thing.__all__:
            yield from described(f"{name}.{inner}", getattr(thing, inner), "###")
    else:
        yield from described(name, thing, "")


def described(name: str, thing: Any, heading: str) -> Iterator[str]:
    """A function or a class, under a heading if it needs one."""
    if heading:
        yield f"{heading} {name}"
    if not isinstance(thing, type):
        yield code(f"ferry.{name}{signature(thing)}")
        yield rendered(thing)
    else:
        yield rendered(thing)
        yield from members(name, thing)


def members(name: str, kind: type) -> Iterator[str]:
    """The properties of a class as a table, then its methods."""
    public = {key: value for key, value in vars(kind).items() if not key.startswith("_")}
    stub = {node.name: node for node in body(kind) if isinstance(node, ast.FunctionDef)}
    properties = {key: value for key, value in public.items() if not callable(value)}
    order = [key for key in stub if key in properties] or sorted(properties)
    if order:
        rows = [
            f"| `{key}` | {types(stub.get(key), properties[key])} | {one_line(properties[key])} |"
            for key in order
        ]
        yield "\n".join(["| property | type | |", "|---|---|---|", *rows])
    methods = [key for key in (stub or public) if key in public and key not in properties]
    for key in methods:
        yield f"**{key}**"
        yield code(f"{of_one(name)}.{key}{signature(public[key])}")
        yield rendered(public[key])


def command_line() -> str:
    """The help of the program and of each of its commands."""
    parts = ["# Command line", COMMAND_LINE]
    parts += ["## tensorferry", code(help_of(), "text")]
    for module in cli.COMMANDS:
        name = module.__name__.rpartition(".")[2]
        parts += [f"## {name}", code(help_of(name), "text")]
    return "\n\n".join(parts) + "\n"


def help_of(*command: str) -> str:
    """What a command's `--help` prints."""
    before = dict(os.environ)
    os.environ.update(COLUMNS="88", NO_COLOR="1")
    try:
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            if cli.main([*command, "--help"]) != 0:
                raise RuntimeError(f"tensorferry {' '.join(command)} --help fails")
    finally:
        os.environ.clear()
        os.environ.update(before)
    return shown.getvalue().rstrip()


# Their parts.


def is_error(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Exception)


def body(kind: type) -> list[ast.stmt]:
    node = STUB.get(kind.__name__)
    return node.body if isinstance(node, ast.ClassDef) else []


def code(text: str, language: str = "python") -> str:
    return f"```{language}\n{text}\n```"


def types(node: ast.FunctionDef | None, thing: Any) -> str:
    """The type of a property, from the stub or from its function."""
    if node is not None and node.returns is not None:
        written = ast.unparse(node.returns)
    elif isinstance(thing, property):
        written = annotation_text(inspect.signature(thing.fget).return_annotation)
    else:
        return ""
    return "`" + written.replace("|", "or") + "`"


def one_line(thing: Any) -> str:
    return " ".join(said(thing).split())


def stub_of(thing: Any) -> ast.FunctionDef | None:
    """The stub of a native function or method; of overloads the last, which takes any tensor."""
    where = getattr(thing, "__objclass__", None)
    found = [node for node in body(where) if isinstance(node, ast.FunctionDef)] if where else []
    for node in found:
        if node.name == thing.__name__:
            return node
    native = inspect.isbuiltin(thing) and STUB.get(thing.__name__)
    return native if isinstance(native, ast.FunctionDef) else None


def signature(thing: Any) -> str:
    """The arguments with their types, one to a line where they are many."""
    stub = stub_of(thing)
    if stub is not None:
        given = [part for part in arguments(stub.args) if part != "self"]
        result = f" -> {ast.unparse(stub.returns)}" if stub.returns else ""
    else:
        found = inspect.signature(thing)
        given = [annotation_text(part) for part in found.parameters.values() if part.name != "self"]
        given = with_star(found, given)
        returns = found.return_annotation
        shown = returns if isinstance(returns, str) else inspect.formatannotation(returns)
        result = "" if returns is inspect.Signature.empty else f" -> {annotation_text(shown)}"
    short = f"({', '.join(given)}){result}"
    if len(short) <= 70:
        return short
    return "(\n" + "".join(f"    {part},\n" for part in given) + f"){result}"


def annotation_text(written: object) -> str:
    """A type as one would write it, without the modules that it comes from."""
    text = re.sub(
        r"\b(collections\.abc|typing|tensorferry(\.\w+)*|os)\.(?=[A-Z])", "", str(written)
    )
    text = re.sub(r"^'(.*)'$|(?<=: )'([^']*)'", r"\1\2", text)  # annotations kept as text
    return re.sub(r"\bmodule\b", "ModuleType", text)


def of_one(kind: str) -> str:
    """What one would call an object of a class: exported_tensor for ExportedTensor."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.rpartition(".")[2]).lower()


def arguments(given: ast.arguments) -> list[str]:
    """The arguments of a stub, each as it is written."""
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    written = [argument(*pair) for pair in zip(plain, defaults, strict=True)]
    if given.vararg:
        written.append("*" + argument(given.vararg, None))
    elif given.kwonlyargs:
        written.append("*")
    written += [argument(*pair) for pair in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return written + (["**" + argument(given.kwarg, None)] if given.kwarg else [])


def argument(part: ast.arg, default: ast.expr | None) -> str:
    text = part.arg + (f": {ast.unparse(part.annotation)}" if part.annotation else "")
    return text + (f" = {ast.unparse(default)}" if default else "")


def with_star(described: inspect.Signature, given: list[str]) -> list[str]:
    """Puts the star in front of the first argument that goes by its name alone."""
    kinds = [part.kind for part in described.parameters.values() if part.name != "self"]
    if inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.KEYWORD_ONLY not in kinds:
        return given
    place = kinds.index(inspect.Parameter.KEYWORD_ONLY)
    return [*given[:place], "*", *given[place:]]


def said(thing: Any) -> str:
    return inspect.getdoc(thing) or ""


def rendered(thing: Any) -> str:
    """A docstring as Markdown: Args and Raises become lists, Example a block of code."""
    text, _, example = said(thing).partition("\nExample:\n")
    lines: list[str] = []
    section = None
    for line in text.splitlines():
        found = SECTION.match(line)
        if found:
            section = found[1]
            lines += ["", f"**{section}**", ""]
        elif section is None or not line.startswith(" "):
            section = section if not line else None
            lines.append(line)
        elif section == "Returns":
            lines.append(line.strip())
        else:
            item = re.match(r"^    (\S[^:]*): (.*)$", line)
            names = item and ", ".join(f"`{name.strip()}`" for name in item[1].split(","))
            lines.append(f"- {names}: {item[2]}" if item else f"  {line.strip()}")
    if example:
        lines += ["", "**Example**", "", code(textwrap.dedent(example).rstrip(), "pycon")]
    return "\n".join(lines)
