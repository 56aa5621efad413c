"""The next instants of a rule for people, with a note at each clock change."""

from datetime import UTC, datetime
from typing import NamedTuple

from sereno.errors import InvalidArguments
from sereno.schedules.rules.instants import FIRST, LAST, WallRule, compile_rule
from sereno.schedules.rules.when import Every, Once, When, checked
from sereno.zones import ZoneSegment, instant, moment, zone

_MINUTE = 60_000_000


class Instant(NamedTuple):
    """When it runs, in UTC and in the rule's zone, with a note if a clock change affects it."""

    at: datetime
    local: datetime
    note: str = ""


def preview(when: When, after: datetime, n: int = 5, offset: int = 0, anchor: datetime | None = None) -> list[Instant]:
    """Return the next n instants after this one; fewer if the rule ends.

    `offset` is the schedule's own offset inside the rule's spread, in microseconds. `anchor` is the last planned
    instant; without one, counting starts at `after`.
    """
    if after.tzinfo is None or (anchor is not None and anchor.tzinfo is None):
        raise InvalidArguments(
            "a preview needs times with a time zone: a naive time means a different instant elsewhere"
        )
    when = checked(when)
    rule = compile_rule(when)
    clock = UTC if isinstance(when, Once) else zone(when.tz).info
    start = instant(anchor or after)
    found: list[Instant] = []
    at = rule.next(max(FIRST, instant(after) - offset), start)
    while at is not None and at + offset <= LAST and len(found) < n:
        note = _clock_note(rule, at) if isinstance(rule, WallRule) else ""
        if isinstance(when, Every) and when.count_from == "end" and found:
            note = "at the earliest: counted from the end of the previous run"
        shown = moment(at + offset)
        found.append(Instant(shown, shown.astimezone(clock), note))
        at = rule.next(at, start)
    return found


def _clock_note(rule: WallRule, at: int) -> str:
    """Return how a clock change affects this instant."""
    segment = rule.zone.segment(at)
    if at == segment.start and rule.shifts and (wall := rule.swallowed(segment)) is not None:
        return _jumped_over(rule, segment, wall)
    wall = at + segment.offset
    if wall < segment.start + segment.offset_before:
        return _comes_twice(rule, "second")
    if wall >= segment.end + segment.offset_after:
        return _comes_twice(rule, "first")
    return ""


def _jumped_over(rule: WallRule, segment: ZoneSegment, wall: int) -> str:
    runs = segment.start + segment.offset
    later = rule.walls.first_from(wall + 1)
    day = _day(wall) if _day(wall) != _day(runs) else "this day"
    if later >= runs:
        return f"{_time(wall)} does not exist on {day}: runs at {_time(runs)}"
    return f"{_time(wall)} and others do not exist on {day}: one run at {_time(runs)}"


def _comes_twice(rule: WallRule, turn: str) -> str:
    on = f"the {turn} pass" if rule.fold == turn else f"both passes, this is the {turn}"
    return f"the clock goes back: this time comes twice, runs on {on}"


def _time(wall: int) -> str:
    shown = moment(wall)
    return f"{shown:%H:%M:%S}" if wall % _MINUTE else f"{shown:%H:%M}"


def _day(wall: int) -> str:
    return f"{moment(wall):%Y-%m-%d}"
