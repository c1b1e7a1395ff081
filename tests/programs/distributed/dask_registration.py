"""Registers the plugin at some moment relative to distributed's own registration of torch.

The argument names the moment. Whichever it is, tensors are pickled out of band afterwards.
"""

from __future__ import annotations

import sys
from types import ModuleType

import distributed.protocol as protocol

import tensorferry as ferry


def lookup_before() -> None:
    """distributed registers its functions, and keeps them for a subclass too."""
    import torch

    class Subclass(torch.Tensor):
        pass

    assert protocol.serialize(torch.ones(3))[0]["serializer"] == "dask"
    assert protocol.serialize(torch.ones(3).as_subclass(Subclass))[0]["serializer"] == "dask"
    ferry.dask.TensorPlugin()
    assert protocol.serialize(torch.ones(3).as_subclass(Subclass))[0]["serializer"] == "pickle"


def import_after() -> None:
    assert "torch" not in sys.modules
    ferry.dask.TensorPlugin()
    assert "torch" not in sys.modules


def read_first() -> None:
    """distributed registers both directions when the first tensor arrives."""
    import_after()
    import torch

    protocol.dask_deserialize.dispatch(torch.Tensor)


def torchvision_first() -> None:
    """A type of torchvision makes distributed register torch."""
    import_after()
    import torch

    image = type("Image", (torch.Tensor,), {"__module__": "torchvision.tv_tensors"})
    protocol.dask_deserialize.dispatch(image)


def twice() -> None:
    ferry.dask.TensorPlugin()
    import torch

    protocol.serialize(torch.ones(3))
    ferry.dask.TensorPlugin()


def pickle_first() -> None:
    """A tensor of somebody who has no plugin can still be read."""
    import torch

    header, frames = protocol.serialize(torch.ones(3))
    assert header["serializer"] == "dask"
    ferry.dask.TensorPlugin()
    assert torch.equal(protocol.deserialize(header, frames), torch.ones(3))


def cupy_without_numba() -> None:
    """distributed's own functions for CuPy cannot be imported then, and ours do not need them."""
    cupy = ModuleType("cupy")
    cupy.ndarray = type("ndarray", (), {"__module__": "cupy"})  # type: ignore[attr-defined]
    sys.modules["cupy"] = cupy
    for name in ("numba", "rmm"):
        sys.modules[name] = None  # type: ignore[assignment]
    ferry.dask.TensorPlugin()
    assert protocol.serialize(cupy.ndarray())[0]["serializer"] == "pickle"
    del sys.modules["cupy"]


MOMENTS = {
    function.__name__: function
    for function in (
        lookup_before,
        import_after,
        read_first,
        torchvision_first,
        twice,
        pickle_first,
        cupy_without_numba,
    )
}

if __name__ == "__main__":
    MOMENTS[sys.argv[1]]()
    import torch

    for x in (torch.ones(1000, dtype=torch.bfloat16), torch.nn.Parameter(torch.ones(1000))):
        header, frames = protocol.serialize(x)
        assert header == {"serializer": "pickle", "writeable": (True,)}, header
        assert len(frames[0]) < 500
        assert memoryview(frames[1]).nbytes == x.nbytes
        back = protocol.deserialize(header, [frames[0], bytearray(frames[1])])
        assert type(back) is type(x)
        assert torch.equal(back, x)
    print("registered")
