"""A small row of bars: a figure over the last hours."""

from collections.abc import Sequence
from html import escape

from markupsafe import Markup

TALL = 18
STEP = 4
WIDE = 3


def spark(values: Sequence[int], label: str, kind: str = "dead") -> Markup:
    """Draw the bars, the newest last; an empty hour is a line on the baseline."""
    top = max(values, default=0) or 1
    marks = []
    for place, value in enumerate(values):
        # A small value stays visible.
        tall = max(2.0, value / top * TALL) if value else 1.0
        marks.append(
            f'<rect class="f-{kind if value else "wait"}" x="{place * STEP}" y="{TALL - tall:.1f}" width="{WIDE}" '
            f'height="{tall:.1f}"/>'
        )
    wide = max(1, len(values)) * STEP
    return Markup(  # noqa: S704 - every text in it is escaped where it is written
        f'<svg class="dots" viewBox="0 0 {wide} {TALL}" width="{wide}" height="{TALL}" role="img" '
        f'aria-label="{escape(label)}"><title>{escape(label)}</title>{"".join(marks)}</svg>'
    )
