"""Planned runs by day and hour: a row for each day, a cell for each hour in the viewer's time zone."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from markupsafe import Markup

from sereno.server.web.charts.axes import LEVELS, shades

WIDTH, LEFT, TALL = 592.0, 44.0, 17.0
HOURS = 24


class HeatHour(NamedTuple):
    """The tooltip, and the number of runs."""

    words: str
    number: float


def week_heat(days: Sequence[tuple[str, Sequence[HeatHour | None]]], label: str, unit: str) -> Markup:
    """Draw the days, each with a name and 24 hours; None where unknown. `unit`: of the scale."""
    top = max((hour.number for _, hours in days for hour in hours if hour is not None), default=0) or 1
    wide = (WIDTH - LEFT) / HOURS
    marks = []
    for row, (name, hours) in enumerate(days):
        marks.append(f'<text class="ax" x="0" y="{row * TALL + 12:.1f}">{escape(name)}</text>')
        for place, hour in enumerate(hours):
            if hour is None:
                continue
            level = 0 if not hour.number else 1 + min(LEVELS - 1, int(hour.number / top * (LEVELS - 0.001)))
            marks.append(
                f'<rect class="h{level}" x="{LEFT + place * wide:.1f}" y="{row * TALL + 0.7:.1f}" '
                f'width="{wide - 1.8:.1f}" height="{TALL - 1.8:.1f}" rx="2"><title>{escape(hour.words)}</title></rect>'
            )
    floor = len(days) * TALL
    marks += [
        f'<text class="ax" x="{LEFT + place * wide:.1f}" y="{floor + 12:.1f}">{place:02}:00</text>'
        for place in range(0, HOURS, 6)
    ]
    inside = "".join(marks) + shades(top, unit, LEFT, floor + 20)
    return Markup(  # noqa: S704 - every text in it is escaped where it is written
        f'<svg viewBox="0 0 {WIDTH:.0f} {floor + 34:.0f}" role="img" aria-label="{escape(label)}">{inside}</svg>'
    )
