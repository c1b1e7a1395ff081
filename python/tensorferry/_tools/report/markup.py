"""Markup that is safe by construction: whatever is not markup already is escaped on its way in.

The page is well-formed XML as well as HTML, so that an XML parser can check all of it.
"""

import html
import re

VOID = frozenset({"input", "link", "meta"})
# Nothing that XML or UTF-8 cannot hold gets in, nor what would turn the direction of the text.
UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
TURNING = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")


# Most text is such that there is nothing to do, and there is much of it.
HARMLESS = re.compile("[\\w .,:;/%#()=+*-]*", re.ASCII)


class Html(str):
    """Text that is markup, and is not escaped again."""

    __slots__ = ()


def escape(text: object) -> Html:
    """The text as markup that shows it; markup stays what it is."""
    if isinstance(text, Html):
        return text
    words = str(text)
    if HARMLESS.fullmatch(words):
        return Html(words)
    shown = TURNING.sub("\ufffd", UNPRINTABLE.sub("\ufffd", words))
    return Html(html.escape(shown, quote=True))


def join(*parts: object) -> Html:
    """The parts, one after the other."""
    return Html("".join(map(escape, parts)))


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """One element. `class_` is `class`, `aria_label` is `aria-label`; None leaves one out."""
    opening = name
    for key, value in attributes.items():
        if value is not None and value is not False:
            text = "" if value is True else escape(value)
            opening += f' {key.rstrip("_").replace("_", "-")}="{text}"'
    if name in VOID:
        return Html(f"<{opening}/>")
    return Html(f"<{opening}>{join(*children)}</{name}>")


def code(text: object) -> Html:
    """A piece of a program."""
    return element("code", text)


def unseen(text: object) -> Html:
    """Text for those who hear the page."""
    return element("span", text, class_="unseen")
