"""The page of the report of `tensorferry bench`. See tests/browser for it in a browser."""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import re
import resource
import stat
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest
from support import results
from support.results import PAGES, timed

import tensorferry as ferry
from tensorferry._tools import report
from tensorferry._tools.report import controls, grouping, scale
from tensorferry._tools.report.markup import Html, element, escape


@functools.cache
def rendered(page: str) -> str:
    return report.render(PAGES[page]())


def tree(result: dict | str) -> ElementTree.Element:
    return ElementTree.fromstring(
        rendered(result) if isinstance(result, str) else report.render(result)
    )


def having(root: ElementTree.Element, tag: str, name: str) -> list[ElementTree.Element]:
    return [found for found in root.iter(tag) if name in found.get("class", "").split()]


# Markup


def test_text_is_escaped_and_markup_is_not_escaped_twice():
    assert escape('<a href="x">\'&') == "&lt;a href=&quot;x&quot;&gt;&#x27;&amp;"
    assert escape(Html("<b>x</b>")) == "<b>x</b>"
    assert element("p", "<", element("b", "&")) == "<p>&lt;<b>&amp;</b></p>"
    assert element("input", class_="a", id=None, aria_label='"', checked=True, hidden=False) == (
        '<input class="a" aria-label="&quot;" checked=""/>'
    )


@pytest.mark.parametrize(
    "character", ["\x00", "\x1b", "\x7f", "\x85", "\ud800", "\ufffe", "\u202e"]
)
def test_characters_that_a_page_cannot_hold_are_replaced(character):
    assert escape(f"a{character}b") == "a\ufffdb"


def test_characters_that_a_page_can_hold_stay():
    assert escape("µ → 張量 🛳\n") == "µ → 張量 🛳\n"


@pytest.mark.parametrize("page", PAGES)
def test_the_page_is_well_formed(page):
    assert tree(page).tag == "html"


def test_nothing_of_a_hostile_result_becomes_markup():
    plain, hostile = tree("sample"), tree("hostile")
    kinds = [
        {(found.tag, *sorted(found.keys())) for found in root.iter()} for root in (plain, hostile)
    ]
    assert kinds[1] <= kinds[0]
    assert "<script>document.title='owned'</script>" in "".join(hostile.itertext())


# The page


@pytest.mark.parametrize("page", PAGES)
def test_every_measurement_is_a_mark_and_a_share_has_no_bandwidth(page):
    measured = [row for row in PAGES[page]()["rows"] if row["error"] is None]
    moving = [row for row in measured if row["shares"] is not True]
    root = tree(page)
    for kind, drawn in (("time", measured), ("bandwidth", moving)):
        marks = [
            mark for figure in having(root, "figure", kind) for mark in having(figure, "g", "mark")
        ]
        assert len(marks) == len(drawn)
        assert sum("ours" in mark.get("class").split() for mark in marks) == sum(
            row["ours"] for row in drawn
        )
        hollow = [mark for mark in marks if having(mark, "svg", "copies")]
        assert len(hollow) == sum(row["shares"] is False for row in drawn)


def test_marks_lie_where_their_values_are():
    sizes = (1 << 10, 1 << 15, 1 << 20)
    rows = [timed(1e-9 * size, ours=True, size=size, shares=False) for size in sizes]
    root = tree(results.result(rows, []))
    times, rates = (
        having(having(root, "figure", kind)[0], "svg", "sign") for kind in ("time", "bandwidth")
    )
    across = [float(sign.get("x").rstrip("%")) for sign in times]
    assert across == [float(sign.get("x").rstrip("%")) for sign in rates]
    assert across[1] - across[0] == pytest.approx(across[2] - across[1], abs=0.02)
    down = [float(sign.get("y")) for sign in times]
    assert down[0] - down[1] == pytest.approx(down[1] - down[2], abs=0.2)
    assert down[0] > down[1] > down[2] > 0
    assert len({sign.get("y") for sign in rates}) == 1


def test_lines_join_the_marks_and_limits_have_their_names():
    result = results.sample()
    root = tree("sample")
    strokes = [line for plot in having(root, "svg", "plot") for line in having(plot, "g", "stroke")]
    assert len(strokes) == 2 * 15
    pieces = sum(len(list(stroke)) for stroke in strokes)
    drawn = [row for row in result["rows"] if row["error"] is None]
    moving = [row for row in drawn if not row["shares"]]
    # Four of the methods share at every size, and have no line in the plot of bandwidths.
    assert pieces == (len(drawn) - 15) + (len(moving) - 11)
    limits = [limit for plot in having(root, "svg", "plot") for limit in having(plot, "g", "limit")]
    names = [text.text for limit in limits for text in limit.iter("text")]
    assert names == ["memcpy"] * 4 + ["link, upload"] * 2


def test_what_cannot_be_done_is_said_under_the_plot():
    [failures] = having(tree("sample"), "ul", "failures")
    assert "".join(failures.itertext()).replace(scale.NO_BREAK_SPACE, " ") == (
        "tf.convert_to_tensor(x.tolist()) failed at 16 MiB, 256 MiB and 1 GiB: "
        "a list of so many numbers does not fit into memory"
    )


def test_the_table_of_ratios_has_them_all():
    root = tree("many")
    [table] = having(root, "div", "ratios")
    assert len(table.findall(".//tbody/tr")) == 14
    verdicts = [
        span for span in table.iter("span") if span.get("class") in {"ahead", "level", "behind"}
    ]
    assert len(verdicts) == 14 * 4


def test_a_group_that_only_shares_has_no_plot_of_bandwidths():
    root = tree("bundled")
    assert len(having(root, "figure", "time")) == 60
    assert having(root, "figure", "bandwidth") == []
    assert "B/s" not in "".join(root.itertext())


def test_the_contents_lead_to_every_section():
    for page in ("sample", "empty"):
        root = tree(page)
        [contents] = having(root, "nav", "contents")
        links = [link.get("href")[1:] for link in contents.iter("a")]
        sections = [found.get("id") for found in root.iter("h2")]
        assert links == sections
        assert len(links) == (4 if page == "sample" else 2)


def test_a_busy_machine_is_said_before_any_figure():
    [warning] = having(tree("busy"), "p", "busy")
    text = "".join(warning.itertext())
    assert re.search(r"busy.* 43% .* 3% .* 1\.6 times slower", text)
    order = [found.get("class") for found in tree("busy").find(".//main")][:3]
    assert order == ["top", "busy", "contents"]
    assert having(tree("sample"), "p", "busy") == []


def test_the_rule_of_the_verdicts_is_printed():
    assert "95% confidence interval" in "".join(tree("sample").itertext())
    native = timed(2e-6) | {"ratio_low": 0.4, "ratio": 0.5, "ratio_high": 0.6}
    new = results.result([timed(1e-6, ours=True), native], [])
    text = "".join(tree(new).itertext())
    assert "95% confidence interval" in text
    assert "older version" not in text


def test_the_data_is_there_as_tables_too():
    result = results.sample()
    root = tree("sample")
    rows = [row for table in having(root, "div", "data") for row in table.findall(".//tbody/tr")]
    assert len(rows) == sum(row["error"] is None for row in result["rows"])


def test_machine_and_versions_are_said():
    text = "|".join(tree("sample").itertext())
    for words in (
        "Intel(R) Xeon(R) Processor",
        "15 November 2026, 14:58 UTC",
        "2.11.0",
        "not installed",
    ):
        assert words in text


def test_filters_are_offered_for_what_differs():
    found = grouping.group(results.sample())
    assert [facet.name for facet in controls.facets(found)] == ["from", "to", "on", "layout"]
    assert controls.classes(found[2], controls.facets(found)) == "item from-0 to-0 on-1 layout-0"
    assert controls.facets(found[:1]) == []


@pytest.mark.parametrize("page", PAGES)
def test_the_page_loads_and_runs_nothing(page):
    text = rendered(page)
    root = ElementTree.fromstring(text)
    addresses = set(re.findall(r"\w+://[\w./-]*", text))
    assert addresses == {"http://www.w3.org/2000/svg"}
    tags = {found.tag for found in root.iter()}
    assert not tags & {
        "script",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "audio",
        "video",
        "use",
    }
    names = {name for found in root.iter() for name in found.keys()}  # noqa: SIM118
    assert not {
        name for name in names if name.startswith("on") or name in {"style", "src", "action"}
    }
    links = {found.get("href") for found in root.iter() if found.get("href")}
    assert all(link.startswith(("#", "data:image/svg+xml,")) for link in links)
    [sheet] = root.iter("style")
    assert "url(" not in sheet.text
    assert "@import" not in sheet.text
    digest = base64.b64encode(hashlib.sha256(sheet.text.encode()).digest()).decode()
    [policy] = [
        meta.get("content") for meta in root.iter("meta") if "Policy" in meta.get("http-equiv", "")
    ]
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


@pytest.mark.parametrize("page", PAGES)
def test_the_page_can_be_heard(page):
    root = tree(page)
    assert root.get("lang") == "en"
    levels = [int(found.tag[1]) for found in root.iter() if re.fullmatch("h[1-6]", found.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [found.get("id") for found in root.iter() if found.get("id")]
    assert len(ids) == len(set(ids))
    for found in root.iter():
        for name in ("aria-labelledby", "aria-describedby"):
            assert found.get(name) is None or found.get(name) in ids
        if (found.get("href") or "").startswith("#"):
            assert found.get("href")[1:] in ids
    inside = {
        id(nested) for svg in root.iter("svg") for nested in svg.iter("svg") if nested is not svg
    }
    for svg in root.iter("svg"):
        if id(svg) in inside or svg.get("aria-hidden") == "true":
            continue
        assert svg.get("role") == "img"
        assert svg.findtext("title")
        assert svg.findtext("desc")
    assert all(table.find("caption") is not None for table in root.iter("table"))
    assert all(cell.get("scope") in {"row", "col"} for cell in root.iter("th"))
    assert all(figure.find("figcaption") is not None for figure in root.iter("figure"))


# Writing


def test_the_file_is_what_render_gives(tmp_path):
    path = tmp_path / "report.html"
    report.write(results.sample(), path)
    assert path.read_bytes() == report.render(results.sample()).encode()
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_file_that_is_there_stays_whole_when_writing_fails(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(ferry.InvalidArgumentError, match="File too large\nhint: "):
            report.write(results.sample(), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.html"]


def test_the_file_can_be_read_by_whom_the_umask_lets(tmp_path):
    path = tmp_path / "report.html"
    before = os.umask(0o027)
    try:
        report.write(results.sample(), path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path):
    real, link = tmp_path / "real.html", tmp_path / "link.html"
    real.write_text("old")
    link.symlink_to(real)
    report.write(results.sample(), link)
    assert link.is_symlink()
    assert real.read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("name", ["missing/report.html", "."])
def test_a_path_that_cannot_be_written_is_an_error_with_a_hint(tmp_path, name):
    with pytest.raises(
        ferry.InvalidArgumentError, match=r"cannot be written to .*\nhint: name a file"
    ):
        report.write(results.sample(), tmp_path / name)
