"""Pillow images of every mode."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from PIL import Image

MODES = ("1", "L", "P", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV", "I", "F", "LA", "PA")
MODES += ("RGBa", "La", "I;16", "I;16L", "I;16B", "I;16N")


def image(mode: str, size: tuple[int, int]) -> Image.Image:
    """An image of random pixels. Numbers are finite, so that they equal themselves."""
    made = Image.new(mode, size)
    rng = np.random.default_rng(size[0] * 1000 + size[1])
    if mode == "F":
        made.frombytes(rng.standard_normal(size[::-1], np.float32).tobytes())
    elif 0 not in size:
        made.frombytes(rng.bytes(len(made.tobytes())))
    return made


def images(max_length: int = 4) -> st.SearchStrategy[Image.Image]:
    """Small images of any mode, empty ones included."""
    length = st.integers(0, max_length)
    return st.builds(image, st.sampled_from(MODES), st.tuples(length, length))
