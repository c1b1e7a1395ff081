"""`tensorferry.h`: what a compiler makes of it, against what the table and the tests believe."""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
import sysconfig
from pathlib import Path

from support import c_table
from support.invalid_capsules import Versioned

import tensorferry as ferry

INCLUDE = Path(ferry.get_include())
ROOT = Path(__file__).parent.parent.parent

# Names in C, and the structs of the tests, which call the installed module through them.
STRUCTS = {"TfApi": c_table.Api, "TfRequest": c_table.Request}


def compiled(folder: Path, expressions: list[str]) -> list[int]:
    """The values of constant expressions, as a C compiler sees them."""
    lines = "".join(f'  printf("%lld\\n", (long long)({text}));\n' for text in expressions)
    source = folder / "values.c"
    source.write_text(
        f'#include <stdio.h>\n#include "tensorferry.h"\nint main(void) {{\n{lines}  return 0;\n}}\n'
    )
    program = folder / "values"
    include = [f"-I{sysconfig.get_paths()['include']}", f"-I{INCLUDE}"]
    # Nothing of Python is called, so the references of the inline function are left open.
    open_references = ["-Wl,--unresolved-symbols=ignore-all", "-O0"]
    subprocess.run(["cc", *include, *open_references, source, "-o", program], check=True)
    shown = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return [int(line) for line in shown.split()]


def test_every_field_is_where_the_module_expects_it(tmp_path: Path) -> None:
    expressions, expected = [], []
    for name, struct in STRUCTS.items():
        expressions.append(f"sizeof({name})")
        expected.append(ctypes.sizeof(struct))
        for field, *_ in struct._fields_:
            expressions.append(f"offsetof({name}, {field})")
            expected.append(getattr(struct, field).offset)
    expressions += [
        "sizeof(DLManagedTensorVersioned)",
        "offsetof(DLManagedTensorVersioned, dl_tensor)",
    ]
    expected += [80, Versioned.tensor.offset]
    assert compiled(tmp_path, expressions) == expected


def test_constants_are_those_of_the_crate(tmp_path: Path) -> None:
    """The Rust side of the table is in crates/core/src/c_api.rs, under the same names."""
    rust = (ROOT / "crates" / "core" / "src" / "c_api.rs").read_text()
    constants = dict(re.findall(r"pub const (\w+): \w+ = (-?\d+);", rust))
    names = {
        "MAJOR": "TENSORFERRY_API_MAJOR",
        "MINOR": "TENSORFERRY_API_MINOR",
        **{name: f"TENSORFERRY_{name}" for name in constants if name not in ("MAJOR", "MINOR")},
    }
    assert set(names) == set(constants)
    assert len(constants) == 7
    values = compiled(tmp_path, [names[name] for name in constants])
    assert values == [int(value) for value in constants.values()]
    assert (c_table.api.major, c_table.api.minor) == tuple(values[:2])


def test_every_field_of_the_header_is_in_the_crate() -> None:
    rust = (ROOT / "crates" / "core" / "src" / "c_api.rs").read_text()
    header = (INCLUDE / "tensorferry.h").read_text()
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    for name, struct in (("TfApi", "Api"), ("TfRequest", "Request")):
        (body,) = re.findall(rf"typedef struct {name} \{{(.*?)\}} {name};", header, re.S)
        fields = re.findall(r"\(\*(\w+)\)\(|(\w+);", body)
        in_c = [pointer or plain for pointer, plain in fields]
        (body,) = re.findall(rf"pub struct {struct} \{{(.*?)\n\}}", rust, re.S)
        assert in_c == re.findall(r"pub (\w+):", body)


def test_the_table_has_the_size_that_it_says() -> None:
    assert c_table.api.size == ctypes.sizeof(c_table.Api)


def test_dlpack_is_version_1_3_without_a_change(tmp_path: Path) -> None:
    assert compiled(tmp_path, ["DLPACK_MAJOR_VERSION", "DLPACK_MINOR_VERSION"]) == [1, 3]
    digest = hashlib.sha256((INCLUDE / "dlpack.h").read_bytes()).hexdigest()
    assert digest == "62052bef24bd69bb7b52e95428f9e99bd7951783850c36c5f2a41e71fd63c2fc"
