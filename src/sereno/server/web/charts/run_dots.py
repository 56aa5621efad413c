"""The last runs of a schedule as a row of marks that link to their jobs."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from markupsafe import Markup

STEP, WIDE = 8, 6.4


class RunDot(NamedTuple):
    """A class of the style sheet, the tooltip, and the link."""

    kind: str
    words: str
    href: str | None = None


def run_dots(dots: Sequence[RunDot], label: str) -> Markup:
    """Draw the runs, the newest last. Marks are not tab stops: there may be hundreds, and the row itself has a link."""
    marks = "".join(_mark(place, dot) for place, dot in enumerate(dots))
    wide = max(1, len(dots)) * STEP
    return Markup(  # noqa: S704 - every text in it is escaped where it is written
        f'<svg class="dots" viewBox="0 0 {wide} 16" width="{wide}" height="16" role="group" '
        f'aria-label="{escape(label)}">{marks}</svg>'
    )


def _mark(place: int, dot: RunDot) -> str:
    words = escape(dot.words)
    shape = f'<rect class="f-{dot.kind}" x="{place * STEP}" y="1" width="{WIDE}" height="14" rx="2"/>'
    if dot.href is None:
        return f"<g><title>{words}</title>{shape}</g>"
    return f'<a href="{escape(dot.href)}" tabindex="-1"><title>{words}</title>{shape}</a>'
