"""How late runs began: a mark for each, by planned time; a logarithmic scale from milliseconds to days."""

import math
from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import NamedTuple

from markupsafe import Markup

from sereno.duration import duration_text

WIDTH, HEIGHT = 592.0, 150.0
LEFT, FLOOR = 44.0, 128.0
# Seconds of lateness that count as on time.
ON_TIME = 0.01
MARKS = (0.01, 0.1, 1, 10, 60, 600, 3600, 86_400, 864_000)
RADIUS = 3.4


class PunctualityPoint(NamedTuple):
    """`late`: seconds; None for a run that never started."""

    at: datetime
    late: float | None
    kind: str
    words: str


def punctuality(points: Sequence[PunctualityPoint], label: str, ends: tuple[str, str]) -> Markup:
    """Draw the runs; one that never started is a cross on the baseline."""
    known = [point.late for point in points if point.late is not None]
    top = next((mark for mark in MARKS[2:] if mark >= max(known, default=0)), MARKS[-1])
    first = min((point.at for point in points), default=None)
    span = (max(point.at for point in points) - first).total_seconds() if first is not None else 0.0
    drawn = [_line(mark, top) for mark in MARKS if mark <= top]
    for point in points:
        share = (point.at - first).total_seconds() / span if first is not None and span else 1.0
        drawn.append(_mark(LEFT + 6 + share * (WIDTH - LEFT - 12), point, top))
    drawn.append(f'<text class="ax" x="{LEFT:.0f}" y="146">{escape(ends[0])}</text>')
    drawn.append(f'<text class="ax end" x="{WIDTH:.0f}" y="146">{escape(ends[1])}</text>')
    return Markup(  # noqa: S704 - every text in it is escaped where it is written
        f'<svg viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" aria-label="{escape(label)}">{"".join(drawn)}</svg>'
    )


def _height(late: float, top: float) -> float:
    share = math.log(min(max(late, ON_TIME), top) / ON_TIME) / math.log(top / ON_TIME)
    return FLOOR - share * (FLOOR - 10)


def _line(mark: float, top: float) -> str:
    y = _height(mark, top)
    return (
        f'<line class="gl" x1="{LEFT:.0f}" x2="{WIDTH:.0f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="ax end" x="{LEFT - 6:.0f}" y="{y + 3.5:.1f}">{duration_text(mark)}</text>'
    )


def _mark(x: float, point: PunctualityPoint, top: float) -> str:
    title = f"<title>{escape(point.words)}</title>"
    if point.late is None:
        reach = RADIUS
        return (
            f'<path class="cut" d="M{x - reach:.1f},{FLOOR - reach:.1f} l{2 * reach:.1f},{2 * reach:.1f} '
            f'm0,{-2 * reach:.1f} l{-2 * reach:.1f},{2 * reach:.1f}">{title}</path>'
        )
    y = _height(point.late, top)
    return f'<circle class="f-{point.kind}" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}">{title}</circle>'
