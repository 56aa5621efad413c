"""Numbers, moments and lengths of time in a search, as bounds."""

import re
from datetime import UTC, date, datetime, time, timedelta

from sereno.duration import seconds
from sereno.errors import ConfigurationError
from sereno.search.syntax import InvalidSearch, SearchComparison, SearchRange, SearchWord, Value

_WITH_SECONDS = re.compile(r"\D[0-9]{2}:?[0-9]{2}:?[0-9]{2}")
_YEARS = range(1900, 9000)
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
# A hundred years: `now` minus an age must be a valid datetime.
_LONGEST_AGE = timedelta(days=36_500)


def numbers(value: Value, most: int) -> tuple[int | None, int | None]:
    """Return the lowest and the highest number, each less than `most`."""

    def number(text: str) -> int:
        return search_number(text, value.at, most)

    match value:
        case SearchWord(text=text):
            return number(text), number(text)
        case SearchRange(low=low, high=high):
            return number(low) if low else None, number(high) if high else None
        case SearchComparison(operator=">", text=text):
            return number(text) + 1, None
        case SearchComparison(operator=">=", text=text):
            return number(text), None
        case SearchComparison(operator="<", text=text):
            return None, number(text) - 1
        case SearchComparison(text=text):
            return None, number(text)


def search_number(text: str, at: int, most: int) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(most)) or int(text) >= most - 1:
        raise InvalidSearch(at, f'"{text:.60}" is not a non-negative number: write it like 3, >3, <=3 or 2..5')
    return int(text)


def moments(value: Value, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Return the start (inclusive) and the end (exclusive). A day or a minute means the whole of it."""

    def span(text: str) -> tuple[datetime, datetime]:
        return _span(text, value.at, now)

    match value:
        case SearchWord(text=text):
            start, end = span(text)
            if start == end:
                raise InvalidSearch(value.at, f"{text} ago is a single instant: write {text}.. for since then")
            return start, end
        case SearchRange(low=low, high=high):
            return span(low)[0] if low else None, span(high)[1] if high else None
        case SearchComparison(operator=">", text=text):
            return span(text)[1], None
        case SearchComparison(operator=">=", text=text):
            return span(text)[0], None
        case SearchComparison(operator="<", text=text):
            return None, span(text)[0]
        case SearchComparison(text=text):
            return None, span(text)[1]


def _span(text: str, at: int, now: datetime) -> tuple[datetime, datetime]:
    """Return the start and the end; a duration means that long before now."""
    length = _length(text)
    if length is not None:
        return now - length, now - length
    days = {name: now.date() + timedelta(days=ahead) for name, ahead in _DAYS.items()}
    try:
        day = days.get(text) or date.fromisoformat(text)
    except ValueError:
        return _instant(text, at, now)
    _check_year(day.year, at)
    return _midnight(day, now), _midnight(day + timedelta(days=1), now)


def _instant(text: str, at: int, now: datetime) -> tuple[datetime, datetime]:
    try:
        start = datetime.fromisoformat(text)
    except ValueError:
        hint = (
            "write a day such as 2026-11-01, a time such as 2026-11-01T03:00, today, yesterday, or 2h for two hours ago"
        )
        raise InvalidSearch(at, f'"{text:.60}" is not a time: {hint}') from None
    _check_year(start.year, at)
    start = start if start.tzinfo is not None else start.replace(tzinfo=now.tzinfo)
    return start, start + timedelta(seconds=1 if _WITH_SECONDS.search(text) else 60)


def _check_year(year: int, at: int) -> None:
    if year not in _YEARS:
        raise InvalidSearch(at, f"the year must be {_YEARS.start} to {_YEARS.stop - 1}")


def _midnight(day: date, now: datetime) -> datetime:
    return datetime.combine(day, time.min, now.tzinfo).astimezone(UTC)


def ages(value: Value, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Return the creation times between which a job of this age was created."""

    def ago(text: str) -> datetime:
        length = _length(text)
        if length is None:
            raise InvalidSearch(value.at, f'"{text:.60}" is not a duration: write >1h, <30m or 1d..7d, at most 36500d')
        return now - length

    match value:
        case SearchRange(low=low, high=high):
            return ago(high) if high else None, ago(low) if low else None
        case SearchComparison(operator=">" | ">=", text=text):
            return None, ago(text)
        case SearchComparison(text=text):
            return ago(text), None
        case SearchWord(text=text):
            raise InvalidSearch(value.at, f"write age:>{text:.60} for older or age:<{text:.60} for younger jobs")


def _length(text: str) -> timedelta | None:
    """Return the duration, or None if the text is not a duration with a unit."""
    if text.isdecimal():
        return None
    try:
        length = timedelta(seconds=seconds(text))
    except (ConfigurationError, OverflowError):
        return None
    return length if length <= _LONGEST_AGE else None
