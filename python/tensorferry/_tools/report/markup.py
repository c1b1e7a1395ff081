"""HTML that is safe by construction: text is escaped unless it is already markup.

The page is well-formed XML as well as HTML, so that an XML parser can check it.
"""

import html
import re

VOID = frozenset({"input", "link", "meta"})
# Characters that XML or UTF-8 cannot represent, and those that change the direction of text.
UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
DIRECTION_SYMBOLS = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")


# Fast path: most text needs no escaping.
UNESCAPED = re.compile("[\\w .,:;/%#()=+*-]*", re.ASCII)


class Html(str):
    """Markup, which is not escaped again."""

    __slots__ = ()


def escape(text: object) -> Html:
    """The text as markup; markup stays unchanged."""
    if isinstance(text, Html):
        return text
    decimal_text = str(text)
    if UNESCAPED.fullmatch(decimal_text):
        return Html(decimal_text)
    shown = DIRECTION_SYMBOLS.sub("\ufffd", UNPRINTABLE.sub("\ufffd", decimal_text))
    return Html(html.escape(shown, quote=True))


def join(*parts: object) -> Html:
    """The parts concatenated."""
    return Html("".join(map(escape, parts)))


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """One element. `class_` is `class`, `aria_label` is `aria-label`; None omits an attribute."""
    opening = name
    for key, value in attributes.items():
        if value is not None and value is not False:
            text = "" if value is True else escape(value)
            opening += f' {key.rstrip("_").replace("_", "-")}="{text}"'
    if name in VOID:
        return Html(f"<{opening}/>")
    return Html(f"<{opening}>{join(*children)}</{name}>")


def code(text: object) -> Html:
    """Program code."""
    return element("code", text)


def screen_reader_text(text: object) -> Html:
    """Text for screen readers only."""
    return element("span", text, class_="screen-reader")
