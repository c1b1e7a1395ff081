"""The wording of the benchmark's report: headline, tally, summaries and descriptions."""

from __future__ import annotations

import re

from support import golden_text, results

from tensorferry._tools.bench import load
from tensorferry._tools.report import controls, findings, grouping, scale


def test_wording():
    texts = {}
    for name in ("sample", "many"):
        groups = grouping.group(getattr(results, name)())
        texts[f"{name} headline"] = findings.headline(groups)
        texts[f"{name} tally"] = findings.tally(groups)
        texts[f"{name} span"] = findings.span(groups)
        texts[f"{name} rule"] = findings.rule(groups)
    for group in grouping.group(results.sample()):
        title = f"{group.conversion.name}, {group.conversion.devices}"
        texts[f"{title} summary"] = findings.summary(group)
        texts[f"{title} time"] = findings.description(group, "time")
    texts["legend"] = controls.legend()
    texts["busy"] = load.warning(results.PAGES["busy"]())
    plain = {
        name: re.sub("<[^>]*>", " ", text).replace(scale.NO_BREAK_SPACE, " ")
        for name, text in texts.items()
    }
    golden_text.check("report", {name: " ".join(text.split()) for name, text in plain.items()})
