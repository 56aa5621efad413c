"""Computes the instants of a rule, in whole microseconds since 1970, UTC.

A rule with a zone is evaluated between two clock changes, where wall time is UTC plus a constant. `WallRule.next` alone
decides what happens at a change. Instants are limited to the years 1900 to 9999.
"""

from abc import ABC, abstractmethod
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Protocol

from sereno.jobs.job import EARLIEST, LATEST
from sereno.schedules.rules.cron import CronExpression, parsed
from sereno.schedules.rules.when import (
    LONGEST_ELAPSED,
    Cron,
    Daily,
    DstFold,
    Every,
    Once,
    When,
    decode,
    encode,
    microseconds,
)
from sereno.zones import BEGINNING, DAY, FOREVER, SECOND, Zone, ZoneSegment, instant, zone

FIRST, LAST = instant(EARLIEST), instant(LATEST)
# Cache size. A million schedules share a few hundred rules.
_CACHED_RULES = 65536
# First step back from the present in `latest`, and the factor by which each step grows.
_LOOK_BACK = 60 * SECOND
_FURTHER = 8
_WALL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall time
_SECOND = timedelta(seconds=1)


class InstantRule(ABC):
    """The instants of one schedule. `anchor` is the last planned instant, or when the schedule was created."""

    # Whether other zone data may move the instants.
    uses_zone = False
    # Whether an instant depends on the previous one, and whether it depends on the end of the previous run.
    uses_anchor = False
    waits_for_end = False

    @abstractmethod
    def next(self, after: int, anchor: int) -> int | None:
        """Return the first instant after this one."""

    def latest(self, after: int, until: int, anchor: int) -> int | None:
        """Return the last instant in (after, until], searching back from the end in growing steps."""
        distance = _LOOK_BACK
        while True:
            start = max(after, until - distance)
            found = self.next(start, anchor)
            if found is not None and found <= until:
                return self._last_from(found, until, anchor)
            if start <= after:
                return None
            distance *= _FURTHER

    def _last_from(self, found: int, until: int, anchor: int) -> int:
        """Return the last instant up to `until` by bisection, given an earlier one."""
        beyond = until
        while (following := self.next(found, anchor)) is not None and following <= until:
            found, middle = following, (following + beyond) // 2
            later = self.next(middle, anchor)
            if later is not None and later <= until:
                found = later
            else:
                beyond = middle
        return found

    def count(self, after: int, until: int, anchor: int, cap: int) -> int:
        """Count the instants in (after, until], up to `cap`."""
        number = 0
        at = self.next(after, anchor)
        while at is not None and at <= until and number < cap:
            number += 1
            at = self.next(at, anchor)
        return number


class OnceRule(InstantRule):
    """One instant."""

    def __init__(self, at: int) -> None:
        self.at = at

    def next(self, after: int, anchor: int) -> int | None:  # noqa: ARG002 - same signature for every rule
        return self.at if self.at > after else None


class StepRule(InstantRule):
    """Equal steps from the anchor."""

    uses_anchor = True

    def __init__(self, interval: int, *, waits_for_end: bool) -> None:
        self.interval = interval
        self.waits_for_end = waits_for_end

    def next(self, after: int, anchor: int) -> int | None:
        found = anchor + (max(0, (after - anchor) // self.interval) + 1) * self.interval
        return found if found <= LAST else None

    def latest(self, after: int, until: int, anchor: int) -> int | None:
        steps = (min(until, LAST) - anchor) // self.interval
        found = anchor + steps * self.interval
        return found if steps > 0 and found > after else None

    def count(self, after: int, until: int, anchor: int, cap: int) -> int:
        skipped = max(0, (after - anchor) // self.interval)
        return max(0, min(cap, (min(until, LAST) - anchor) // self.interval - skipped))


class WallTimes(Protocol):
    """Wall times: microseconds since 1970-01-01 00:00 on a zone's clock."""

    def first_from(self, wall: int) -> int:
        """Return the first wall time at or after this one; FOREVER if there is none."""
        ...


class MarkedTimes:
    """Multiples of an interval on the clock, moved by a phase."""

    def __init__(self, interval: int, phase: int) -> None:
        self.interval = interval
        self.phase = phase

    def first_from(self, wall: int) -> int:
        return wall + (self.phase - wall) % self.interval


class CronWalls:
    """The wall times of a cron expression."""

    def __init__(self, expression: CronExpression) -> None:
        self.expression = expression
        # Cache of the last search: no wall time in [low, high) matches, and high does. Many schedules share it.
        self._known = (0, BEGINNING)

    def first_from(self, wall: int) -> int:
        low, high = self._known
        if low <= wall <= high:
            return high
        # Rounded up to a whole second.
        found = self.expression.next_wall(_WALL_EPOCH + timedelta(seconds=-(-wall // SECOND)))
        high = FOREVER if found is None else (found - _WALL_EPOCH) // _SECOND * SECOND
        self._known = (wall, high)
        return high


class WallRule(InstantRule):
    """Wall times of a zone.

    A fixed rule follows the wall clock. When the clock jumps over a wall time, the rule fires right after the gap
    (shift) or not at all (skip); when the clock goes back, the repeated times fire on the first pass, the second, or
    both. A rule that follows elapsed time fires whenever the clock shows a matching time: that is skip and both.
    """

    def __init__(self, walls: WallTimes, zone_: Zone, *, shifts: bool, fold: DstFold) -> None:
        self.walls = walls
        self.zone = zone_
        self.shifts = shifts
        self.fold = fold
        self.uses_zone = not zone_.is_fixed

    def next(self, after: int, anchor: int) -> int | None:  # noqa: ARG002 - same signature for every rule
        at = max(after + 1, FIRST)
        while at <= LAST:
            segment = self.zone.segment(at)
            start, end, offset, offset_before, offset_after = segment
            if at == start and self.shifts and self.swallowed(segment) is not None:
                return at
            low, high = at + offset, end + offset
            if self.fold == "first":
                # Lower wall times already occurred before the clock went back.
                low = max(low, start + offset_before)
            elif self.fold == "second":
                high = min(high, end + offset_after)
            wall = self.walls.first_from(low)
            if wall < high:
                return wall - offset if wall - offset <= LAST else None
            if wall == FOREVER:
                return None
            at = end
        return None

    def swallowed(self, segment: ZoneSegment) -> int | None:
        """Return the first of its wall times that the clock skipped at the start of this segment."""
        if segment.offset <= segment.offset_before:
            return None
        wall = self.walls.first_from(segment.start + segment.offset_before)
        return wall if wall < segment.start + segment.offset else None


def compile_rule(when: When) -> InstantRule:
    """Return the rule of a user's `When`."""
    return compile_text(encode(when))


@lru_cache(maxsize=_CACHED_RULES)
def compile_text(text: str | bytes) -> InstantRule:
    """Return the rule of a stored JSON text."""
    when = decode(text)
    match when:
        case Once(at=at):
            return OnceRule(instant(at))
        case Every(count_from="clock"):
            interval = microseconds(when.interval)
            marks = MarkedTimes(interval, microseconds(when.phase))
            return _wall_rule(marks, when, elapsed=interval <= LONGEST_ELAPSED * SECOND)
        case Every():
            return StepRule(microseconds(when.interval), waits_for_end=when.count_from == "end")
        case Cron():
            expression = parsed(when.expression)
            return _wall_rule(CronWalls(expression), when, elapsed=expression.is_wildcard)
        case Daily():
            return _wall_rule(MarkedTimes(DAY, _time_of_day(when.at)), when, elapsed=False)


def _wall_rule(walls: WallTimes, when: Every | Cron | Daily, *, elapsed: bool) -> WallRule:
    shifts = when.dst_gap == "shift" and not elapsed
    return WallRule(walls, zone(when.tz), shifts=shifts, fold="both" if elapsed else when.dst_fold)


def _time_of_day(text: str) -> int:
    hour, minute, second = (*map(int, text.split(":")), 0)[:3]
    return (hour * 3600 + minute * 60 + second) * SECOND
