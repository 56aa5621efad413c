"""The time line of a trace: its cause, jobs with their attempts, events, deliveries and receipts.

A row for each of them; many of one kind share a row. Light is waiting, solid is work, dots are moments.
Long idle gaps are cut, and every mark links to its job, event or delivery.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from html import escape

from markupsafe import Markup

from sereno.monitoring.traces.operations import Trace
from sereno.monitoring.traces.trace import TraceLane, TraceSegment, TraceSpan, cut, place
from sereno.server.web.numbers import figure
from sereno.server.web.times import length

WIDTH = 1120.0
# Width of the names on the left and of the counts on the right.
LEFT, RIGHT = 224.0, 270.0
ROW, TOP = 24.0, 6.0
NARROWEST = 3.0
NAME_LETTERS, NOTE_LETTERS = 32, 42
# Above this number of jobs of one task, they share a row; and the maximum of rows.
TOGETHER = 6
MOST_ROWS = 60
# Width of a time or a duration below the chart.
LETTERS = 60.0
# Dots that are nearer than this are merged into a larger one.
NEAR = 7.0
SMALLEST, LARGEST = 3.5, 8.0
KINDS = {
    **dict.fromkeys(("succeeded", "delivered", "read", "clicked", "sent", "accepted"), "ok"),
    **dict.fromkeys(("running", "sending", "fired", "notified", "matched"), "accent"),
    **dict.fromkeys(("retry", "unknown"), "retry"),
    # The rest waits or was skipped on purpose: neutral.
    **dict.fromkeys(("dead", "crash", "failed", "bounced", "invalid", "expired", "complained"), "dead"),
}
RANKS = {"schedule": 0, "event": 1, "job": 2, "deliveries": 3, "receipts": 4}

Say = Callable[..., str]
Href = Callable[[TraceLane], str]
Clock = Callable[[datetime], str]


@dataclass(frozen=True, slots=True)
class TimelineMark:
    """A span or a moment, the tooltip, and the link."""

    span: TraceSpan
    words: str
    href: str


@dataclass(slots=True)
class TimelineRow:
    """A name, its marks, and the note at its end."""

    name: str
    title: str
    href: str
    marks: list[TimelineMark] = field(default_factory=list)
    note: str = ""
    # Ids of its jobs, and of the jobs that these waited for.
    jobs: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


def rows(found: Trace, now: datetime, say: Say, href: Href, clock: Clock) -> list[TimelineRow]:
    """Return the rows in the order in which they began."""
    lanes = sorted(found.lanes, key=lambda lane: (lane.spans[0].start, RANKS[lane.kind], bool(lane.after), lane.name))
    drawn: list[TimelineRow] = []
    shared: dict[str, TimelineRow] = {}
    channels: dict[tuple[str, str], TimelineRow] = {}
    crowded = {name for name in {lane.name for lane in lanes} if _count(lanes, name) > TOGETHER}
    for lane in lanes:
        if lane.kind == "receipts":
            continue
        if lane.kind == "job" and lane.name in crowded:
            row = shared.get(lane.name)
            if row is None:
                name = say("%(task)s, %(count)s jobs", task=lane.name, count=_count(lanes, lane.name))
                row = shared[lane.name] = TimelineRow(name, name, href(lane))
                drawn.append(row)
            row.marks += _marks(lane, say, href)
            row.jobs.append(lane.id)
            row.after += lane.after
            continue
        row = _deliveries(lane, say, href) if lane.kind == "deliveries" else _alone(lane, say, href)
        drawn.append(row)
        if lane.kind == "deliveries":
            channels[lane.id, lane.name] = row
    for name, row in shared.items():
        ends = Counter(lane.spans[-1].state for lane in lanes if lane.kind == "job" and lane.name == name)
        row.note = _counted(ends, say)
    _receipts(found, channels, say)
    return drawn + _held(found, now, say, href, clock)


def picture(drawn: Sequence[TimelineRow], say: Say, clock: Clock) -> Markup:
    """Draw the rows. `clock` formats a time for the viewer."""
    shown = drawn[:MOST_ROWS]
    segments = cut(mark.span for row in shown for mark in row.marks)
    floor = TOP + len(shown) * ROW
    parts = [_row(segments, row, TOP + number * ROW) for number, row in enumerate(shown)]
    parts += _dependencies(segments, shown)
    parts += [_break(segment, floor) for segment in segments if segment.kind == "break"]
    parts.append(_times(segments, floor, clock))
    label = say("Time line of %(count)s rows; the table below has the same data", count=len(shown))
    return Markup(  # noqa: S704 - every text in it is escaped where it is written
        f'<svg viewBox="0 0 {WIDTH:.0f} {floor + 22:.0f}" role="group" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def active(found: Trace) -> float:
    """Return the seconds in which jobs ran or deliveries were sent, without waiting."""
    stretches: list[tuple[datetime, datetime]] = []
    for lane in found.lanes:
        if lane.kind == "job":
            stretches += [(span.start, span.end) for span in lane.spans if span.kind == "run"]
        elif lane.kind == "deliveries":
            sent = [span.start for span in lane.spans if span.kind == "mark"]
            stretches += [(min(sent), max(sent))] if sent else []
    total, until = 0.0, None
    for start, end in sorted(stretches):
        begins = start if until is None else max(start, until)
        total += max(0.0, (end - begins).total_seconds())
        until = end if until is None else max(until, end)
    return total


def _count(lanes: Sequence[TraceLane], name: str) -> int:
    return sum(lane.kind == "job" and lane.name == name for lane in lanes)


def _alone(lane: TraceLane, say: Say, href: Href) -> TimelineRow:
    last = lane.spans[-1]
    note = f"{say(last.state)} {last.words}".strip() if lane.kind == "job" else last.words
    tries = sum(span.kind == "run" for span in lane.spans)
    if lane.kind == "job" and tries > 1:
        note += f" · {say('%(count)s tries', count=tries)}"
    title = f"{say(lane.kind)} {lane.id}" if lane.kind != "schedule" else say("schedule")
    row = TimelineRow(lane.name, f"{title}: {lane.name}", href(lane), _marks(lane, say, href), note)
    row.jobs, row.after = ([lane.id] if lane.kind == "job" else []), lane.after
    return row


def _deliveries(lane: TraceLane, say: Say, href: Href) -> TimelineRow:
    """Return a row: waiting until the first delivery was sent, then work until the last."""
    total = sum(lane.counts.values())
    whole = lane.spans[0]
    sent = [span.start for span in lane.spans if span.kind == "mark"]
    spans = [TraceSpan("wait", whole.start, min(sent) if sent else whole.end, "waiting")]
    if sent:
        spans.append(TraceSpan("run", min(sent), max(sent), whole.state))
    name = f"{lane.name} {_number(total, lane.exact)}"
    row = TimelineRow(name, name, href(lane), _marks(TraceLane(lane.kind, lane.name, lane.id, spans), say, href))
    row.note = _counted(lane.counts, say)
    return row


def _receipts(found: Trace, channels: dict[tuple[str, str], TimelineRow], say: Say) -> None:
    """Add the receipts as dots to the rows of their channels."""
    place_of = {each.id: (str(each.event_id), each.channel) for each in found.deliveries}
    for receipt in found.receipts:
        row = channels.get(place_of.get(receipt.delivery_id, ("", "")))
        if row is not None:
            words = f"{say(receipt.outcome)} {receipt.code or ''}".strip()
            span = TraceSpan("mark", receipt.at, receipt.at, receipt.outcome, words)
            row.marks.append(TimelineMark(span, words, row.href))


def _held(found: Trace, now: datetime, say: Say, href: Href, clock: Clock) -> list[TimelineRow]:
    """Return rows for deliveries that wait for their time: quiet hours, a delay, a retry."""
    held = [each for each in found.deliveries if each.state == "pending" and each.due_at > now]
    drawn = []
    for channel, event in sorted({(each.channel, each.event_id) for each in held}):
        mine = [each for each in held if (each.channel, each.event_id) == (channel, event)]
        until = max(each.due_at for each in mine)
        span = TraceSpan("wait", min(each.created_at for each in mine), until, "held")
        lane = TraceLane("deliveries", channel, str(event), [span])
        reasons = sorted({each.reason for each in mine if each.reason})
        name = say("held %(count)s, %(channel)s", count=len(mine), channel=channel)
        words = " · ".join([say("until %(at)s", at=clock(until)), *reasons[:2]])
        drawn.append(TimelineRow(name, name, href(lane), [TimelineMark(span, words, href(lane))], words))
    return drawn


def _marks(lane: TraceLane, say: Say, href: Href) -> list[TimelineMark]:
    made = []
    for span in lane.spans:
        words = f"{lane.name}: {say(span.state)}"
        if span.kind != "mark":
            words += f" {length((span.end - span.start).total_seconds())}"
        made.append(TimelineMark(span, f"{words} {span.words}".strip(), href(lane)))
    return made


def _row(segments: Sequence[TraceSegment], row: TimelineRow, y: float) -> str:
    name = f'<a href="{escape(row.href)}"><title>{escape(row.title)}</title><text class="k" x="0" y="{y + 15:.0f}">'
    parts = [f"{name}{escape(_short(row.name, NAME_LETTERS))}</text></a>"]
    # Work is drawn over waiting.
    for kind in ("wait", "run"):
        parts += [_bar(segments, mark, y) for mark in row.marks if mark.span.kind == kind]
    parts += _dots(segments, [mark for mark in row.marks if mark.span.kind == "mark"], y)
    if row.note:
        parts.append(
            f'<text x="{WIDTH - RIGHT + 16:.0f}" y="{y + 15:.0f}"><title>{escape(row.note)}</title>'
            f"{escape(_short(row.note, NOTE_LETTERS))}</text>"
        )
    return "".join(parts)


def _bar(segments: Sequence[TraceSegment], mark: TimelineMark, y: float) -> str:
    start, end = _x(segments, mark.span.start), _x(segments, mark.span.end)
    if mark.span.kind == "wait":
        if end - start < 1:
            return ""
        kind, inset = "wait", 7
    else:
        kind, inset = KINDS.get(mark.span.state, "skip"), 5
    return _linked(
        mark,
        f'<rect class="f-{kind}" x="{start:.1f}" y="{y + inset:.0f}" width="{max(NARROWEST, end - start):.1f}" '
        f'height="{ROW - 2 * inset:.0f}" rx="2"/>',
    )


def _dots(segments: Sequence[TraceSegment], marks: Sequence[TimelineMark], y: float) -> list[str]:
    """Draw the dots; overlapping ones of one kind are merged into a larger one."""
    groups: list[tuple[float, str, list[TimelineMark]]] = []
    for mark in sorted(marks, key=lambda mark: (KINDS.get(mark.span.state, "skip"), mark.span.start)):
        x, kind = _x(segments, mark.span.start), KINDS.get(mark.span.state, "skip")
        if groups and groups[-1][1] == kind and x - groups[-1][0] < NEAR:
            groups[-1][2].append(mark)
        else:
            groups.append((x, kind, [mark]))
    drawn = []
    for x, kind, several in groups:
        size = min(LARGEST, SMALLEST + 0.6 * (len(several) - 1) ** 0.5)
        words = several[0].words if len(several) == 1 else f"{len(several)}: {several[0].words}"
        circle = f'<circle class="f-{kind}" cx="{x:.1f}" cy="{y + ROW / 2:.1f}" r="{size:.1f}"/>'
        drawn.append(_linked(TimelineMark(several[0].span, words, several[0].href), circle))
    return drawn


def _dependencies(segments: Sequence[TraceSegment], drawn: Sequence[TimelineRow]) -> list[str]:
    """Draw a line from the end of each row of predecessors to the row of the jobs that waited for them."""
    places = {job: number for number, row in enumerate(drawn) for job in row.jobs}
    parts = []
    for number, row in enumerate(drawn):
        for before in sorted({places[each] for each in row.after if each in places} - {number}):
            x = _x(segments, max(mark.span.end for mark in drawn[before].marks))
            top, floor = (TOP + place * ROW + ROW / 2 for place in (before, number))
            parts.append(f'<path class="dependency" d="M{x:.1f},{top:.0f} V{floor:.0f}"/>')
    return parts


def _linked(mark: TimelineMark, shape: str) -> str:
    """Return the mark with its link. It is no tab stop: there may be hundreds, and the row's name has the same link."""
    return f'<a href="{escape(mark.href)}" tabindex="-1"><title>{escape(mark.words)}</title>{shape}</a>'


def _break(segment: TraceSegment, floor: float) -> str:
    middle = LEFT + (segment.low + segment.high) / 2 * (WIDTH - LEFT - RIGHT)
    cuts = "".join(f"M{middle + side + 4:.1f},{TOP:.0f} L{middle + side - 4:.1f},{floor:.0f} " for side in (-3, 3))
    words = length((segment.end - segment.start).total_seconds())
    return f'<path class="cut" d="{cuts.strip()}"><title>{escape(words)}</title></path>'


def _times(segments: Sequence[TraceSegment], floor: float, clock: Clock) -> str:
    if not segments:
        return ""
    right, y = WIDTH - RIGHT, f"{floor + 16:.0f}"
    parts = [
        f'<line class="gl" x1="{LEFT:.0f}" x2="{right:.0f}" y1="{floor:.0f}" y2="{floor:.0f}"/>',
        f'<text class="ax" x="{LEFT:.0f}" y="{y}">{escape(clock(segments[0].start))}</text>',
        f'<text class="ax end" x="{right:.0f}" y="{y}">{escape(clock(segments[-1].end))}</text>',
    ]
    taken = LEFT + LETTERS
    for segment in (each for each in segments if each.kind == "break"):
        middle = LEFT + (segment.low + segment.high) / 2 * (right - LEFT)
        # The duration of a gap, where no other label is in the way.
        if taken <= middle - LETTERS / 2 and middle + LETTERS / 2 <= right - LETTERS:
            words = length((segment.end - segment.start).total_seconds())
            parts.append(f'<text class="ax middle" x="{middle:.1f}" y="{y}">{escape(words)}</text>')
            taken = middle + LETTERS / 2
    return "".join(parts)


def _x(segments: Sequence[TraceSegment], at: datetime) -> float:
    return LEFT + place(segments, at) * (WIDTH - LEFT - RIGHT)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _number(count: int, exact: bool) -> str:
    return f"{figure(count)}{'' if exact else '+'}"


def _counted(counts: Mapping[str, int], say: Say) -> str:
    """Return the counts, the most frequent first."""
    most_first = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return " · ".join(f"{figure(count)} {say(state)}" for state, count in most_first)
