"""Makes the picture of a plan for README: `python docs/picture.py` writes docs/images/plan.png.

It needs Chromium and its driver (`make browser`), and the packages of .venv.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch

import tensorferry as ferry

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from support.browser import chromium  # noqa: E402  (the tests are no package)

PAGE = """<!doctype html><meta charset="utf-8">
<style>body {{ margin: 0; font: 15px sans-serif; background: white }}
#card {{ width: 760px; padding: 12px }}</style>
<div id="card">{}</div>"""


def main() -> None:
    plan = ferry.plan(torch.ones(4096, 4096).T, "tensorflow")
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder) / "profile") as browser:
        page = Path(folder) / "plan.html"
        page.write_text(PAGE.format(plan._repr_html_()))
        # Twice the pixels, for screens that have them.
        size = {"width": 800, "height": 900, "deviceScaleFactor": 2, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(page.as_uri())
        picture = ROOT / "docs" / "images" / "plan.png"
        picture.parent.mkdir(exist_ok=True)
        browser.find_element("id", "card").screenshot(str(picture))
        print(picture)


if __name__ == "__main__":
    main()
