"""Days as squares: a column for each week, Monday on top, the current one on the right."""

import math
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from html import escape
from typing import Literal, NamedTuple

from markupsafe import Markup

STEP, SIDE = 23.0, 19.0
LEFT, TOP = 36.0, 18.0
WEEK = 7
LEVELS = 9
# Weekdays with a label: Monday, Wednesday, Friday.
SIDE_DAYS = (0, 2, 4)
# Marks in a square, from its upper left corner: a tick, a dot, a cross, so that states differ without colours.
MARKS = {
    "archived": '<path class="mark" d="M{a:.0f} {c:.0f}l4 4 6 -8"/>',
    "waiting": '<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="3"/>',
    "failed": '<path class="mark" d="M{a:.0f} {b:.0f}l9 9m0 -9l-9 9"/>',
}


class DaySquare(NamedTuple):
    """`amount`: rows, `overdue`: past retention, the tooltip, and the state of its files if it is archived."""

    amount: int
    is_overdue: bool
    words: str
    became: Literal["archived", "waiting", "failed"] | None = None


def first_day(today: date, weeks: int) -> date:
    """Return the Monday on which the chart begins."""
    return today - timedelta(days=today.weekday() + WEEK * (weeks - 1))


def squares(
    days: Mapping[date, DaySquare], today: date, weeks: int, label: str, none: str, named: Callable[[date, str], str]
) -> Markup:
    """`none`: the tooltip of a day without rows. `named`: formats a month, "%b", or a weekday, "%a"."""
    start = first_day(today, weeks)
    top = max((each.amount for day, each in days.items() if day >= start), default=0)
    marks, month = [], None
    for place in range((today - start).days + 1):
        day = start + timedelta(days=place)
        x, y = LEFT + place // WEEK * STEP, TOP + place % WEEK * STEP
        if place % WEEK == 0 and day.month != month:
            month = day.month
            marks.append(f'<text class="ax" x="{x:.0f}" y="10">{escape(named(day, "%b"))}</text>')
        if place in SIDE_DAYS:
            marks.append(f'<text class="ax" x="0" y="{y + 13:.0f}">{escape(named(day, "%a"))}</text>')
        found = days.get(day)
        words = found.words if found else none
        marks.append(
            f'<rect class="{_shade(found, top)}" x="{x:.0f}" y="{y:.0f}" width="{SIDE:.0f}" height="{SIDE:.0f}" rx="3">'
            f"<title>{day.isoformat()}: {escape(words)}</title></rect>"
        )
        if found and found.became:
            middle = SIDE / 2
            places = {"a": x + 5, "b": y + 5, "c": y + middle, "x": x + middle, "y": y + middle}
            marks.append(MARKS[found.became].format(**places))
    width, height = LEFT + weeks * STEP, TOP + WEEK * STEP
    return Markup(  # noqa: S704 - every text in it is escaped where it is written
        f'<svg class="squares" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'role="img" aria-label="{escape(label)}">{"".join(marks)}</svg>'
    )


def _shade(found: DaySquare | None, top: int) -> str:
    """Return the shade, on a logarithmic scale: a quiet Sunday is visible beside a busy Monday."""
    if found is None:
        return "none"
    if found.became:
        return f"b-{found.became}"
    if found.is_overdue:
        return "f-dead"
    if not found.amount:
        return "h0"
    share = math.log1p(found.amount) / math.log1p(top)
    return f"h{max(1, min(LEVELS, round(share * LEVELS)))}"
