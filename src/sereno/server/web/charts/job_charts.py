"""Charts of one job: its attempts on a time line, and its run time beside other runs of its task."""

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from html import escape
from typing import NamedTuple

from markupsafe import Markup

from sereno.jobs.queries.rows import AttemptRow, JobRow
from sereno.monitoring.traces.trace import TraceSegment, TraceSpan, cut, place
from sereno.server.web.times import length

WIDTH = 592.0
# Space for the number of the attempt on the left, and for its duration on the right.
LEFT, RIGHT = 24.0, 84.0
ROW = 22.0
NARROWEST = 3.0
# With more attempts, the last ones are drawn.
MOST_ATTEMPTS = 12
KINDS = {"succeeded": "ok", "retry": "retry", "crash": "dead", "dead": "dead", "running": "accent"}
TALL, FLOOR = 112.0, 96.0
# The shortest duration in seconds: a logarithmic scale has no zero.
SHORTEST = 0.001

Say = Callable[..., str]


def timeline(job: JobRow, attempts: Sequence[AttemptRow], now: datetime, say: Say) -> Markup:
    """Draw a row for each attempt: how long it waited, how long it ran, how it ended. Long waits are cut."""
    rows = _rows(job, attempts, now)[-MOST_ATTEMPTS:]
    segments = cut(span for _, spans in rows for span in spans)
    marks = []
    for number, (name, spans) in enumerate(rows):
        y = number * ROW
        marks.append(f'<text class="k" x="0" y="{y + 14:.0f}">{escape(name)}</text>')
        marks += [_bar(segments, span, y, say) for span in spans]
        run = next((span for span in spans if span.kind == "run"), None)
        if run is not None:
            words = length((run.end - run.start).total_seconds())
            marks.append(f'<text class="n end" x="{WIDTH:.0f}" y="{y + 14:.0f}">{escape(words)}</text>')
    height = max(1, len(rows)) * ROW
    marks += [_break(segment, height) for segment in segments if segment.kind == "break"]
    label = say("%(count)s attempts, with how long each waited and ran", count=len(attempts))
    return _svg(height, label, "".join(marks))


def _rows(job: JobRow, attempts: Sequence[AttemptRow], now: datetime) -> list[tuple[str, list[TraceSpan]]]:
    rows = []
    before = job.created_at
    for each in attempts:
        end = max(each.started_at, each.finished_at or now)
        waited = TraceSpan("wait", min(before, each.started_at), each.started_at, "wait")
        rows.append((str(each.number), [waited, TraceSpan("run", each.started_at, end, each.outcome)]))
        before = end
    if job.finished_at is None and not any(each.finished_at is None for each in attempts):
        rows.append(("…", [TraceSpan("wait", min(before, now), now, "wait")]))
    return rows


def _bar(segments: Sequence[TraceSegment], span: TraceSpan, y: float, say: Say) -> str:
    width = WIDTH - LEFT - RIGHT
    start, end = (LEFT + place(segments, at) * width for at in (span.start, span.end))
    took = length((span.end - span.start).total_seconds())
    if span.kind == "wait":
        if end - start < 1:
            return ""
        kind, words, inset = "wait", say("waited %(time)s", time=took), 5
    else:
        kind, words, inset = KINDS.get(span.state, "skip"), f"{say(span.state)}, {took}", 3
    wide = max(NARROWEST, end - start)
    return (
        f'<rect class="f-{kind}" x="{start:.1f}" y="{y + inset:.0f}" width="{wide:.1f}" height="{ROW - 2 * inset:.0f}" '
        f'rx="2"><title>{escape(words)}</title></rect>'
    )


def _break(segment: TraceSegment, height: float) -> str:
    middle = LEFT + (segment.low + segment.high) / 2 * (WIDTH - LEFT - RIGHT)
    cuts = "".join(f"M{middle + side - 3:.1f},{height:.0f} L{middle + side + 3:.1f},0 " for side in (-2, 3))
    words = length((segment.end - segment.start).total_seconds())
    return f'<path class="cut" d="{cuts.strip()}"><title>{escape(words)}</title></path>'


class SiblingJob(NamedTuple):
    """Another run of the task."""

    seconds: float
    state: str
    words: str
    href: str
    is_this: bool


def siblings(runs: Sequence[SiblingJob], label: str) -> Markup:
    """Draw a dot for each run, the newest on the right; its height is the run time, on a logarithmic scale."""
    lengths = [max(SHORTEST, run.seconds) for run in runs]
    low, high = math.log10(min(lengths, default=1)), math.log10(max(lengths, default=1))
    step = (WIDTH - 60) / max(1, len(runs) - 1)
    marks = [f'<line class="gl" x1="0" x2="{WIDTH:.0f}" y1="{FLOOR + 10:.0f}" y2="{FLOOR + 10:.0f}"/>']
    for number, (run, seconds) in enumerate(zip(runs, lengths, strict=True)):
        share = (math.log10(seconds) - low) / (high - low) if high > low else 0.5
        x, y = 52 + number * step, FLOOR - share * (FLOOR - 12)
        ring = f'<circle class="this" cx="{x:.1f}" cy="{y:.1f}" r="8"/>' if run.is_this else ""
        marks.append(
            f'<a href="{escape(run.href)}" aria-label="{escape(run.words)}"><title>{escape(run.words)}</title>{ring}'
            f'<circle class="f-{KINDS.get(run.state, "skip")}" cx="{x:.1f}" cy="{y:.1f}" r="4"/></a>'
        )
    if lengths:
        marks.append(f'<text class="ax" x="0" y="{16:.0f}">{escape(length(max(lengths)))}</text>')
        if high > low:
            marks.append(f'<text class="ax" x="0" y="{FLOOR + 3:.0f}">{escape(length(min(lengths)))}</text>')
    return _svg(TALL, label, "".join(marks), role="group")


def _svg(height: float, label: str, inside: str, role: str = "img") -> Markup:
    return Markup(  # noqa: S704 - every text in it is escaped where it is written
        f'<svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="{role}" aria-label="{escape(label)}">{inside}</svg>'
    )
