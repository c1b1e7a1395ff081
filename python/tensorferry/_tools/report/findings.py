"""The sentences of the report: the headline, and the findings of each group and its plots."""

import statistics
from collections import Counter
from collections.abc import Sequence

from tensorferry._tools.bench import results
from tensorferry._tools.report import scale
from tensorferry._tools.report.groups import Comparison, Group, Row
from tensorferry._tools.report.markup import Html, code, join


def headline(groups: Sequence[Group]) -> str:
    """The finding of the whole report, as a sentence: the median, not the best or the range."""
    measured = [group for group in groups if group.ours]
    if not measured:
        return "ferry.to was not measured."
    sharing = sum(group.memory == "shares" for group in measured)
    if len(measured) == 1:
        phrases = {"shares": "the conversion shares memory", "copies": "the conversion copies"}
        shares = phrases.get(measured[0].memory, "the conversion shares memory at some sizes")
    else:
        of_all = scale.NO_BREAK_SPACE.join((str(sharing or "none"), "of", str(len(measured))))
        shares = f"{of_all} conversions {'shares' if sharing == 1 else 'share'} memory"
    comparisons = [one for group in groups for one in group.comparisons]
    if not comparisons:
        return f"No native method was measured; {shares}."
    start = "ferry.to" if len(comparisons) == 1 else "In the median, ferry.to"
    speed = _speed(statistics.median(one.ratio for one in comparisons))
    return f"{start} {speed} the best native method; {shares}."


def _speed(ratio: float) -> str:
    """The speed for one ratio: `is 33 times as fast as`."""
    if scale.ratio(ratio) in ("1.0", "0.99", "1.00"):
        return "is as fast as"
    if ratio < 1:
        return f"takes {scale.ratio(1 / ratio)} times as long as"
    return f"is {scale.ratio(ratio)} times as fast as"


def span(groups: Sequence[Group]) -> str:
    """The range of the ratios, as a sentence; empty for fewer than two."""
    ratios = [one.ratio for group in groups for one in group.comparisons]
    if len(ratios) < 2:
        return ""
    ends = scale.between(scale.ratio(min(ratios)), scale.ratio(max(ratios)))
    return f"The ratios range from {ends}." if " to " in ends else ""


def rule(groups: Sequence[Group]) -> str:
    """The rule by which a comparison is ahead, level or behind."""
    comparisons = (one for group in groups for one in group.comparisons)
    return results.rule(has_intervals=all(one.native.interval for one in comparisons))


def against(comparisons: Sequence[Comparison]) -> str:
    """The speed of `ferry.to` relative to native methods: `is 1.0 to 33 times as fast as`."""
    if not comparisons:
        return ""
    ratios = [one.ratio for one in comparisons]
    if max(ratios) < 1 and scale.ratio(max(ratios)) != "1.0":
        longer = scale.between(*(scale.ratio(1 / end) for end in (max(ratios), min(ratios))))
        return f"takes {longer} times as long as"
    times = scale.between(scale.ratio(min(ratios)), scale.ratio(max(ratios)))
    return "is as fast as" if times == "1.0" else f"is {times} times as fast as"


def tally(groups: Sequence[Group]) -> str:
    """How often `ferry.to` is ahead, level and behind."""
    verdicts = Counter(one.verdict for group in groups for one in group.comparisons)
    count = verdicts.total()
    if not count:
        return ""
    if count == 1:
        return f"In the only comparison, ferry.to is {next(iter(verdicts))}."
    if count in verdicts.values():
        return f"In all {count} comparisons, ferry.to is {next(iter(verdicts))}."
    counts = [f"{verdict} in {verdicts[verdict] or 'none'}" for verdict in results.VERDICTS]
    return f"Of {count} comparisons, ferry.to is {listed(counts)}."


def summary(group: Group) -> Html:
    """The finding of one group."""
    if not group.ours:
        return Html("ferry.to was not measured here.")
    parts = [_our_times(group)]
    comparisons = group.comparisons
    if comparisons:
        parts.append(join(" That ", against(comparisons), " ", _best(comparisons), "."))
    else:
        parts.append(" No native method was measured.")
    behind = [one for one in comparisons if one.verdict == "behind"]
    if behind and len(behind) < len(comparisons):
        parts.append(f" It is behind at {listed([scale.size(one.bytes) for one in behind])}.")
    return join(*parts)


def description(group: Group, measure: str) -> str:
    """The description of a plot for screen readers."""
    lines = []
    for series in group.series:
        rows = [row for row in series.rows if measure == "time" or row.moves_bytes]
        if not rows:
            continue
        first, last = rows[0], rows[-1]
        shown = f"{series.method}: {value(first, measure)} at {scale.size(first.bytes)}"
        if last is not first:
            shown += f", {value(last, measure)} at {scale.size(last.bytes)}"
        lines.append(shown)
    if group.limit:
        count, seconds = group.limit.points[-1]
        shown = scale.duration(seconds) if measure == "time" else scale.rate(count / seconds)
        lines.append(f"the limit, {group.limit.name}: {shown} at {scale.size(count)}")
    verdict = against(group.comparisons)
    found = f"ferry.to {verdict} the best native method. " if verdict else ""
    return f"{found}Both axes are logarithmic. {'; '.join(lines)}."


def column(group: Group, measure: str, size: int) -> str:
    """The values at one size, one line each."""
    lines = [scale.size(size)]
    lines += [
        f"{value(row, measure)}  {row.method}"
        for row in sorted(group.drawn, key=lambda row: row.time)
        if row.bytes == size and (measure == "time" or row.moves_bytes)
    ]
    return "\n".join(lines)


def value(row: Row, measure: str) -> str:
    """The time or bandwidth of a row, as text."""
    return scale.duration(row.time) if measure == "time" else scale.rate(row.rate)


def listed(words: Sequence[str]) -> str:
    """Words joined by commas, and by `and` before the last."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _our_times(group: Group) -> str:
    """What `ferry.to` does, and its times."""
    rows, memory = group.ours, group.memory
    first, last = rows[0], rows[-1]
    start = {
        "shares": "Shares memory",
        "copies": "Copies",
        "shares or copies": "Shares or copies, depending on the size",
    }.get(memory, "Converts")
    if first is last:
        text = f"{start} in {scale.duration(first.time)} at {scale.size(first.bytes)}"
    elif max(row.time for row in rows) < 2 * min(row.time for row in rows):
        times = [row.time for row in rows]
        span = scale.between(scale.duration(min(times)), scale.duration(max(times)))
        text = f"{start} in {span}, independent of the size"
    else:
        text = (
            f"{start} in {scale.duration(first.time)} at {scale.size(first.bytes)} "
            f"and {scale.duration(last.time)} at {scale.size(last.bytes)}"
        )
    limit = group.limit and group.limit.at(last.bytes)
    if last.shares is False and group.limit and limit:
        share = f"{100 * limit / last.time:.0f}%"
        text += f", which is {share} of the speed of {group.limit.phrase}"
    return text + "."


def _best(comparisons: Sequence[Comparison]) -> Html:
    methods = Counter(one.native.method for one in comparisons)
    method, count = methods.most_common(1)[0]
    often = "" if count == len(comparisons) else "most often "
    return join("the best native method, ", often, code(method))
