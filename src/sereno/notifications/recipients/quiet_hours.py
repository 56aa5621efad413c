"""Quiet hours: spans of the recipient's local time during which a delivery waits.

    QuietHours("22:00", "08:00")                               every night
    QuietHours("22:00", "10:00", days=["friday", "saturday"])  the nights that begin on these days

A span lasts from the first instant at which the local clock shows or has passed its start, to the first at which it
shows or has passed its end. Spans that touch or overlap are one.
"""

import re
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec

from sereno import zones
from sereno.errors import InvalidArguments, InvalidSchedule
from sereno.jobs.job import EARLIEST, LATEST
from sereno.zones import DAY, SECOND, Zone, moment

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MOST_SPANS = 50
# Longest wait. A clock change can close the last gap between the spans of a week; the delivery then does not wait for
# the next gap.
LONGEST = 8 * DAY

_MINUTE = 60 * SECOND
_MINUTES_OF_DAY = 24 * 60
_MINUTES_OF_WEEK = 7 * _MINUTES_OF_DAY
_TIME = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", re.ASCII)
_SHORT = 3
# 1970 began on a Thursday.
_FIRST_WEEKDAY = 3
# Larger than any offset from UTC and any clock change.
_FAR = 2 * DAY
# Leaves space for the longest wait before the end of the calendar.
_LAST = LATEST - timedelta(days=30)
_CACHED = 4096


class QuietHours(msgspec.Struct, frozen=True, omit_defaults=True):
    """One span of quiet hours; an end that is not after the start is on the next day.

    `days`: on which the span starts; every day if omitted. Values are normalised, so equal spans are equal JSON.
    """

    start: str
    end: str
    days: Collection[str] | None = None

    def __post_init__(self) -> None:
        start, end = _time("start", self.start), _time("end", self.end)
        if start == end:
            raise InvalidArguments(
                f"quiet hours from {start} to {end} have no length: for a whole day write two spans,"
                ' "00:00" to "12:00" and "12:00" to "00:00"'
            )
        msgspec.structs.force_setattr(self, "start", start)
        msgspec.structs.force_setattr(self, "end", end)
        if self.days is not None:
            msgspec.structs.force_setattr(self, "days", _days(self.days))

    @property
    def minutes(self) -> tuple[int, int]:
        """Return start and end in minutes since midnight; an end on the next day is larger than 24 hours."""
        start, end = (int(text[:2]) * 60 + int(text[3:]) for text in (self.start, self.end))
        return start, end if end > start else end + _MINUTES_OF_DAY

    def starts_on(self, weekday: int) -> bool:
        """Return whether a span starts on the weekday; Monday is 0."""
        return self.days is None or DAYS[weekday] in self.days


def checked(quiet: QuietHours | Sequence[QuietHours]) -> tuple[QuietHours, ...]:
    """Return the spans; raise InvalidArguments for more than 50 or for the whole week."""
    spans = tuple(quiet) if isinstance(quiet, Sequence) else (quiet,)
    for span in spans:
        if not isinstance(span, QuietHours):
            raise InvalidArguments(f'quiet hours are written QuietHours("22:00", "08:00"), not {span!r:.60}')
    if len(spans) > MOST_SPANS:
        raise InvalidArguments(f"there are {len(spans)} spans of quiet hours, at most {MOST_SPANS} are allowed")
    if _is_endless(spans):
        raise InvalidArguments("these quiet hours cover the whole week and never end: turn the preference off instead")
    return spans


def quiet_until(quiet: QuietHours | Sequence[QuietHours], zone: str, instant: datetime) -> datetime | None:
    """Return when the quiet hours at this instant end, in UTC; None if there are none. `zone`: an IANA name."""
    spans, clock, begin = checked(quiet), _zone(zone), _microseconds(instant)
    until = begin
    while (end := _end(spans, clock, until)) > until and end <= begin + LONGEST:
        until = end
    return moment(until) if until > begin else None


def _end(spans: tuple[QuietHours, ...], clock: Zone, at: int) -> int:
    """Return the latest end of a span that contains this instant, or the instant itself."""
    today = (at + clock.segment(at).offset) // DAY
    latest = at
    for span in spans:
        start, end = span.minutes
        # Yesterday's span may last into today; tomorrow's may have begun before the clock was set back.
        for day in (today - 1, today, today + 1):
            if not span.starts_on((day + _FIRST_WEEKDAY) % 7):
                continue
            midnight = day * DAY
            if _reached(clock, midnight + start * _MINUTE) <= at:
                latest = max(latest, _reached(clock, midnight + end * _MINUTE))
    return latest


def _reached(clock: Zone, wall: int) -> int:
    """Return the first instant at which the local clock shows this time or a later one."""
    at = wall - _FAR
    while True:
        segment = clock.segment(at)
        if wall - segment.offset < segment.end:
            return max(wall - segment.offset, segment.start)
        at = segment.end


@lru_cache(_CACHED)
def _is_endless(spans: tuple[QuietHours, ...]) -> bool:
    """Return whether the spans cover each minute of a week without clock changes."""
    covered = bytearray(_MINUTES_OF_WEEK)
    for span in spans:
        start, end = span.minutes
        for weekday in filter(span.starts_on, range(7)):
            for minute in range(weekday * _MINUTES_OF_DAY + start, weekday * _MINUTES_OF_DAY + end):
                covered[minute % _MINUTES_OF_WEEK] = 1
    return all(covered)


def _time(name: str, value: object) -> str:
    found = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise InvalidArguments(
            f'{name} of quiet hours is a time of day such as "22:00", 00:00 to 23:59, not {value!r:.60}'
        )
    return f"{int(found[1]):02}:{found[2]}"


def _days(value: object) -> tuple[str, ...]:
    """Return full names, in the order of the week."""
    if not isinstance(value, Collection) or isinstance(value, str | bytes | dict) or not value:
        raise InvalidArguments(f'days is a list such as ["saturday", "sunday"] or omitted, not {value!r:.60}')
    found = {_day(name) for name in value}
    return tuple(day for day in DAYS if day in found)


def _day(name: object) -> str:
    wanted = name.strip().lower() if isinstance(name, str) else ""
    for day in DAYS:
        if wanted in (day, day[:_SHORT]):
            return day
    raise InvalidArguments(f"{name!r:.60} is not a day of the week: use {', '.join(DAYS[:-1])} or {DAYS[-1]}")


def _zone(name: str) -> Zone:
    try:
        return zones.zone(name)
    except InvalidSchedule as error:
        raise InvalidArguments(str(error)) from None


def _microseconds(at: datetime) -> int:
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise InvalidArguments(f"quiet hours need a datetime with a time zone, not {at!r:.60}")
    if not EARLIEST <= at <= _LAST:
        raise InvalidArguments(f"{at.isoformat()} is out of range: 1900 to 9999")
    return zones.instant(at)
