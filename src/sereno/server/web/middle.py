"""Names that are cut in the middle: the end of a key tells it from its neighbours."""

import re

from markupsafe import Markup, escape

# Letters of the part that is never cut, without and with a separator at its start.
TAIL, LONGEST_TAIL = 8, 16
# A name of as many letters is never cut.
SHORT = 12
# A name of more letters has room for this many at least.
LONG = 18
SEPARATORS = re.compile(r"[.:/@_-]")


def middle(name: str | None) -> Markup:
    """Return the name in two parts: the first shrinks to an ellipsis where there is no room, the second stays."""
    text = name or "\N{EN DASH}"
    if len(text) <= SHORT:
        return escape(text)
    cut = _cut(text)
    kind = "mid long" if len(text) > LONG else "mid"
    inside = f"<span>{escape(text[:cut])}</span><span>{escape(text[cut:])}</span>"
    return Markup(f'<span class="{kind}" title="{escape(text)}">{inside}</span>')  # noqa: S704 - escaped


def _cut(text: str) -> int:
    """Return where the tail begins: at a separator that leaves it short enough, or a few letters from the end."""
    start = max(1, len(text) - LONGEST_TAIL)
    found = SEPARATORS.search(text, start, max(start, len(text) - TAIL // 2))
    return found.start() if found else max(0, len(text) - TAIL)
