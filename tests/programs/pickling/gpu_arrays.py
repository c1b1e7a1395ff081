"""Pickles of arrays in GPU memory on the fake driver: values, devices, pending work and errors."""

from __future__ import annotations

import cupy
import numpy as np
from support.cases import case, main
from support.errors import raised
from support.fake_gpu import on_gpu
from support.gpu_transfers import strided

import tensorferry as ferry
from tensorferry import pickling

VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 3.5


@case
def arrays() -> None:
    """They are downloaded into the buffer, and arrive on their own device by default."""
    for device in (0, 1):
        x = on_gpu(VALUES, device)
        views = (VALUES, VALUES[:, ::2], VALUES.T, VALUES[1])
        for values in views:
            view = strided(x, values, VALUES)
            data, buffers = pickling.dumps({"x": view})
            assert [each.raw().nbytes for each in buffers] == [values.nbytes]
            received = [bytes(each.raw()) for each in buffers]
            back = pickling.loads(data, received)["x"]
            assert isinstance(back, cupy.ndarray)
            assert back.data.device_id == device
            assert np.array_equal(back.get(), values)
            other = pickling.loads(data, received, device=f"cuda:{1 - device}")["x"]
            assert other.data.device_id == 1 - device
            assert np.array_equal(other.get(), values)
            host = pickling.loads(data, received, "numpy")["x"]
            assert np.array_equal(host, values)


@case
def ties() -> None:
    """Equal views of GPU memory are one payload, and share memory afterwards."""
    x = on_gpu(VALUES)
    data, buffers = pickling.dumps([x, x[:], x[0]])
    assert len(buffers) == 2
    first, second, row = pickling.loads(data, [bytes(each.raw()) for each in buffers])
    assert first.data.ptr == second.data.ptr != row.data.ptr
    assert np.array_equal(row.get(), VALUES[0])


@case
def plans() -> None:
    x = on_gpu(VALUES)
    (part,) = pickling.plan(x).parts
    assert (part.action, part.bytes_moved, part.steps[0][0]) == ("copy", VALUES.nbytes, "download")


@case
def missing_devices() -> None:
    """A device that the reader lacks is an error whose hint names the option."""
    data, buffers = pickling.dumps(on_gpu(VALUES))
    received = [bytes(each.raw()) for each in buffers]
    changed = data.replace(b"cuda:0", b"cuda:9")
    assert changed != data
    error = raised(ferry.FerryError, pickling.loads, changed, received)
    assert 'device="cpu"' in str(error), error
    assert isinstance(pickling.loads(changed, received, "numpy"), np.ndarray)


if __name__ == "__main__":
    main()
