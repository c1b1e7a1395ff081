"""The project's own lints, run on crates and trees whose problems are known."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "tests" / "lints"


def run_lint(name: str, *arguments: str | Path, folder: Path = FIXTURES) -> tuple[int, list[str]]:
    command = [sys.executable, "-B", str(ROOT / "lints" / name), *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def test_cycles_are_found_through_re_exports_parents_and_globs():
    api, engine = "cyclic_crate/src/api.rs", "cyclic_crate/src/engine.rs"
    parent, child = "cyclic_crate/src/parent.rs", "cyclic_crate/src/parent/child.rs"
    first, second, third = (f"cyclic_crate/src/ring/{n}.rs" for n in ("first", "second", "third"))
    assert run_lint("module_cycles.py", "cyclic_crate") == (
        1,
        [
            f"cyclic_crate: 2 files import each other: {api}, {engine}",
            f"  {api}:1 names crate::Engine ({engine})",
            f"  {engine}:5 names crate::api::start ({api})",
            f"cyclic_crate: 2 files import each other: {child}, {parent}",
            f"  {child}:1 names super::Shared ({parent})",
            f"  {parent}:6 names child::run ({child})",
            f"cyclic_crate: 3 files import each other: {first}, {second}, {third}",
            f"  {first}:8 names next::go ({second})",
            f"  {second}:1 names super::third::* ({third})",
            f"  {third}:3 names crate::ring::first::Kind ({first})",
            "3 import cycles: move what both sides need into a file of its own",
        ],
    )


def test_tests_comments_strings_and_declarations_are_not_dependencies():
    assert run_lint("module_cycles.py", "acyclic_crate") == (0, [])


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("fmt.rs", ["text.rs: line 3 names crate::text::quote"]),
        ("text.rs", []),
        ("units.rs", []),
        ("shapes/mod.rs", []),
        ("shapes/shape.rs", ["units.rs: line 1 names crate::units::Metres"]),
        (
            "shapes/circle.rs",
            [
                "shapes/shape.rs: line 1 names super::Shape",
                "units.rs: line 2 names crate::units::Metres",
            ],
        ),
    ],
)
def test_edges_of_a_file_lead_to_the_files_that_define_the_items(file, expected):
    source = "acyclic_crate/src"
    arguments = ("acyclic_crate", "--edges", f"{source}/{file}")
    expected = [f"{source}/{line}" for line in expected]
    assert run_lint("module_cycles.py", *arguments) == (0, expected)


def test_a_folder_that_is_not_a_crate_is_refused(tmp_path):
    command = [sys.executable, "-B", str(ROOT / "lints" / "module_cycles.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "has no src/lib.rs" in done.stderr


WORDS = """
[[words]]
words = ["desk", "let_go"]
use = "transfer scheduler"
allowed = ["desk_lamp"]

[[words]]
words = ["most"]
use = "a noun and a unit"
kinds = ["constant"]

[[exception]]
name = "Desk"
file = "python/legacy.py"
reason = "a test"
"""

RUST = """
mod desk;
pub struct FrontDesk { desk: u8 }
pub const MOST: usize = 1;
const fn at_most<const MOST: usize>(_: *const desk) {}
fn let_go_of() {}
fn desktop(desk_lamp: u8) { let desk = 1; }
fn desk_lamp() {}
// fn desk() {}
#[test]
fn a_desk_is_a_desk() {}
#[cfg(test)]
fn helper_desk() {}
"""

# not a program: input of a lint
PYTHON = """
MOST = desk = 1

class Desk:
    MOST_BYTES: int = 2

    def let_go(self):
        pass

def test_of_the_desk():
    pass
"""


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_discouraged_names_are_refused_by_kind_and_word(tmp_path):
    write_tree(
        tmp_path,
        {
            "words.toml": WORDS,
            "crates/core/src/lib.rs": RUST,
            "python/desk/__init__.py": "",
            "python/legacy.py": PYTHON,
        },
    )
    scheduler, noun = "use transfer scheduler", "use a noun and a unit"
    expected = [
        f"crates/core/src/lib.rs:2: module `desk` uses the discouraged word `desk`: {scheduler}",
        f"crates/core/src/lib.rs:3: type `FrontDesk` uses the discouraged word `desk`: {scheduler}",
        f"crates/core/src/lib.rs:4: constant `MOST` uses the discouraged word `most`: {noun}",
        f"crates/core/src/lib.rs:6: function `let_go_of` uses the discouraged word `let_go`: "
        f"{scheduler}",
        f"crates/core/src/lib.rs:13: function `helper_desk` uses the discouraged word `desk`: "
        f"{scheduler}",
        f"python/desk:1: module `desk` uses the discouraged word `desk`: {scheduler}",
        f"python/legacy.py:2: constant `MOST` uses the discouraged word `most`: {noun}",
        f"python/legacy.py:5: constant `MOST_BYTES` uses the discouraged word `most`: {noun}",
        f"python/legacy.py:7: function `let_go` uses the discouraged word `let_go`: {scheduler}",
    ]
    status, lines = run_lint("discouraged_names.py", ".", "--words", "words.toml", folder=tmp_path)
    assert (status, sorted(lines[:-1])) == (1, sorted(expected))
    assert lines[-1] == "9 problems; the words are in words.toml"


def test_an_exception_that_matches_nothing_is_a_problem(tmp_path):
    # not a program: input of a lint
    write_tree(tmp_path, {"words.toml": WORDS, "python/legacy.py": "class Table:\n    pass\n"})
    assert run_lint("discouraged_names.py", ".", "--words", "words.toml", folder=tmp_path) == (
        1,
        [
            "words.toml: the exception `Desk` in python/legacy.py matches nothing: remove it",
            "1 problems; the words are in words.toml",
        ],
    )


def test_public_types_of_one_name_are_refused(tmp_path):
    write_tree(
        tmp_path,
        {
            "crates/core/src/lib.rs": "pub struct Plan;\npub struct Kind;\npub enum Error {}",
            "crates/core/src/own.rs": "pub(crate) enum Own {}",
            "crates/cuda/src/lib.rs": "pub unsafe trait Kind {}\npub enum Own {}\npub enum Error;",
            "crates/python/src/lib.rs": "pub struct Plan;\n",
            "crates/tensorferry/src/lib.rs": "pub struct Plan;\npub struct View;\n",
            "crates/tensorferry/src/view.rs": "pub struct View;\n",
            # not a program: input of a lint
            "python/package/plans.py": "class Kind:\n    pass\n",
            # not a program: input of a lint
            "python/package/_tools/plans.py": "class Kind:\n    pass\n",
        },
    )
    kind = "public type `Kind` is also defined in crates/cuda/src/lib.rs:1"
    view = "public type `View` is also defined in crates/tensorferry/src/view.rs:1"
    assert run_lint("unique_types.py", ".", folder=tmp_path) == (
        1,
        [
            f"crates/core/src/lib.rs:2: {kind}",
            f"crates/tensorferry/src/lib.rs:2: {view}",
            "2 names of public types are used more than once",
        ],
    )


def unsafe_table(rows: str) -> str:
    head = "| crate | files with unsafe code | unsafe blocks |\n|---|---|---|\n"
    return f"before\n\n{head}{rows}\nafter\n"


COUNTED = "unsafe_crate: 2 files with unsafe code, 3 unsafe blocks"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("| unsafe_crate | 2 | 3 |\n", None),
        ("| unsafe_crate | 2 | 2 |\n", "2 files and 2 blocks"),
        ("| unsafe_crate | 3 | 3 |\n", "3 files and 3 blocks"),
        ("", "0 files and 0 blocks"),
    ],
)
def test_unsafe_code_is_counted(tmp_path, rows, expected):
    table = tmp_path / "table.md"
    table.write_text(unsafe_table(rows))
    code, lines = run_lint("unsafe_counts.py", "unsafe_crate", "--table", table)
    assert (code, lines[0]) == (0 if expected is None else 1, COUNTED)
    assert lines[1:2] == ([] if expected is None else [f"  {table} lists {expected}"])
    assert run_lint("unsafe_counts.py", "unsafe_crate", "--table", table, "--update") == (0, [])
    assert table.read_text() == unsafe_table("| unsafe_crate | 2 | 3 |\n")


# The text of a test file, with the lines on which a program begins.
STRINGS = '"""Docstring:\nimport os\nimport sys"""\n' + "\n".join(
    [
        "A = 'import os'",
        "B = '\\nimport os\\nos.getpid()\\n'",  # 5
        "C = f'import os\\nprint({A})'",  # 6
        "D = '[table]\\nname = 1\\nother = 2'",
        "E = 'a message\\nof two lines'",
        "F = 'def f(x):\\n    return x'  # not a program: input of a tool",
        "# not a program: input of a tool",
        "G = 'def f(x):\\n    return x'",
        "H = G + 'x.y = 1\\nz'",  # 12
        "I = 'f(1)\\ng(2)'",
    ]
)


def test_programs_in_strings_are_refused(tmp_path):
    write_tree(tmp_path, {"tests/test_strings.py": STRINGS, "tests/test_file.py": "import os\n"})
    told = "a program in a string: move it to a file in tests/programs"
    assert run_lint("inline_programs.py", folder=tmp_path) == (
        1,
        [f"tests/test_strings.py:{line}: {told}" for line in (5, 6, 12)]
        + ["3 programs in strings"],
    )


# Edits of a crate and of the one whose enum it re-exports, with the lines that they remove and add.
API_EDITS = [
    (
        "facade",
        "pub fn shape(&self) -> &[usize]",
        "pub fn shape(&self) -> &'static [usize]",
        ["pub fn facade::Tensor::shape(self: &Self) -> &[usize]"],
        ["pub fn facade::Tensor::shape(self: &Self) -> &'static [usize]"],
    ),
    (
        "facade",
        "    fn private(&self) {}\n",
        "    pub fn private(&self) {}\n",
        [],
        ["pub fn facade::Tensor::private(self: &Self)"],
    ),
    (
        "facade",
        "pub unsafe fn from_raw",
        "unsafe fn from_raw",
        [
            "pub unsafe fn facade::Tensor::from_raw<T: facade::Element>(data: *mut T, "
            "kind: core::option::Option<facade::ErrorKind>) -> "
            "core::result::Result<Self, facade::ErrorKind>"
        ],
        [],
    ),
    (
        "facade",
        "pub(crate) depth: usize",
        "pub depth: usize",
        ["pub field facade::Options::(private fields)"],
        ["pub field facade::Options::depth: usize"],
    ),
    (
        "facade",
        "// SAFETY: the pointer is never read.\nunsafe impl Send for Tensor {}\n",
        "impl Clone for Tensor {\n    fn clone(&self) -> Self {\n        Self(self.0)\n    }\n}\n",
        ["impl core::marker::Send for facade::Tensor"],
        [
            "impl !core::marker::Send for facade::Tensor",
            "impl core::clone::Clone for facade::Tensor",
        ],
    ),
    (
        "facade",
        "type Wide = u16",
        "type Wide = u32",
        ["impl facade::Element for u8 { type Wide = u16 }"],
        ["impl facade::Element for u8 { type Wide = u32 }"],
    ),
    (
        "facade",
        "fn widen(self) -> u16",
        "fn widen(self) -> u32",
        [],
        [],
    ),
    (
        "facade",
        "options: &Options<'_>) -> usize {",
        "options: &mut Options<'_>) -> usize {",
        [
            "pub fn facade::extra(read: impl core::ops::function::Fn(&[u8]) -> usize, "
            "options: &facade::Options<'_>) -> usize"
        ],
        [
            "pub fn facade::extra(read: impl core::ops::function::Fn(&[u8]) -> usize, "
            "options: &mut facade::Options<'_>) -> usize"
        ],
    ),
    (
        "facade",
        "pub use std::collections::BTreeMap;",
        "pub use std::collections::BTreeSet;",
        ["pub use facade::BTreeMap = std::collections::BTreeMap"],
        ["pub use facade::BTreeSet = std::collections::BTreeSet"],
    ),
    (
        "lower",
        "    Second(u8),\n",
        "    Second(u16),\n    Third,\n",
        ["pub field facade::ErrorKind::Second::0: u8"],
        ["pub field facade::ErrorKind::Second::0: u16", "pub variant facade::ErrorKind::Third"],
    ),
    (
        "lower",
        "#[non_exhaustive]\n",
        "",
        ["#[non_exhaustive] #[repr(u8)] pub enum facade::ErrorKind"],
        ["#[repr(u8)] pub enum facade::ErrorKind"],
    ),
]
API_SOURCES = {"facade": "facade/src/lib.rs", "lower": "lower/src/kinds.rs"}


def test_changes_of_the_public_api_are_listed(tmp_path, monkeypatch):
    crates = tmp_path / "crates"
    shutil.copytree(FIXTURES / "public_api", crates)
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path / "target"))
    assert run_lint("public_api.py", "facade", folder=crates) == (0, [])
    removed, added = set(), set()
    for crate, old, new, fewer, more in API_EDITS:
        source = crates / API_SOURCES[crate]
        text = source.read_text()
        assert text.count(old) == 1, old
        source.write_text(text.replace(old, new))
        removed |= set(fewer)
        added |= set(more)
    listing = "facade/public-api.txt"
    expected = [f"{listing}: removed: {line}" for line in sorted(removed)]
    expected += [f"{listing}: added: {line}" for line in sorted(added)]
    status, lines = run_lint("public_api.py", "facade", folder=crates)
    assert (status, lines[:-1]) == (1, expected)
    assert lines[-1].startswith(f"{len(expected)} lines differ: undo the change")
    assert "lints/public_api.py --update facade" in lines[-1]
    assert run_lint("public_api.py", "--update", "facade", folder=crates) == (0, [])
    assert run_lint("public_api.py", "facade", folder=crates) == (0, [])


def test_a_private_change_leaves_the_public_api(tmp_path, monkeypatch):
    crates = tmp_path / "crates"
    shutil.copytree(FIXTURES / "public_api", crates)
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path / "target"))
    source = crates / API_SOURCES["facade"]
    text = source.read_text()
    for old, new in [
        ("fn private(", "fn moved("),
        ("fn hidden(", "fn concealed("),
        ("&[]", "&[1]"),
    ]:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    source.write_text(
        text.replace("private::", "internal::").replace("mod private", "mod internal")
    )
    listed = (crates / "facade" / "public-api.txt").read_text()
    (crates / "facade" / "public-api.txt").write_text(listed.replace("private::", "internal::"))
    assert run_lint("public_api.py", "facade", folder=crates) == (0, [])
