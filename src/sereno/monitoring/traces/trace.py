"""A trace as lanes of spans, and a time axis on which long idle gaps are cut."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Literal

# Share of the width for one break, and the most for all breaks together.
BREAK_WIDTH = 0.03
MOST_BREAK_WIDTH = 0.3
# A gap is cut when it is longer than this share of the time that is left to show, and longer than MOMENT.
LONG_GAP = 0.2
MOMENT = timedelta(seconds=1)
MOST_BREAKS = 20
# Least width of a stretch between two breaks, as a share of an equal division, so that the shortest one is visible.
LEAST_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """One stretch of a lane; a mark has no length. `words`: a text about it."""

    kind: Literal["wait", "run", "mark"]
    start: datetime
    end: datetime
    state: str
    words: str = ""


@dataclass(frozen=True, slots=True)
class TraceLane:
    """One job, schedule, event or group. `counts`: members of a group by state; `exact`: whether all were counted.

    `after`: ids of the jobs of the trace that a job waited for.
    """

    kind: Literal["schedule", "job", "event", "deliveries", "receipts"]
    name: str
    id: str
    spans: list[TraceSpan]
    tenant: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    exact: bool = True
    after: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TraceSegment:
    """A stretch of time and its position between 0 and 1. A break stands for an idle gap."""

    kind: Literal["time", "break"]
    start: datetime
    end: datetime
    low: float
    high: float


def cut(spans: Iterable[TraceSpan]) -> list[TraceSegment]:
    """Return the time axis from 0 to 1, in order and without holes, with long gaps cut.

    A wait is a gap too: only its ends count as activity.
    """
    stretches = _stretches(spans)
    if not stretches:
        return []
    parts = _apart(stretches)
    breaks = len(parts) - 1
    width = min(BREAK_WIDTH, MOST_BREAK_WIDTH / breaks) if breaks else 0.0
    shares = _shares([(end - start) / MOMENT for start, end in parts])
    available, at, segments = 1.0 - width * breaks, 0.0, list[TraceSegment]()
    for place, ((start, end), share) in enumerate(zip(parts, shares, strict=True)):
        if place:
            segments.append(TraceSegment("break", parts[place - 1][1], start, at, at + width))
            at += width
        high = 1.0 if place == breaks else at + available * share
        segments.append(TraceSegment("time", start, end, at, high))
        at = high
    return segments


def place(segments: Sequence[TraceSegment], moment: datetime) -> float:
    """Return the position of a time from 0 to 1; times outside the axis are at its ends."""
    for segment in segments:
        if moment <= segment.end:
            length = segment.end - segment.start
            share = (moment - segment.start) / length if length else 0.0
            return segment.low + (segment.high - segment.low) * min(1.0, max(0.0, share))
    return 1.0


def _stretches(spans: Iterable[TraceSpan]) -> list[tuple[datetime, datetime]]:
    """Return the times of activity, sorted and merged."""
    found: list[tuple[datetime, datetime]] = []
    for span in spans:
        if span.kind == "wait":
            found += [(span.start, span.start), (span.end, span.end)]
        else:
            found.append((span.start, max(span.start, span.end)))
    merged: list[tuple[datetime, datetime]] = []
    for start, end in sorted(found):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _apart(stretches: Sequence[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """Return stretches that are separated by long gaps; shorter gaps stay in a stretch.

    The longest gaps are cut first, because each cut makes the remaining gaps longer relative to the rest.
    """
    gaps = sorted(
        ((later[0] - earlier[1], place) for place, (earlier, later) in enumerate(pairwise(stretches), 1)), reverse=True
    )
    shown = stretches[-1][1] - stretches[0][0]
    cuts = set()
    for gap, place_of in gaps[:MOST_BREAKS]:
        if gap <= MOMENT or gap <= shown * LONG_GAP:
            break
        cuts.add(place_of)
        shown -= gap
    edges = [0, *sorted(cuts), len(stretches)]
    return [(stretches[first][0], stretches[last - 1][1]) for first, last in pairwise(edges)]


def _shares(lengths: Sequence[float]) -> list[float]:
    """Return the share of each stretch by its length, with a minimum for each; the sum is 1."""
    total, equal = sum(lengths), 1.0 / len(lengths)
    if not total:
        return [equal] * len(lengths)
    return [LEAST_SHARE * equal + (1 - LEAST_SHARE) * length / total for length in lengths]
