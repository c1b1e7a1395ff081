"""Writes tests/files/corpus: small files by the programs that people use, and what is in them.

Run by hand, in an environment with numpy, ml_dtypes, torch, jax, tensorflow, safetensors and onnx:

    python tests/files/make_corpus.py

`expected.json` has for every file its tensors: name, dtype, shape, and the bytes in row-major order
and little-endian, in hexadecimal; or, for a file that must be rejected, the key of the error's hint
(`crates/files/src/hints.rs`). The Rust test `crates/files/tests/corpus.rs` reads all of it.
"""

import io
import json
import sys
from pathlib import Path

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import safetensors
import safetensors.numpy
import safetensors.torch
import tensorflow as tf
import torch
from onnx import helper, numpy_helper

CORPUS = Path(__file__).parent / "corpus"
EXPECTED = {}
NUMPY_TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMPY_TYPES += ["float16", "float32", "float64", "complex64", "complex128"]


def values(dtype, shape=(2, 3)):
    """Values that differ, with a sign and a fraction where the type has them."""
    count = int(np.prod(shape))
    if dtype == "bool":
        return (np.arange(count) % 3 == 0).reshape(shape)
    base = np.arange(count, dtype="float64") * 1.5 - (0 if np.dtype(dtype).kind == "u" else 2)
    if np.dtype(dtype).kind == "c":
        base = base + 1j * (base + 0.25)
    return base.astype(dtype).reshape(shape)


def described(name, array):
    array = np.asarray(array)
    little = np.ascontiguousarray(array).reshape(array.shape)
    if little.dtype.byteorder == ">":
        little = little.astype(little.dtype.newbyteorder("<"))
    return {
        "name": name,
        "dtype": array.dtype.newbyteorder("=").name,
        "shape": list(array.shape),
        "bytes": little.tobytes().hex(),
    }


def keep(file, tensors, **options):
    EXPECTED[file] = {
        "tensors": [described(name, array) for name, array in tensors.items()],
        **options,
    }


def put(file, data, tensors, **options):
    (CORPUS / file).write_bytes(data)
    keep(file, tensors, **options)


def numpy_files():
    for dtype in NUMPY_TYPES:
        for order in "<>":
            array = values(dtype).astype(np.dtype(dtype).newbyteorder(order))
            for letter in "CF":
                file = f"numpy-{dtype}-{'little' if order == '<' else 'big'}-{letter}.npy"
                np.save(CORPUS / file, np.asarray(array, order=letter))
                keep(file, {"": array})
    for version in [(1, 0), (2, 0), (3, 0)]:
        for shape in [(), (0,), (5,), (2, 0, 3), (1, 1, 1, 1), (2, 3, 4)]:
            stream = io.BytesIO()
            array = values("float32", shape)
            np.lib.format.write_array(stream, array, version=version)
            put(
                f"numpy-version{version[0]}-{'x'.join(map(str, shape))}.npy",
                stream.getvalue(),
                {"": array},
            )
    array = values("float32").astype(ml_dtypes.bfloat16)
    np.save(CORPUS / "numpy-bfloat16.npy", array)
    keep("numpy-bfloat16.npy", {"": array})
    array = values("float32").astype(ml_dtypes.float8_e4m3fn)
    np.save(CORPUS / "numpy-float8.npy", array)
    keep("numpy-float8.npy", {"": array}, dtype="float8_e4m3fn")
    rejected = {
        "object": np.array([{}, None], dtype=object),
        "structured": np.zeros(2, dtype=[("a", "<f4"), ("\u00e4\u4e2d", "<i4")]),
        "string": np.array(["a", "bc"]),
        "bytes": np.array([b"a", b"bc"]),
        "date": np.array(["2024-01-01"], dtype="datetime64[D]"),
        "longdouble": np.zeros(2, dtype=np.longdouble),
    }
    hints = {
        "object": "load_object_array",
        "structured": "save_fields_separately",
        "string": "load_with_numpy",
        "bytes": "load_with_numpy",
        "date": "save_dates_as_int64",
        "longdouble": "convert_to_float64",
    }
    for name, array in rejected.items():
        np.save(CORPUS / f"numpy-{name}.npy", array)
        EXPECTED[f"numpy-{name}.npy"] = {"hint": f"files.{hints[name]}"}


class Unseekable(io.RawIOBase):
    """A pipe, as far as zipfile can tell."""

    def __init__(self):
        self.data = bytearray()

    def writable(self):
        return True

    def write(self, data):
        self.data += bytes(data)
        return len(data)


def npz_files():
    tensors = {
        "a": values("float32"),
        "b/c": values("int64", ()),
        "\u00e4": values("complex128", (0, 2)),
        "big": values("int16").astype(">i2"),
    }
    np.savez(CORPUS / "numpy-stored.npz", **tensors)
    np.savez_compressed(CORPUS / "numpy-deflated.npz", **tensors, zeros=np.zeros(50_000))
    keep("numpy-stored.npz", tensors)
    keep("numpy-deflated.npz", tensors)
    EXPECTED["numpy-deflated.npz"]["zeros"] = {"zeros": 400_000}
    np.savez(CORPUS / "numpy-empty.npz")
    keep("numpy-empty.npz", {})
    for name, save in [("stored", np.savez), ("deflated", np.savez_compressed)]:
        pipe = Unseekable()
        save(pipe, **tensors)
        put(f"numpy-pipe-{name}.npz", bytes(pipe.data), tensors)
    mixed = {
        "data": values("float64", (4,)),
        "format": np.array(b"csr"),
        "names": np.array(["x"], dtype=object),
    }
    np.savez(CORPUS / "numpy-mixed.npz", **mixed)
    keep("numpy-mixed.npz", {"data": mixed["data"]}, skipped=["format", "names"])
    jnp.savez(CORPUS / "jax.npz", w=jnp.arange(4, dtype="float32"), b=jnp.ones(2, jnp.bfloat16))
    keep("jax.npz", {"w": np.arange(4, dtype="float32"), "b": np.ones(2, ml_dtypes.bfloat16)})
    jnp.save(CORPUS / "jax-bfloat16.npy", jnp.arange(5, dtype=jnp.bfloat16))
    keep("jax-bfloat16.npy", {"": np.arange(5).astype(ml_dtypes.bfloat16)})
    stream = io.BytesIO()
    torch.save({"w": torch.ones(2)}, stream)
    (CORPUS / "torch-checkpoint.npz").write_bytes(stream.getvalue())
    EXPECTED["torch-checkpoint.npz"] = {"hint": "files.load_torch_checkpoint"}


def safetensors_files():
    tensors = {dtype: values(dtype) for dtype in NUMPY_TYPES if dtype not in ("complex128",)}
    tensors |= {
        "empty": values("float32", (0, 3)),
        "scalar": values("float64", ()),
        'q"\\\u4e2d\n': values("int8"),
    }
    safetensors.numpy.save_file(
        tensors, CORPUS / "safetensors-numpy.safetensors", metadata={"who": "numpy", "k\u00e4": "v"}
    )
    keep("safetensors-numpy.safetensors", tensors, metadata={"who": "numpy", "k\u00e4": "v"})
    names = [
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e8m0fnu",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
    ]
    tensors = {}
    for name in names:
        try:
            data = torch.arange(1, 7).float().reshape(2, 3).to(getattr(torch, name))
            safetensors.torch.save({name: data})
        except Exception as error:
            print(f"safetensors cannot write {name}: {error}")
            continue
        tensors[name] = data
    safetensors.torch.save_file(tensors, CORPUS / "safetensors-torch.safetensors")
    arrays = {
        k: v.view(torch.uint8).numpy().view(getattr(ml_dtypes, k)) for k, v in tensors.items()
    }
    keep("safetensors-torch.safetensors", arrays)
    folder = CORPUS / "sharded"
    folder.mkdir(exist_ok=True)
    one, two = {"a": values("float32"), "b": values("int8")}, {"c": values("float16")}
    safetensors.numpy.save_file(one, folder / "model-00001-of-00002.safetensors")
    safetensors.numpy.save_file(two, folder / "model-00002-of-00002.safetensors")
    weights = dict.fromkeys(one, "model-00001-of-00002.safetensors")
    weights |= dict.fromkeys(two, "model-00002-of-00002.safetensors")
    index = {"metadata": {"total_size": 42}, "weight_map": weights}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    keep("sharded/model.safetensors.index.json", one | two, metadata={"total_size": "42"})


def tensorflow_files():
    names = [
        *NUMPY_TYPES,
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
        "float8_e4m3b11fnuz",
        "float8_e5m2fnuz",
        "int4",
        "uint4",
    ]
    for name in names:
        dtype = np.dtype(name) if name in NUMPY_TYPES else np.dtype(getattr(ml_dtypes, name))
        array = (
            np.arange(6).reshape(2, 3).astype(dtype) if name not in NUMPY_TYPES else values(name)
        )
        for label, data in [
            ("array", array),
            ("scalar", array[1, 2]),
            ("same", np.full((4, 5), array[0, 2])),
        ]:
            data = np.asarray(data, dtype=dtype)
            for typed in (False, True):
                try:
                    message = tf.make_tensor_proto(
                        data.tolist() if typed else data, dtype=dtype, shape=data.shape
                    )
                except Exception as error:
                    print(f"tensorflow cannot write {name} {label} {typed}: {type(error).__name__}")
                    continue
                file = f"tensorflow-{name}-{label}-{'typed' if typed else 'array'}.pb"
                put(file, message.SerializeToString(), {"": data})
    message = tf.make_tensor_proto(3, dtype=tf.int16, shape=(3, 4))
    put("tensorflow-fill.pb", message.SerializeToString(), {"": np.full((3, 4), 3, "int16")})
    put("tensorflow-string.pb", tf.make_tensor_proto("hello").SerializeToString(), {})
    EXPECTED["tensorflow-string.pb"] = {"hint": "files.load_with_library"}


def onnx_files():
    for name in NUMPY_TYPES:
        array = values(name)
        put(
            f"onnx-{name}-raw.pb",
            numpy_helper.from_array(array, "x").SerializeToString(),
            {"x": array},
        )
        code = helper.np_dtype_to_tensor_dtype(array.dtype)
        message = helper.make_tensor("x", code, array.shape, array.flatten().tolist())
        put(f"onnx-{name}-typed.pb", message.SerializeToString(), {"x": array})
    extras = {
        "bfloat16": "BFLOAT16",
        "float8_e4m3fn": "FLOAT8E4M3FN",
        "float8_e4m3fnuz": "FLOAT8E4M3FNUZ",
    }
    extras |= {"float8_e5m2": "FLOAT8E5M2", "float8_e5m2fnuz": "FLOAT8E5M2FNUZ"}
    for name, word in extras.items():
        array = np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, name))
        code = getattr(onnx.TensorProto, word)
        message = helper.make_tensor(
            "x", code, array.shape, array.astype("float32").flatten().tolist()
        )
        put(f"onnx-{name}-typed.pb", message.SerializeToString(), {"x": array})
        message = helper.make_tensor("x", code, array.shape, array.tobytes(), raw=True)
        put(f"onnx-{name}-raw.pb", message.SerializeToString(), {"x": array})
    message = numpy_helper.from_array(values("float32"), "x")
    message.data_location = onnx.TensorProto.EXTERNAL
    message.external_data.add(key="location", value="/etc/passwd")
    (CORPUS / "onnx-external.pb").write_bytes(message.SerializeToString())
    EXPECTED["onnx-external.pb"] = {"hint": "files.embed_onnx_data"}
    message = helper.make_tensor("x", onnx.TensorProto.INT4, (3,), [1, 2, 3])
    (CORPUS / "onnx-int4.pb").write_bytes(message.SerializeToString())
    EXPECTED["onnx-int4.pb"] = {"hint": "files.load_with_library"}
    (CORPUS / "onnx-string.pb").write_bytes(
        helper.make_tensor("x", onnx.TensorProto.STRING, (1,), [b"a"]).SerializeToString()
    )
    EXPECTED["onnx-string.pb"] = {"hint": "files.load_with_library"}


def raw_files():
    array = torch.arange(6, dtype=torch.int32).reshape(2, 3).numpy()
    put("torch-int32.bin", array.tobytes(), {"": array}, dtype="int32", shape=[2, 3])


def main():
    CORPUS.mkdir(exist_ok=True)
    numpy_files()
    npz_files()
    safetensors_files()
    tensorflow_files()
    onnx_files()
    raw_files()
    versions = {
        name: sys.modules[name].__version__
        for name in ["numpy", "ml_dtypes", "torch", "jax", "tensorflow", "safetensors", "onnx"]
    }
    lines = [f" {json.dumps(file)}: {json.dumps(what)}" for file, what in sorted(EXPECTED.items())]
    text = ",\n".join([f' "versions": {json.dumps(versions)}', *lines])
    (CORPUS / "expected.json").write_text("{\n" + text + "\n}\n")
    for path in CORPUS.rglob("*"):
        if path.is_file() and path.name != "expected.json" and path.stat().st_size > 4096:
            print(f"{path.name} has {path.stat().st_size} bytes")
    print(f"{len(EXPECTED)} files")


if __name__ == "__main__":
    main()
