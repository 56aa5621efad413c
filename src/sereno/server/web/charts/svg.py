"""Charts, rendered on the server: plain SVG with colours of the style sheet, and a tooltip on every mark.

Every chart also has its figures as text (`role="img"` with a label), and needs no script.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from markupsafe import Markup

from sereno.server.web.charts import axes
from sereno.server.web.charts.axes import Amount
from sereno.server.web.numbers import NONE, figure

WIDTH, HEIGHT = 592.0, 138.0
# Space below the chart for the times.
FLOOR = 120.0
GAP = 0.24
# Space for the values on the left, and the height of the largest one.
LEFT, HIGHEST = 52.0, FLOOR - 10.0
# Names in the key of a chart; more of them have a list of their own.
MOST_NAMES = 5
# Width of the line of a single value.
ALONE = 5.0


class ChartSeries(NamedTuple):
    """One colour of a chart: a class of the style sheet, and a value for each step; None where unknown."""

    name: str
    kind: str
    values: Sequence[float | None]


def bars(steps: Sequence[str], series: Sequence[ChartSeries], label: str, amount: Amount = axes.count) -> Markup:
    """Draw stacked bars, one for each step; `steps` are the times, `amount` formats a value with its unit."""
    totals = [sum(one.values[place] or 0 for one in series) for place in range(len(steps))]
    marks = axes.ticks(max(totals, default=0), amount)
    wide = (WIDTH - LEFT) / max(1, len(steps))
    drawn = []
    for place, step in enumerate(steps):
        y = FLOOR
        words = ", ".join(f"{one.name} {amount(one.values[place] or 0)}" for one in series if one.values[place])
        drawn.append(_column(place, wide, f"{step}: {words or NONE}"))
        for one in series:
            tall = (one.values[place] or 0) / marks[-1] * HIGHEST
            y -= tall
            if tall > 0:
                drawn.append(
                    f'<rect class="f-{one.kind}" x="{LEFT + place * wide:.1f}" y="{y:.1f}" '
                    f'width="{wide * (1 - GAP):.1f}" height="{tall:.1f}" rx="1"/>'
                )
        drawn.append("</g>")
    return _figure(steps, [(one.kind, one.name) for one in series], label, _values(marks, amount) + "".join(drawn))


def lines(
    steps: Sequence[str],
    series: Sequence[ChartSeries],
    label: str,
    amount: Amount = axes.duration,
    *,
    oldest: tuple[str, float] | None = None,
) -> Markup:
    """Draw one line for each series, with gaps for unknown values. `oldest`: the name and height of a dashed line."""
    top = max((value for one in series for value in one.values if value is not None), default=0)
    marks = axes.ticks(max(top, oldest[1] if oldest else 0), amount)
    wide = (WIDTH - LEFT) / max(1, len(steps))
    drawn = []
    for one in series:
        for stretch in _stretches(one.values):
            points = [(LEFT + (place + 0.5) * wide, FLOOR - value / marks[-1] * HIGHEST) for place, value in stretch]
            # A single value would have a line without length.
            points = points if len(points) > 1 else [(points[0][0] - ALONE, points[0][1]), points[0]]
            path = " L".join(f"{x:.1f},{y:.1f}" for x, y in points)
            drawn.append(f'<path class="l-{one.kind}" d="M{path}"><title>{escape(one.name)}</title></path>')
    names = [(one.kind, one.name) for one in series]
    if oldest is not None:
        y = FLOOR - oldest[1] / marks[-1] * HIGHEST
        words = escape(f"{oldest[0]} {amount(oldest[1])}")
        drawn.append(f'<path class="l-old" d="M{LEFT:.0f},{y:.1f} L{WIDTH:.0f},{y:.1f}"><title>{words}</title></path>')
        names.append(("old", oldest[0]))
    for place, step in enumerate(steps):
        words = ", ".join(f"{one.name} {amount(value)}" for one in series if (value := one.values[place]) is not None)
        drawn.append(_column(place, wide, f"{step}: {words or NONE}") + "</g>")
    return _figure(steps, names, label, _values(marks, amount) + "".join(drawn))


def _column(place: int, wide: float, words: str) -> str:
    """Begin the group of a step: the whole column has the tooltip, also where a bar is low."""
    return (
        f"<g><title>{escape(words)}</title>"
        f'<rect class="hit" x="{LEFT + place * wide:.1f}" y="0" width="{wide:.1f}" height="{FLOOR:.0f}"/>'
    )


def _values(marks: Sequence[float], amount: Amount) -> str:
    return axes.values(marks, amount, LEFT, WIDTH, FLOOR, HIGHEST)


def _figure(steps: Sequence[str], names: Sequence[tuple[str, str]], label: str, inside: str) -> Markup:
    """Wrap a chart over time: its key, a cursor that all charts of the same times share, and the words of its step."""
    wide = (WIDTH - LEFT) / max(1, len(steps))
    below = axes.times(steps, [LEFT + (place + 0.5) * wide for place in range(len(steps))], 135)
    cursor = f'<line class="cursor" x1="0" x2="0" y1="0" y2="{FLOOR:.0f}"/>'
    key = "".join(f'<span><i class="k-{kind}"></i>{escape(name)}</span>' for kind, name in names[:MOST_NAMES])
    times = escape(f"{len(steps)} {steps[0] if steps else ''} {steps[-1] if steps else ''}")
    return Markup(  # noqa: S704 - every text in it is escaped where it is written
        f'<div class="chart" data-times="{times}" data-left="{LEFT / WIDTH:.5f}" tabindex="0" role="group" '
        f'aria-label="{escape(label)}" data-focus="chart {escape(label)}">'
        f"{_svg(HEIGHT, label, inside + cursor + below)}"
        f'<p class="under"><span class="key">{key}</span><output></output></p></div>'
    )


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


def heat(columns: Sequence[str], cells: Sequence[Sequence[tuple[str, float]]], label: str, unit: str) -> Markup:
    """Draw a column for each hour, with its cells from top to bottom: a tooltip and a value each.

    `unit`: of the scale.
    """
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
    return _svg(146.0, label, "".join(marks) + names + axes.shades(top, unit, 0.0, 133.0))


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
