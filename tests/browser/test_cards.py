"""The cards of notebooks in a browser: readable at two widths, light and dark."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from support.browser import every, open_all, screenshot, visit

import tensorferry as ferry

# A notebook in miniature: the card inherits its colours.
PAGE = """<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<style>body {{ margin: 8px; color: #111; background: #fff; font: 14px sans-serif }}
@media (prefers-color-scheme: dark) {{ body {{ color: #ddd; background: #111 }} }}</style>{card}"""


def make_cards(folder) -> dict[str, str]:
    layers = {
        f"model.layers.{n}.self_attention.query_projection.weight": torch.ones(n % 3 + 1, 8)
        for n in range(300)
    }
    layers["model.embed_tokens.weight"] = torch.ones(8, 8).T
    ferry.save(folder / "model.safetensors", {**layers, "epoch": 3}, metadata={"by": "us"})
    with ferry.trace() as trips:
        ferry.to(layers, "tensorflow")
        ferry.to(np.ones((64, 64)).T, "jax", dtype="float32")
    return {
        "tensor": ferry.plan(torch.ones(4, 6).T, "tensorflow", dtype="float16")._repr_html_(),
        "tree": ferry.plan(layers, "tensorflow")._repr_html_(),
        "sparse": ferry.plan(scipy.sparse.eye_array(3).tocsr(), "torch")._repr_html_(),
        "trip": trips[-1]._repr_html_(),
        "trace": trips._repr_html_(),
        "memory": ferry.memory_stats()._repr_html_(),
        "file": ferry.inspect(folder / "model.safetensors")._repr_html_(),
    }


@pytest.fixture(scope="module")
def cards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cards")
    for name, card in make_cards(folder).items():
        (folder / f"{name}.html").write_text(PAGE.format(card=card))
    return folder


NAMES = ("tensor", "tree", "sparse", "trip", "trace", "memory", "file")


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_wider_than_the_page(browser, cards, name, width):
    screenshot(browser, width=width)
    visit(browser, (cards / f"{name}.html").as_uri())
    for _ in range(2):
        overflow = browser.execute_script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert overflow <= 0
        # A line that is cut off by its own box counts too.
        hidden = browser.execute_script(
            "return [...document.body.querySelectorAll('*')]"
            ".filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0)"
            ".map(e => e.tagName)"
        )
        assert hidden == []
        open_all(browser)


@pytest.mark.parametrize("name", ["tree", "file"])
def test_a_folded_list_opens(browser, cards, name):
    screenshot(browser, width=400)
    visit(browser, (cards / f"{name}.html").as_uri())
    details = every(browser, "details")
    assert details
    item = details[0].find_element("css selector", "details > div code")
    assert not item.is_displayed()
    details[0].find_element("css selector", "summary").click()
    assert item.is_displayed()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_text_has_the_colour_of_the_page(browser, cards, name, scheme):
    screenshot(browser, scheme=scheme)
    visit(browser, (cards / f"{name}.html").as_uri())
    open_all(browser)
    colours = browser.execute_script(
        "return [...document.body.querySelectorAll('*')].filter(e => e.style.background === '' ||"
        " e.tagName === 'CODE').filter(e => !e.closest('span[style*=\"#fff\"]'))"
        ".map(e => getComputedStyle(e).color)"
    )
    expected = "rgb(17, 17, 17)" if scheme == "light" else "rgb(221, 221, 221)"
    badges = "rgb(255, 255, 255)"
    assert set(colours) - {badges} == {expected}
