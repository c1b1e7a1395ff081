"""Where tensors are made and moved to, by TensorFlow's names for devices and by tensorferry's."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from tensorferry.array_api.tensorflow.tensors import Device, Tensor, invalid, tf


def placed(device: Device | None) -> contextlib.AbstractContextManager[Any]:
    """What is made inside is made there; None leaves it to TensorFlow."""
    if device is None:
        return contextlib.nullcontext()
    place: contextlib.AbstractContextManager[Any] = tf.device(named(device))
    return place


def named(device: Device) -> str:
    """TensorFlow's name: "cpu" and "cuda:1" are understood as well as "/GPU:1"."""
    found = re.fullmatch(r"(?:.*/)?(?:device:)?(cpu|gpu|cuda)(?::(\d+))?", device, re.IGNORECASE)
    if found is None:
        raise invalid(
            f"device= was given {device!r}", 'pass "cpu", "cuda", "cuda:1" or a name of TensorFlow'
        )
    kind = "CPU" if found[1].lower() == "cpu" else "GPU"
    number = int(found[2] or 0)
    there = len(tf.config.list_logical_devices(kind))
    if number >= there:
        raise invalid(
            f"device= was given {device!r}, and TensorFlow has {there} devices of kind {kind}",
            "xp.__array_namespace_info__().devices() lists them",
        )
    return f"/{kind}:{number}"


def moved(x: Tensor, device: Device | None) -> Tensor:
    """The tensor on a device; itself if that is not said."""
    if device is None:
        return x
    with placed(device):
        return tf.identity(x)


def beside(x: Tensor, device: Device | None) -> Device | None:
    """Where something made like a tensor belongs: where that is, if nothing is said."""
    if device is not None or not tf.executing_eagerly():
        return device
    found: str = x.device
    return found or None
