"""Errors of reading and writing files: invalid contents, unsupported types, invalid arguments."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import tensorferry as ferry

Case = Callable[[Path], object]
CORPUS = Path(__file__).parents[1] / "files" / "corpus"


def load(name: str, content: bytes, **options: Any) -> Case:
    """Loads a file with this name and content, without a map, so that all of it is read."""

    def case(folder: Path) -> object:
        (folder / name).write_bytes(content)
        return ferry.load(folder / name, mmap=False, **options)

    return case


def load_raw(size: int, **options: Any) -> Case:
    def case(folder: Path) -> object:
        (folder / "x.raw").write_bytes(bytes(size))
        return ferry.load_raw(folder / "x.raw", **options)

    return case


def save(name: str, tree: object, **options: Any) -> Case:
    return lambda folder: ferry.save(folder / name, tree, **options)


def corpus(name: str) -> Case:
    """Loads a file of the corpus; copied, so that the message names the case's folder."""
    return load(name, (CORPUS / name).read_bytes())


# .npy


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    size = struct.pack("<H" if version[0] == 1 else "<I", len(header))
    return b"\x93NUMPY" + version + size + header.encode() + data


def npy_of(descr: str = "<f4", shape: str = "(3,)", data: bytes = b"", rest: str = "") -> bytes:
    return npy(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}{rest}", data)


NPY = {
    "too few bytes": npy_of(data=bytes(11)),
    "trailing bytes": npy_of(data=bytes(13)),
    "overflowing size": npy_of(shape="(4611686018427387904,)"),
    "overflowing dimension": npy_of(shape="(99999999999999999999,)"),
    "negative dimension": npy_of(shape="(-1,)"),
    "shape that is a number": npy_of(shape="(3)"),
    "65 dimensions": npy_of(shape=f"({'1,' * 65})"),
    "truncated header": npy_of()[:40],
    "missing signature": b"NUMPY" + npy_of(),
    "unknown version": npy("{}", version=b"\x04\x00"),
    "huge header": npy_of()[:6] + b"\x02\x00\xff\xff\xff\xff" + bytes(20),
    "header that is not UTF-8": b"\x93NUMPY\x03\x00\x02\x00\x00\x00\xff\xff",
    "unknown key": npy("{'x': 1}"),
    "duplicate key": npy("{'shape': (), 'shape': ()}"),
    "missing key": npy("{'descr': '<f4', 'fortran_order': False}"),
    "unexpected byte": npy("{'descr': 3}"),
    "unexpected end": npy("{'descr'"),
    "unterminated string": npy("{'descr': '<f4"),
    "unknown type": npy_of("<x4"),
    "type without byte order": npy_of("|f4"),
    "type named twice": npy_of("<f4", rest=" # tensorferry: bfloat16"),
    "comment of another size": npy_of("<V1", rest=" # tensorferry: bfloat16"),
    "void type": npy_of("<V1", data=bytes(3)),
}

# .npz


def npz(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """Level 0, so that the compressed sizes do not depend on the version of zlib."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, method, compresslevel=0)
    return stream.getvalue()


def patched(content: bytes, local: int, central: int, value: bytes) -> bytes:
    """Replaces bytes at an offset of the first local header and of the first directory entry."""
    result = bytearray(content)
    for at in (local, content.index(b"PK\x01\x02") + central):
        result[at : at + len(value)] = value
    return bytes(result)


TWO_FLOATS = npy_of(shape="(2,)", data=bytes(8))
STORED = npz({"a.npy": TWO_FLOATS})
DEFLATED = npz({"a.npy": TWO_FLOATS}, zipfile.ZIP_DEFLATED)


def with_end(offset: int, value: bytes) -> bytes:
    """A .npz whose end record has these bytes at an offset."""
    at = len(STORED) - 22 + offset
    return STORED[:at] + value + STORED[at + len(value) :]


NPZ = {
    "too short": b"PK\x05\x06",
    "trailing byte": STORED + b"?",
    "directory in the wrong position": with_end(16, b"\xff"),
    "too many entries": with_end(8, b"\xff\x00\xff\x00"),
    "several disks": with_end(4, b"\x01"),
    "encrypted member": patched(STORED, 6, 8, b"\x01"),
    "compression method": patched(STORED, 8, 10, b"\x0e"),
    "duplicate key": npz({"a.npy": TWO_FLOATS, "a": TWO_FLOATS}),
    "path outside": npz({"../a.npy": TWO_FLOATS}),
    "more than deflate can hold": patched(DEFLATED, 22, 24, struct.pack("<I", 1_000_000)),
    "CRC-32": patched(STORED, 14, 16, b"\x00\x00\x00\x00"),
    "less than declared": patched(
        npz({"a.npy": npy_of(shape="(3,)", data=bytes(8))}, zipfile.ZIP_DEFLATED),
        *(22, 24),
        struct.pack("<I", len(TWO_FLOATS) + 4),
    ),
    "more than declared": patched(
        npz({"a.npy": npy_of(shape="(1,)", data=bytes(8))}, zipfile.ZIP_DEFLATED),
        *(22, 24),
        struct.pack("<I", len(TWO_FLOATS) - 4),
    ),
    "member of another size": npz({"a.npy": npy_of(data=bytes(4))}),
    "member that is not an array": npz({"readme.txt": b"hello"}),
}

# safetensors


def safetensors(header: str, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header.encode() + data


def tensors(*entries: tuple[str, str, list[int], int, int], size: int = 0, **more: Any) -> bytes:
    """A file whose header lists (name, dtype, shape, start, end), with `size` bytes of data."""
    listed = [
        f'"{name}":' + json.dumps({"dtype": dtype, "shape": shape, "data_offsets": [start, end]})
        for name, dtype, shape, start, end in entries
    ]
    listed += [f'"{key}":{json.dumps(value)}' for key, value in more.items()]
    return safetensors("{" + ",".join(listed) + "}", bytes(size))


SAFETENSORS = {
    "too short": bytes(5),
    "huge header": struct.pack("<Q", 100_000_001) + b"{}",
    "truncated header": struct.pack("<Q", 100) + b"{}",
    "header without a brace": safetensors("[]"),
    "invalid JSON": safetensors('{"a":'),
    "unknown type": tensors(("a", "Q7", [1], 0, 1), size=1),
    "duplicate name": tensors(("a", "U8", [1], 0, 1), ("a", "U8", [1], 1, 2), size=2),
    "duplicate metadata": safetensors('{"__metadata__":{"k":"1","k":"2"}}'),
    "overlap": tensors(("a", "U8", [4], 0, 4), ("b", "U8", [4], 2, 6), size=6),
    "gap": tensors(("a", "U8", [1], 0, 1), ("b", "U8", [1], 3, 4), size=4),
    "end before start": tensors(("a", "U8", [4], 4, 0), size=4),
    "trailing bytes": tensors(("a", "U8", [4], 0, 4), size=12),
    "truncated data": tensors(("a", "U8", [4], 0, 4), size=3),
    "shape of another size": tensors(("a", "F32", [2], 0, 4), size=4),
    "overflowing dimension": tensors(("a", "F32", [(1 << 64) - 1], 0, 4), size=4),
    "packed type": tensors(("a", "F4", [4], 0, 2), size=2),
    "packed type of another size": tensors(("a", "F4", [4], 0, 3), size=3),
    "carried type that does not fit": tensors(
        ("a", "I8", [4], 0, 4), size=4, __metadata__={"tensorferry.dtypes": '{"a":"int4"}'}
    ),
}


def index(weight_map: object, *shards: str) -> Case:
    """Loads an index beside shards that each hold a tensor `a`."""

    def case(folder: Path) -> object:
        for name in shards:
            (folder / name).write_bytes(tensors(("a", "U8", [1], 0, 1), size=1))
        (folder / "m.index.json").write_text(json.dumps({"weight_map": weight_map}))
        return ferry.load(folder / "m.index.json")

    return case


def link_outside(folder: Path) -> object:
    (folder / "model").mkdir()
    (folder / "1").write_bytes(tensors(("a", "U8", [1], 0, 1), size=1))
    (folder / "model" / "1").symlink_to(folder / "1")
    (folder / "model" / "m.index.json").write_text(json.dumps({"weight_map": {"a": "1"}}))
    return ferry.load(folder / "model" / "m.index.json")


INDEX = {
    "file that is a path": index({"a": "../x"}),
    "missing tensor": index({"a": "1", "b": "1"}, "1"),
    "missing file": index({"a": "1"}),
    "link outside": link_outside,
    "invalid JSON": index([]),
    "missing weight_map": load("m.index.json", b"{}"),
}

# TensorProto

ONNX = b"\x08\x02\x10\x01"  # float of shape 2
TENSORFLOW = b"\x08\x01\x12\x04\x12\x02\x08\x02"
RAW_DATA = b"\x4a\x08" + bytes(8)

TENSORPROTO = {
    "either dialect": b"\x08\x01",
    "length past the end": ONNX + b"\x4a\x09\x00",
    "varint of more than 64 bits": b"\x80" * 20,
    "unknown wire type": ONNX + b"\x0b",
    "field number zero": ONNX + b"\x00\x01",
    "end inside a field": ONNX + b"\x25\x00",
    "field twice": ONNX + RAW_DATA + RAW_DATA,
    "two fields": ONNX + RAW_DATA + b"\x25" + bytes(4),
    "field of another type": ONNX + b"\x28\x01\x28\x01",
    "wire type of values": ONNX + b"\x20\x01",
    "wire type of a field": ONNX + b"\x48\x01",
    "too few values": ONNX + b"\x25" + bytes(4),
    "too few bytes": ONNX + b"\x4a\x04" + bytes(4),
    "negative dimension": b"\x08" + b"\xff" * 9 + b"\x01\x10\x01",
    "unknown rank": b"\x08\x01\x12\x02\x18\x01",
    "name that is not UTF-8": ONNX + RAW_DATA + b"\x42\x01\xff",
    "repeated value over the limit": b"\x08\x01\x12\x09\x12\x07\x08\x80\x80\x80\x80\x80\x20"
    b"\x2a\x04\x00\x00\x80\x3f",
    "value out of range": b"\x08\x01\x10\x03\x28\x80\x01",
    "segment": ONNX + b"\x1a\x00",
}

# Any format


def missing_tensor(folder: Path) -> object:
    ferry.save(folder / "x.npz", {"a": np.ones(2)})
    return ferry.load(folder / "x.npz", names=["b"])


CASES: dict[str, Case] = {
    **{f"npy: {name}": load("x.npy", content) for name, content in NPY.items()},
    **{
        f"npy: {name}": corpus(f"numpy-{name}.npy")
        for name in ("object", "structured", "string", "date", "longdouble")
    },
    **{f"npz: {name}": load("x.npz", content) for name, content in NPZ.items()},
    "npz: over the limit": load("x.npz", DEFLATED, max_decompressed_bytes=10),
    "npz: PyTorch checkpoint": corpus("torch-checkpoint.npz"),
    **{f"safetensors: {name}": load("x.safetensors", file) for name, file in SAFETENSORS.items()},
    **{f"index: {name}": case for name, case in INDEX.items()},
    **{f"tensorproto: {name}": load("x.pb", content) for name, content in TENSORPROTO.items()},
    **{
        f"tensorproto: {name}": corpus(f"{name}.pb")
        for name in ("onnx-external", "onnx-int4", "onnx-string", "tensorflow-string")
    },
    "raw: load": load("x.raw", bytes(4)),
    "raw: not a multiple": load_raw(5, dtype="int16"),
    "raw: another shape": load_raw(16, dtype="float32", shape=(2, 3)),
    "raw: shape of text": load_raw(16, dtype="uint8", shape="ab"),
    "raw: negative shape": load_raw(16, dtype="uint8", shape=(2, -1)),
    "raw: unknown dtype": load_raw(16, dtype="float31"),
    "open: missing": lambda folder: ferry.load(folder / "x.npy"),
    "open: directory": lambda folder: ferry.load(folder, format="npy"),
    "open: device": lambda _: ferry.load("/dev/zero", format="npy"),
    "open: unknown format": load("x", b"hello"),
    "open: name contradicts content": load("x.npy", STORED),
    "open: torch pickle": load("x.pt", b"\x80\x02}q"),
    "open: pickle": load("x.npy", pickle.dumps([], 4)),
    "open: HDF5": load("x.h5", b"\x89HDF\r\n\x1a\n"),
    "open: gzip": load("x.npy", b"\x1f\x8b\x08\x00"),
    "open: no such tensor": missing_tensor,
    "open: names that are not text": load("x.npz", STORED, names=[3]),
    "open: unknown dialect": load("x.pb", ONNX + RAW_DATA, dialect="caffe"),
    "save: missing folder": save("no/x.npy", np.ones(2)),
    "save: directory": lambda folder: ferry.save(folder, np.ones(2), format="npy"),
    "save: unknown format": save("x", np.ones(2)),
    "save: unknown format name": save("x.npy", np.ones(2), format="npq"),
    "save: two tensors as npy": save("x.npy", {"a": np.ones(2), "b": np.ones(2)}),
    "save: two names": save("x.npz", {"a": {"b": np.ones(2)}, "a.b": np.ones(2)}),
    "save: path outside": save("x.npz", {"../a": np.ones(2)}),
    "save: reserved name": save("x.safetensors", {"__metadata__": np.ones(2)}),
    "save: key that is not text": save("x.npz", {("a", 1): np.ones(2)}),
    "save: text as a tensor": save("x.npz", {"a": "text"}),
    "save: compression level": save("x.npz", np.ones(2), compression=10),
    "save: compression of npy": save("x.npy", np.ones(2), compression=5),
    "save: metadata of npy": save("x.npy", np.ones(2), metadata={"a": "b"}),
    "save: metadata that is not text": save("x.safetensors", np.ones(2), metadata={"a": 1}),
    "save: reserved metadata": save(
        "x.safetensors", np.ones(2), metadata={"tensorferry.dtypes": "{}"}
    ),
    "save: type that ONNX lacks": save("x.pb", np.ones(2, ml_dtypes.int4)),
    "save: unknown dialect": save("x.pb", np.ones(2), dialect="caffe"),
    "save: shard size": save("m.index.json", {"a": np.ones(2)}, shard_bytes=0),
    "save: shards of npy": save("x.npy", np.ones(2), shard_bytes=10),
    "save: index of nothing": save("m.index.json", {}),
}
