"""Small charts: the last minutes of one worker as a lane, and the last hour of one queue as bars."""

from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import NamedTuple

from markupsafe import Markup

WIDTH = 760.0
ROW, TALL = 11.0, 9.0
NARROWEST = 2.5
# With more attempts at once, the others share the last line.
MOST_ROWS = 8
SPARK_WIDTH, SPARK_HEIGHT = 300.0, 44.0
KINDS = {
    "running": "now",
    "succeeded": "ok",
    "retry": "retry",
    "snooze": "skip",
    "release": "skip",
    "cancelled": "skip",
    "crash": "dead",
    "dead": "dead",
}


class ActivityBar(NamedTuple):
    """One attempt. `end`: None while it runs."""

    start: datetime
    end: datetime | None
    outcome: str
    words: str
    href: str


def lane(bars: Sequence[ActivityBar], now: datetime, seconds: float, label: str) -> Markup:
    """Draw concurrent attempts below each other, from `seconds` ago to now; each bar links to its job.

    Bars are no tab stops: there may be hundreds, and the jobs are also a list.
    """
    free: list[datetime] = []
    marks = []
    for bar in sorted(bars, key=lambda each: each.start):
        end = bar.end or now
        row = next((place for place, until in enumerate(free) if until <= bar.start), len(free))
        if row == len(free) and row < MOST_ROWS:
            free.append(end)
        row = min(row, MOST_ROWS - 1)
        free[row] = max(free[row], end)
        left, right = (_across(at, now, seconds) for at in (bar.start, end))
        wide = max(NARROWEST, right - left)
        marks.append(
            f'<a href="{escape(bar.href)}" tabindex="-1"><title>{escape(bar.words)}</title>'
            f'<rect class="f-{KINDS.get(bar.outcome, "skip")}" x="{min(left, WIDTH - wide):.1f}" '
            f'y="{row * ROW + 1:.0f}" width="{wide:.1f}" height="{TALL:.0f}" rx="2"/></a>'
        )
    height = max(1, len(free)) * ROW + 1
    minutes = "".join(
        f'<line class="gl" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height:.0f}"/>'
        for x in (WIDTH * part / 5 for part in range(6))
    )
    return _svg("lane", WIDTH, height, label, minutes + "".join(marks), role="group")


def _across(at: datetime, now: datetime, seconds: float) -> float:
    ago = (now - at).total_seconds()
    return WIDTH * (1 - min(1.0, max(0.0, ago / seconds)))


class ActivityMinute(NamedTuple):
    """Attempts that succeeded and that failed in a minute, and the tooltip."""

    good: int
    bad: int
    words: str


def spark(minutes: Sequence[ActivityMinute], label: str) -> Markup:
    """Draw a bar for each minute, the newest on the right."""
    top = max((each.good + each.bad for each in minutes), default=0) or 1
    wide = SPARK_WIDTH / max(1, len(minutes))
    marks = []
    for place, each in enumerate(minutes):
        x, y = place * wide, SPARK_HEIGHT - 1
        marks.append(f"<g><title>{escape(each.words)}</title>")
        marks.append(f'<rect class="hit" x="{x:.1f}" y="0" width="{wide:.1f}" height="{SPARK_HEIGHT:.0f}"/>')
        for kind, count in (("ok", each.good), ("dead", each.bad)):
            tall = count / top * (SPARK_HEIGHT - 3)
            y -= tall
            if tall:
                marks.append(
                    f'<rect class="f-{kind}" x="{x:.1f}" y="{y:.1f}" width="{wide * 0.76:.1f}" height="{tall:.1f}"/>'
                )
        marks.append("</g>")
    floor = f'<line class="gl" x1="0" x2="{SPARK_WIDTH:.0f}" y1="{SPARK_HEIGHT - 1:.0f}" y2="{SPARK_HEIGHT - 1:.0f}"/>'
    return _svg("spark", SPARK_WIDTH, SPARK_HEIGHT, label, floor + "".join(marks))


def _svg(name: str, width: float, height: float, label: str, inside: str, role: str = "img") -> Markup:
    return Markup(  # noqa: S704 - every text in it is escaped where it is written
        f'<svg class="{name}" viewBox="0 0 {width:.0f} {height:.0f}" role="{role}" '
        f'aria-label="{escape(label)}">{inside}</svg>'
    )
