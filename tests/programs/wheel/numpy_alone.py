"""Carries tensors where NumPy is the only framework: the wheel needs no other."""

import tempfile
from pathlib import Path

import numpy as np

import tensorferry as ferry


def main() -> None:
    memory = bytearray(12)
    ferry.to(memory, "numpy")[0] = 42
    assert memory[0] == 42
    x = np.arange(12, dtype="float32").reshape(3, 4)
    packed = ferry.to(x.T[::2], "numpy", copy=True, dtype="float16")
    assert packed.flags.c_contiguous
    assert (packed == x.T[::2]).all()
    assert ferry.plan(x.T, "numpy", copy=True).bytes_moved == x.nbytes
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        ferry.save(path, x)
        assert (ferry.load(path, "numpy") == x).all()
    with ferry.publish(x) as ticket:
        assert (ferry.attach(str(ticket), "numpy") == x).all()
    try:
        ferry.to(x, "mlx")
    except ferry.FrameworkNotFoundError as error:
        assert "hint:" in str(error)
    else:
        raise AssertionError("MLX is here: NumPy is not alone")


if __name__ == "__main__":
    main()
