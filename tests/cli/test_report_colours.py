"""The colours of the report: that all eyes tell them apart, from each other and from the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tensorferry._tools import report
from tensorferry._tools.report import series_style


def linear(colour: str) -> list[float]:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(one: str, other: str) -> float:
    weights = (0.2126, 0.7152, 0.0722)
    light = sorted(
        sum(a * b for a, b in zip(weights, linear(colour), strict=True)) for colour in (one, other)
    )
    return (light[1] + 0.05) / (light[0] + 0.05)


def named(theme: str) -> dict[str, str]:
    sheet = (Path(report.__file__).parent / "report.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)[:2]
    return dict(re.findall(r"--(\w+): (#\w{6})", light if theme == "light" else dark))


# What each kind of colour blindness makes of linear red, green and blue.
SEEN_BY = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "no green": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "no blue": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}


def seen(colour: str, eyes: str) -> tuple[float, float, float]:
    """A colour as lightness and two hues, in which distances are about what they seem."""
    parts = linear(colour)
    red, green, blue = (
        min(1.0, max(0.0, sum(a * b for a, b in zip(row, parts, strict=True))))
        for row in SEEN_BY[eyes]
    )
    white = (
        (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047,
        0.2126 * red + 0.7152 * green + 0.0722 * blue,
        (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883,
    )
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in white)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_and_text_stand_out_from_the_page(theme):
    paper = series_style.BACKGROUNDS[theme]
    assert min(contrast(colour, paper) for colour in series_style.COLOURS[theme]) >= 3
    words = named(theme)
    for name in ("text", "quiet", "link", "warn", "limit"):
        assert contrast(words[name], paper) >= 4.5, name
        assert contrast(words[name], words["raised"]) >= 4.5, name
    assert contrast(words["even"], paper) >= 3


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("eyes", SEEN_BY)
def test_colours_stay_apart_for_every_kind_of_eyes(theme, eyes):
    colours = series_style.COLOURS[theme]
    for number, one in enumerate(colours):
        for other in colours[number + 1 :]:
            distance = sum(
                (a - b) ** 2 for a, b in zip(seen(one, eyes), seen(other, eyes), strict=True)
            )
            assert distance**0.5 >= 15, (one, other)


def test_many_methods_differ_without_any_colour():
    assert len(set(series_style.SHAPES)) == len(series_style.SHAPES) == 12
    assert (
        len({(series_style.shape(number), series_style.dashes(number)) for number in range(84)})
        == 84
    )
