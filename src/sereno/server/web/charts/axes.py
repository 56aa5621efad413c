"""Axes of charts: round values with their units, times below, and the scale of shades."""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import TypeAlias

from sereno.server.web.times import length

# Formats a value with its unit.
Amount: TypeAlias = Callable[[float], str]
# Lines above the baseline, and labels of times below it.
MOST_LINES, MOST_TIMES = 3, 6
LEVELS = 9
THOUSAND = 1000
DAY = 86_400.0
# Seconds between two lines: what people count in.
STEPS_OF_TIME = (20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0)
# Side of a square in the scale of shades.
SWATCH = 11.0


def count(value: float) -> str:
    """Return a count in few letters: 950, 1.2k, 3M."""
    for size, name in ((THOUSAND**3, "G"), (THOUSAND**2, "M"), (THOUSAND, "k")):
        if value >= size:
            return f"{value / size:.3g}{name}"
    return f"{value:.3g}"


def duration(value: float) -> str:
    return length(value) if value else "0 s"


def percentage(value: float) -> str:
    return f"{value:.3g} %"


def ticks(top: float, amount: Amount) -> list[float]:
    """Return round values from 0 to at least `top`: whole counts, and whole minutes and hours."""
    if top <= 0:
        return [0.0, 1.0]
    size = 10.0 ** math.floor(math.log10(top / MOST_LINES))
    steps = [size * each for each in (1, 2, 5, 10)]
    if amount is duration and top > MOST_LINES * STEPS_OF_TIME[0]:
        steps = [*STEPS_OF_TIME, *(DAY * each for each in (1, 2, 5, 10, 30, 100))]
    step = next((each for each in steps if each * MOST_LINES >= top * (1 - 1e-9)), steps[-1])
    if amount is count:
        step = max(1.0, step)
    return [step * number for number in range(math.ceil(top / step - 1e-9) + 1)]


def values(marks: Sequence[float], amount: Amount, left: float, right: float, floor: float, height: float) -> str:
    """Draw the lines of these values and their labels; the last one is `height` above the floor."""
    drawn = []
    for mark in marks:
        y = floor - mark / marks[-1] * height
        drawn.append(
            f'<line class="gl" x1="{left:.0f}" x2="{right:.0f}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="ax ay end" x="{left - 6:.0f}" y="{y + 3.5:.1f}">{escape(amount(mark))}</text>'
        )
    return "".join(drawn)


def times(steps: Sequence[str], centres: Sequence[float], y: float) -> str:
    """Draw the first and the last time, and some between; the last one always stands last."""
    if not steps:
        return ""
    every = max(1, math.ceil((len(steps) - 1) / (MOST_TIMES - 1)))
    last = len(steps) - 1
    # A label too near to the last one would overlap it.
    shown = [place for place in range(0, last, every) if last - place >= every * 0.7 or place == 0]
    drawn = [_time(steps[place], centres[place] if place else None, y) for place in shown if last]
    end = f'<text class="ax end" x="{centres[last] + 14:.1f}" y="{y:.0f}">{escape(steps[last])}</text>'
    return "".join(drawn) + end


def _time(words: str, centre: float | None, y: float) -> str:
    """Draw a time below the middle of its step, or at the left edge; a narrow chart shows the ones at the edges."""
    kind, x = ("ax", 0.0) if centre is None else ("ax middle am", centre)
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.0f}">{escape(words)}</text>'


def shades(top: float, words: str, x: float, y: float) -> str:
    """Draw the scale of shades, from nothing to `top`; `words` are the unit."""
    squares = "".join(
        f'<rect class="h{level}" x="{x + 14 + level * (SWATCH + 1):.0f}" y="{y:.0f}" width="{SWATCH:.0f}" '
        f'height="{SWATCH:.0f}" rx="1.5"/>'
        for level in range(LEVELS + 1)
    )
    end = x + 18 + (LEVELS + 1) * (SWATCH + 1)
    return (
        f'<g class="scale"><text class="ax" x="{x:.0f}" y="{y + 9.5:.0f}">0</text>{squares}'
        f'<text class="ax" x="{end:.0f}" y="{y + 9.5:.0f}">{count(top)} {escape(words)}</text></g>'
    )
