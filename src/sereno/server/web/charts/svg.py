"""Charts, rendered on the server: plain SVG with colours of the style sheet, and a tooltip on every mark.

Every chart also has its figures as text (`role="img"` with a label), and needs no script.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from markupsafe import Markup

from sereno.server.web.numbers import NONE, figure

WIDTH, HEIGHT = 592.0, 138.0
# Space below the chart for the times.
FLOOR = 120.0
GAP = 0.24
# Width of the line of a single value.
ALONE = 5.0


class ChartSeries(NamedTuple):
    """One colour of a chart: a class of the style sheet, and a value for each step; None where unknown."""

    name: str
    kind: str
    values: Sequence[float | None]


def bars(steps: Sequence[str], series: Sequence[ChartSeries], label: str) -> Markup:
    """Draw stacked bars, one for each step; `steps` are the tooltips."""
    totals = [sum(one.values[place] or 0 for one in series) for place in range(len(steps))]
    top = max(totals, default=0) or 1
    wide = WIDTH / max(1, len(steps))
    marks = []
    for place, step in enumerate(steps):
        y = FLOOR
        words = ", ".join(f"{figure(one.values[place] or 0)} {one.name}" for one in series if one.values[place])
        marks.append(f"<g><title>{escape(step)}: {escape(words or NONE)}</title>")
        # The whole column has the tooltip, also where the bar is low.
        marks.append(f'<rect class="hit" x="{place * wide:.1f}" y="0" width="{wide:.1f}" height="{FLOOR:.0f}"/>')
        for one in series:
            tall = (one.values[place] or 0) / top * (FLOOR - 4)
            y -= tall
            if tall > 0:
                marks.append(
                    f'<rect class="f-{one.kind}" x="{place * wide:.1f}" y="{y:.1f}" '
                    f'width="{wide * (1 - GAP):.1f}" height="{tall:.1f}" rx="1"/>'
                )
        marks.append("</g>")
    return _svg(HEIGHT, label, _floor() + "".join(marks) + _ends(steps))


def lines(
    steps: Sequence[str], series: Sequence[ChartSeries], label: str, unit: str = "s", *, oldest: float | None = None
) -> Markup:
    """Draw one line for each series, with gaps for unknown values. `oldest`: a dashed line."""
    top = max((value for one in series for value in one.values if value is not None), default=0)
    top = max(top, oldest or 0) or 1
    step_wide = WIDTH / max(1, len(steps) - 1)
    marks = []
    for one in series:
        for stretch in _stretches(one.values):
            # A single value would have a line without length.
            places = [(place * step_wide, value) for place, value in stretch]
            places = places if len(places) > 1 else [(places[0][0] - ALONE, places[0][1]), (places[0][0], places[0][1])]
            points = [f"{x:.1f},{FLOOR - value / top * (FLOOR - 8):.1f}" for x, value in places]
            title = f"<title>{escape(one.name)}</title>"
            marks.append(f'<path class="l-{one.kind}" d="M{" L".join(points)}">{title}</path>')
    if oldest is not None:
        y = FLOOR - oldest / top * (FLOOR - 8)
        marks.append(
            f'<path class="l-old" d="M0,{y:.1f} L{WIDTH:.0f},{y:.1f}"><title>{oldest:.3g} {unit}</title></path>'
        )
    for place, step in enumerate(steps):
        words = ", ".join(
            f"{one.name} {one.values[place]:.3g} {unit}" for one in series if one.values[place] is not None
        )
        marks.append(
            f'<rect class="hit" x="{(place - 0.5) * step_wide:.1f}" y="0" width="{step_wide:.1f}" height="{FLOOR:.0f}">'
            f"<title>{escape(step)}: {escape(words or NONE)}</title></rect>"
        )
    return _svg(HEIGHT, label, _floor() + "".join(marks) + _ends(steps))


def _stretches(values: Sequence[float | None]) -> Iterator[list[tuple[int, float]]]:
    """Yield the known values without the gaps: positions and values."""
    found: list[tuple[int, float]] = []
    for place, value in enumerate(values):
        if value is not None:
            found.append((place, value))
        elif found:
            yield found
            found = []
    if found:
        yield found


def heat(columns: Sequence[str], cells: Sequence[Sequence[tuple[str, float]]], label: str) -> Markup:
    """Draw a column for each hour, with its cells from top to bottom: a tooltip and a value each."""
    top = max((value for column in cells for _, value in column), default=0) or 1
    wide = WIDTH / max(1, len(cells))
    rows = max((len(column) for column in cells), default=1)
    tall = 108.0 / rows
    marks = []
    for x, column in enumerate(cells):
        for y, (words, value) in enumerate(column):
            level = 0 if not value else 1 + min(8, int(value / top * 8.999))
            marks.append(
                f'<rect class="h{level}" x="{x * wide + 0.9:.1f}" y="{y * tall + 0.7:.1f}" width="{wide - 1.8:.1f}" '
                f'height="{tall - 1.4:.1f}" rx="1.5"><title>{escape(words)}</title></rect>'
            )
    every = max(1, len(columns) // 4)
    names = "".join(
        f'<text class="ax" x="{x * wide:.1f}" y="123">{escape(columns[x])}</text>'
        for x in range(0, len(columns), every)
    )
    return _svg(126.0, label, "".join(marks) + names)


class FunnelStage(NamedTuple):
    """One bar of a funnel."""

    name: str
    kind: str
    number: int


def funnel(stages: Sequence[FunnelStage], label: str) -> Markup:
    """Draw the stages, the widest first."""
    top = max((stage.number for stage in stages), default=0) or 1
    marks = []
    for place, stage in enumerate(stages):
        wide = stage.number / top * 430
        marks.append(
            f'<g transform="translate(0,{place * 26})"><text class="k" x="0" y="15">{escape(stage.name)}</text>'
            f'<rect class="f-{stage.kind}" x="86" y="3" width="{max(wide, 1):.0f}" height="17" rx="3"/>'
            f'<text class="n" x="{92 + wide:.0f}" y="15">{figure(stage.number)}</text></g>'
        )
    return _svg(max(1, len(stages)) * 26.0 + 2, label, "".join(marks))


def dots(runs: Sequence[tuple[str, str]], label: str) -> Markup:
    """Draw a row of small marks, the newest last: a kind and a tooltip each."""
    marks = "".join(
        f'<rect class="f-{kind}" x="{place * 10}" y="1" width="8" height="14" rx="2">'
        f"<title>{escape(words)}</title></rect>"
        for place, (kind, words) in enumerate(runs)
    )
    wide = max(1, len(runs)) * 10
    return Markup(  # noqa: S704 - every text in it is escaped where it is written
        f'<svg class="dots" viewBox="0 0 {wide} 16" width="{wide}" height="16" role="img" '
        f'aria-label="{escape(label)}">{marks}</svg>'
    )


def _svg(height: float, label: str, inside: str) -> Markup:
    return Markup(  # noqa: S704 - every text in it is escaped where it is written
        f'<svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="{escape(label)}">{inside}</svg>'
    )


def _floor() -> str:
    return f'<line class="gl" x1="0" x2="{WIDTH:.0f}" y1="{FLOOR:.0f}" y2="{FLOOR:.0f}"/>'


def _ends(steps: Sequence[str]) -> str:
    if not steps:
        return ""
    return (
        f'<text class="ax" x="0" y="135">{escape(steps[0])}</text>'
        f'<text class="ax end" x="{WIDTH:.0f}" y="135">{escape(steps[-1])}</text>'
    )
