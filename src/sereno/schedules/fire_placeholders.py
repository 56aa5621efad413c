"""Placeholders in arguments: "{fire:%Y-%m}", "{date}", "{key}", "{tenant}".

They are filled in when the schedule fires, in the schedule's zone, from the planned instant, not the actual one. Only
a fixed set of strftime directives is allowed: a format is user data, and the C library accepts widths that exhaust
memory.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sereno.errors import InvalidSchedule

_NAME = re.compile(r"\{(fire(?::[^{}]*)?|date|key|tenant)\}")
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
# Numbers and names of days and months; nothing that depends on the host, nothing with a width.
DIRECTIVES = frozenset("YmdHMSjGVuwyBbAaz%F")
LONGEST_FORMAT = 100
# English names: the C library would use the locale of the process that fires.
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def has_names(text: str) -> bool:
    """Return whether the text has placeholders."""
    return _NAME.search(text) is not None


def check_names(value: Any) -> None:
    """Raise InvalidSchedule unless every format in the value is allowed."""
    match value:
        case str():
            for match in _NAME.finditer(value):
                _check_format(match[1])
        case Mapping():
            for key, item in value.items():
                check_names(key)
                check_names(item)
        case list() | tuple():
            for item in value:
                check_names(item)


def filled(value: Any, at: datetime, key: str, tenant: str | None) -> Any:
    """Return the value with every placeholder replaced; `at` is the planned instant in the schedule's zone."""

    def named(match: re.Match[str]) -> str:
        what, _, pattern = match[1].partition(":")
        match what:
            case "fire":
                # A row written with SQL was never checked.
                _check_format(match[1])
                return _DIRECTIVE.sub(lambda each: _written(each[1], at), pattern) if pattern else at.isoformat()
            case "date":
                return at.date().isoformat()
            case "key":
                return key
            case _:
                return tenant or ""

    match value:
        case str():
            return _NAME.sub(named, value)
        case Mapping():
            return {filled(name, at, key, tenant): filled(item, at, key, tenant) for name, item in value.items()}
        case list() | tuple():
            return [filled(item, at, key, tenant) for item in value]
        case _:
            return value


def _written(letter: str, at: datetime) -> str:
    match letter:
        case "B":
            return _MONTHS[at.month - 1]
        case "b":
            return _MONTHS[at.month - 1][:3]
        case "A":
            return _DAYS[at.weekday()]
        case "a":
            return _DAYS[at.weekday()][:3]
        case _:
            return at.strftime(f"%{letter}")


def _check_format(name: str) -> None:
    _, _, pattern = name.partition(":")
    if len(pattern) > LONGEST_FORMAT:
        raise InvalidSchedule(f"{{{name:.40}…}}: a format has at most {LONGEST_FORMAT} characters")
    for match in _DIRECTIVE.finditer(pattern):
        if match[1] not in DIRECTIVES:
            known = " ".join(f"%{letter}" for letter in sorted(DIRECTIVES))
            raise InvalidSchedule(f"{{{name}}}: {match[0]} is not a known directive; use one of {known}")
