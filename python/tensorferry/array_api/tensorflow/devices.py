"""Devices of new tensors and conversions, by the names of TensorFlow and of tensorferry."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from tensorferry.array_api.tensorflow.tensors import Device, Tensor, invalid, tf


def placed(device: Device | None) -> contextlib.AbstractContextManager[Any]:
    """A block in which tensors are made on a device; None is TensorFlow's default."""
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
    """The tensor on a device; itself if the device is None."""
    if device is None:
        return x
    with placed(device):
        return tf.identity(x)


def beside(x: Tensor, device: Device | None) -> Device | None:
    """The device of a new tensor that is made like another; by default the other's device."""
    if device is not None or not tf.executing_eagerly():
        return device
    found: str = x.device
    return found or None
