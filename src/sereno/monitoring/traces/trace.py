"""What happened under one trace, as lanes of spans; and how time is laid out so that long idle gaps take no room."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Literal

# Of the whole width, a break takes so much; all of them together never more than that.
BREAK_WIDTH = 0.03
MOST_BREAK_WIDTH = 0.3
# A gap is cut when it is longer than this share of all that is left to show, and longer than a moment.
LONG_GAP = 0.2
MOMENT = timedelta(seconds=1)
MOST_BREAKS = 20
# Even the shortest stretch between two breaks can be seen: it gets so much of an equal share.
LEAST_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of a lane; a mark has no length. `words`: what there is to say of it."""

    kind: Literal["wait", "run", "mark"]
    start: datetime
    end: datetime
    state: str
    words: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """One thing that took part. `counts`: how many in each state, where it stands for many; `exact`: all of them."""

    kind: Literal["schedule", "job", "event", "deliveries", "receipts"]
    name: str
    id: str
    spans: list[Span]
    tenant: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time and its place between 0 and 1. A break stands for a gap in which nothing happened."""

    kind: Literal["time", "break"]
    start: datetime
    end: datetime
    low: float
    high: float


def cut(spans: Iterable[Span]) -> list[Segment]:
    """Time laid out from 0 to 1, in order and without holes, with long gaps cut.

    A wait is a gap too: only its ends are something that happens.
    """
    stretches = _stretches(spans)
    if not stretches:
        return []
    parts = _apart(stretches)
    breaks = len(parts) - 1
    width = min(BREAK_WIDTH, MOST_BREAK_WIDTH / breaks) if breaks else 0.0
    shares = _shares([(end - start) / MOMENT for start, end in parts])
    room, at, segments = 1.0 - width * breaks, 0.0, list[Segment]()
    for place, ((start, end), share) in enumerate(zip(parts, shares, strict=True)):
        if place:
            segments.append(Segment("break", parts[place - 1][1], start, at, at + width))
            at += width
        high = 1.0 if place == breaks else at + room * share
        segments.append(Segment("time", start, end, at, high))
        at = high
    return segments


def place(segments: Sequence[Segment], moment: datetime) -> float:
    """Where a moment is, from 0 to 1; what is before or behind all of it is at an end."""
    for segment in segments:
        if moment <= segment.end:
            length = segment.end - segment.start
            share = (moment - segment.start) / length if length else 0.0
            return segment.low + (segment.high - segment.low) * min(1.0, max(0.0, share))
    return 1.0


def _stretches(spans: Iterable[Span]) -> list[tuple[datetime, datetime]]:
    """When something happened: in order, and none over another."""
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
    """Stretches with a long gap between each two; what has a short one is shown as it is.

    The longest gaps first: each that is cut makes those that are left look longer.
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
    """By length, and a little for each however short it is; together 1."""
    total, equal = sum(lengths), 1.0 / len(lengths)
    if not total:
        return [equal] * len(lengths)
    return [LEAST_SHARE * equal + (1 - LEAST_SHARE) * length / total for length in lengths]
