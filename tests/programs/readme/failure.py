"""Makes the conversions of README's table of failures, natively and with tensorferry.

Without an argument it prints a line for each: the name, the native result, ours. With the argument
`abort` it makes the native conversion that ends the process.
"""

import sys

import numpy as np

import tensorferry as ferry


def lost_shape(native: bool) -> object:
    import jax.numpy as jnp
    import torch

    jax_array = jnp.arange(6.0).reshape(2, 3)
    tensor = torch.asarray(jax_array) if native else ferry.to(jax_array, "torch")
    return tuple(tensor.shape)


def written_bytes(native: bool) -> object:
    import torch

    source = bytes(bytearray(2))
    read_only = np.frombuffer(source, "uint8")
    tensor = torch.from_dlpack(read_only) if native else ferry.to(read_only, "torch")
    tensor.fill_(7)
    assert tensor.tolist() == [7, 7]
    return source


def lost_value(native: bool) -> object:
    import jax

    x = np.array([2**40])
    try:
        return jax.dlpack.from_dlpack(x) if native else ferry.to(x, "jax")
    except ferry.FerryError as error:
        assert "hint:" in str(error)
        return type(error).__name__


def unaligned_memory(native: bool) -> object:
    import tensorflow as tf

    memory = np.ones(1024 + 64, "uint8")
    start = -memory.ctypes.data % 64 + 16
    x = memory[start : start + 1024]
    assert x.ctypes.data % 64 == 16
    t = tf.experimental.dlpack.from_dlpack(x.__dlpack__()) if native else ferry.to(x, "tensorflow")
    # The import succeeds; the first operation looks at the address.
    return int(tf.reduce_sum(tf.cast(t, tf.int32)))


def main() -> None:
    if sys.argv[1:] == ["abort"]:
        print(unaligned_memory(native=True))
        return
    for conversion in (lost_shape, written_bytes, lost_value):
        print(conversion.__name__, conversion(native=True), conversion(native=False), sep=": ")
    print("unaligned_memory", unaligned_memory(native=False), sep=": ")


if __name__ == "__main__":
    main()
