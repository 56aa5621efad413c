"""Cron expressions: checked here character by character; cronsim decides which days match.

Five fields (minute, hour, day of month, month, day of week), or six with seconds first. The search for the next match
is implemented here, without time zones: it returns wall times, and `instants` converts them into instants.
"""

import calendar
import re
from bisect import bisect_left
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from cronsim import CronSim, CronSimError

from sereno.errors import InvalidSchedule

NICKNAMES = {
    "@HOURLY": "0 * * * *",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@WEEKLY": "0 0 * * 0",
    "@MONTHLY": "0 0 1 * *",
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
}

# Longest expression in characters: more than every value of every field spelled out.
LONGEST = 600
# Characters of an expression that an error shows before and after the fault.
_SHOWN = 60
# Years to search: the rarest day, 29 February on a given weekday, recurs within 40 years.
_MOST_YEARS = 50
# Cache size: minutes and hours alone make 1,440 daily expressions.
_SHARED = 4096
# Digits to parse: more than any value of any field has.
_DIGITS = 9
_WITHOUT_SECONDS, _WITH_SECONDS = 5, 6
# Any start will do: all kinds of years occur within the years to search.
_ANY_START = datetime(2000, 1, 1)  # noqa: DTZ001 - wall time


class _CronField(NamedTuple):
    name: str
    low: int
    high: int
    words: tuple[str, ...] = ()


_DAY = _CronField("day of month", 1, 31)
_MONTH = _CronField(
    "month", 1, 12, ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
)
_WEEKDAY = _CronField("day of week", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))
_FIELDS = (
    _CronField("second", 0, 59),
    _CronField("minute", 0, 59),
    _CronField("hour", 0, 23),
    _DAY,
    _MONTH,
    _WEEKDAY,
)


class _CronFault(Exception):  # noqa: N818 - it never leaves this file
    """A fault in an expression and its position."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(problem)
        self.position = position
        self.problem = problem


class CronExpression:
    """A checked expression; `text` is its canonical form: capital letters, single spaces, no nickname."""

    def __init__(self, expression: str) -> None:
        self.text = canonical(expression)
        fields = self.text.split()
        # Debian's rule: a wildcard job follows elapsed time, any other one the wall clock.
        self.is_wildcard = len(fields) == _WITH_SECONDS or fields[0].startswith("*") or fields[1].startswith("*")
        try:
            self._parsed = CronSim(self.text, _ANY_START)
        except CronSimError:
            raise _never(self.text) from None
        self._seconds = bytes(sorted(self._parsed.seconds))
        self._minutes = bytes(sorted(self._parsed.minutes))
        self._hours = bytes(sorted(self._parsed.hours))
        self._make_small()
        self._first = time(self._hours[0], self._minutes[0], self._seconds[0])
        if self.next_wall(_ANY_START) is None:
            raise _never(self.text)

    def __repr__(self) -> str:
        return f"CronExpression({self.text!r})"

    def explain(self) -> str:
        """Return the expression as text: "At 09:30 on Monday through Friday"."""
        return self._parsed.explain()

    def next_wall(self, start: datetime) -> datetime | None:
        """Return the first matching wall time at or after `start`; None if there is none for fifty years."""
        if start.microsecond:
            start = start.replace(microsecond=0) + timedelta(seconds=1)
        today = start.date()
        if today.month in self._parsed.months and self._parsed.match_day(today):
            found = self._time_from(start.hour, start.minute, start.second)
            if found is not None:
                return datetime.combine(today, found)
        day = self._day_after(today)
        return None if day is None else datetime.combine(day, self._first)

    def _make_small(self) -> None:
        """Share equal sets to save memory: most expressions have the same days, months and weekdays."""
        parsed = self._parsed
        # Only cronsim's own search needs these.
        parsed.seconds = parsed.minutes = parsed.hours = _shared(frozenset())
        parsed.days = _shared(frozenset(parsed.days))
        parsed.months = _shared(frozenset(parsed.months))
        parsed.weekdays = _shared(frozenset(parsed.weekdays))

    def _time_from(self, hour: int, minute: int, second: int) -> time | None:
        """Return the first matching time of day at or after this one."""
        hours, minutes, seconds = self._hours, self._minutes, self._seconds
        h = bisect_left(hours, hour)
        if h < len(hours) and hours[h] == hour:
            m = bisect_left(minutes, minute)
            if m < len(minutes) and minutes[m] == minute:
                s = bisect_left(seconds, second)
                if s < len(seconds):
                    return time(hour, minute, seconds[s])
                m += 1
            if m < len(minutes):
                return time(hour, minutes[m], seconds[0])
            h += 1
        return time(hours[h], minutes[0], seconds[0]) if h < len(hours) else None

    def _day_after(self, day: date) -> date | None:
        last = min(day.year + _MOST_YEARS, date.max.year)
        year, month, number = day.year, day.month, day.day + 1
        while year <= last:
            if month in self._parsed.months:
                for candidate in range(number, calendar.monthrange(year, month)[1] + 1):
                    if self._parsed.match_day(found := date(year, month, candidate)):
                        return found
            year, month, number = (year, month + 1, 1) if month < _MONTH.high else (year + 1, 1, 1)
        return None


@lru_cache(maxsize=_SHARED)
def _shared(values: frozenset[Any]) -> Any:
    return values


@lru_cache(maxsize=_SHARED)
def parsed(text: str) -> CronExpression:
    """Return the parsed expression; shared between zones and spreads."""
    return CronExpression(text)


def canonical(expression: str) -> str:
    """Return the canonical form of an expression. InvalidSchedule points at the fault."""
    if not isinstance(expression, str):
        raise InvalidSchedule(f'expression is a text such as "0 3 * * *", not {type(expression).__name__}')
    if len(expression) > LONGEST:
        raise InvalidSchedule(f"a cron expression has at most {LONGEST} characters, not {len(expression)}")
    text = " ".join(expression.split())
    if text.startswith("@"):
        return _nickname(text)
    try:
        _check(text)
    except _CronFault as fault:
        raise _refusal(text, fault.position, f"is not a cron expression: {fault.problem}") from None
    return text.upper()


def _nickname(text: str) -> str:
    if text.upper() == "@REBOOT":
        raise InvalidSchedule("@reboot is not a time: schedules are stored in the database and do not follow reboots")
    try:
        return NICKNAMES[text.upper()]
    except KeyError:
        known = ", ".join(name.lower() for name in NICKNAMES)
        raise InvalidSchedule(f"{text!a:.60} is not a nickname: use one of {known}") from None


def _refusal(text: str, position: int, sentence: str) -> InvalidSchedule:
    """Return an error with the sentence, the expression, and a pointer at the character."""
    # Same width as the input, without control characters that a terminal would interpret.
    shown = "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in text)
    start = max(0, position - _SHOWN)
    pointer = " " * (position - start) + "^"
    quoted = shown if len(shown) <= 2 * _SHOWN else f"{shown[:_SHOWN]}…"
    return InvalidSchedule(f'"{quoted}" {sentence}\n {shown[start : position + _SHOWN]}\n {pointer}')


def _never(text: str) -> InvalidSchedule:
    days = list(re.finditer(r"\S+", text))[-3]
    return _refusal(text, days.start(), "never matches: no such month has such a day")


def _check(text: str) -> None:
    for position, letter in enumerate(text):
        if not (letter.isascii() and letter.isprintable()):
            raise _CronFault(position, f"the character {letter!a} is not allowed")
    words = list(re.finditer(r"\S+", text.upper()))
    if len(words) not in {_WITHOUT_SECONDS, _WITH_SECONDS}:
        raise _CronFault(
            words[_WITH_SECONDS].start() if len(words) > _WITH_SECONDS else len(text),
            f"it has {len(words)} fields: write 5 (minute, hour, day of month, month, day of week), "
            "or 6 with seconds first",
        )
    for field, word in zip(_FIELDS[-len(words) :], words, strict=True):
        for position, term in _split(word.group(), word.start()):
            _check_term(field, position, term)


def _split(word: str, start: int) -> Iterator[tuple[int, str]]:
    """Yield the parts between commas with their positions."""
    for term in word.split(","):
        yield start, term
        start += len(term) + 1


def _check_term(field: _CronField, position: int, term: str) -> None:
    base, slash, step = term.partition("/")
    after = position + len(base)
    if _is_special(field, position, base):
        if slash:
            raise _CronFault(after, f"{base} is one day of a month and takes no step")
        return
    if slash:
        number, most = _number(field, after + 1, step, "step"), field.high - field.low + 1
        if not 1 <= number <= most:
            raise _CronFault(after + 1, f"{field.name} step {step:.20} is out of range 1 to {most}")
    if base == "*":
        return
    first, dash, last = base.partition("-")
    low = _value(field, position, first)
    if not dash:
        return
    high = _value(field, position + len(first) + 1, last)
    if high < low:
        hint = "write 7 for a Sunday at the end" if field is _WEEKDAY and high == 0 else "write two ranges"
        raise _CronFault(position, f"{field.name} {base} runs backwards: {hint}")


def _is_special(field: _CronField, position: int, base: str) -> bool:
    """Return whether it is L, LW, 5L or MON#2: days that depend on the month."""
    if field is _DAY:
        return base in {"L", "LW"}
    if field is not _WEEKDAY:
        return False
    day, mark, count = base.partition("#")
    if mark:
        _value(field, position, day)
        if count not in set("12345"):
            raise _CronFault(
                position + len(day) + 1, f"a weekday comes 1 to 5 times in a month, not {count[:20] or 'nothing'}"
            )
        return True
    if base.endswith("L"):
        if not base[:-1].isdigit():
            raise _CronFault(position, f"day of week {base:.20} is not known: write 5L for the last Friday")
        _value(field, position, base[:-1])
        return True
    return False


def _value(field: _CronField, position: int, text: str) -> int:
    if text in field.words:
        return field.words.index(text) + field.low
    number = _number(field, position, text, "")
    if not field.low <= number <= field.high:
        raise _CronFault(position, f"{field.name} {text:.20} is out of range {field.low} to {field.high}")
    return number


def _number(field: _CronField, position: int, text: str, what: str) -> int:
    label = f"{field.name} {what}".strip()
    if not text:
        raise _CronFault(position, f"{label} is missing")
    if text == "?":
        raise _CronFault(position, f'{label} "?" is not known: write "*" for any')
    if not text.isdigit():
        words = f" or a name such as {field.words[1]}" if field.words and not what else ""
        raise _CronFault(position, f'{label} "{text:.20}" is not a number{words}')
    # A longer number is out of range in any case.
    return int(text) if len(text) <= _DIGITS else 10**_DIGITS
