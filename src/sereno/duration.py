"""Durations in the forms that the API accepts: "15m", "1h30m", 90, timedelta(minutes=2)."""

import re
import sys
from datetime import timedelta
from typing import TypeAlias

from sereno.errors import ConfigurationError

Duration: TypeAlias = str | int | float | timedelta

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")


def seconds(duration: Duration) -> float:
    """Return the duration in seconds; never negative."""
    if isinstance(duration, timedelta):
        value = duration.total_seconds()
    elif isinstance(duration, str):
        value = _parse(duration)
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        # An int can be larger than any float.
        value = float(duration) if duration < sys.float_info.max else float("inf")
    else:
        raise ConfigurationError(f'{duration!r} is not a duration: write "15m", a number of seconds or a timedelta')
    if not 0 <= value < float("inf"):
        raise ConfigurationError(f"{duration!r} is not a duration: it must be finite and not negative")
    return value


def _parse(text: str) -> float:
    compact = text.replace(" ", "")
    if compact.isdecimal():
        # A Retry-After header is plain seconds.
        return float(compact)
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ConfigurationError(f'"{text}" is not a duration: write it like "30s", "15m", "1h30m" or "7d"')
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def per_second(rate: float | str) -> float:
    """Return a rate such as 50, "50/s" or "10/m" per second."""
    number, _, unit = str(rate).partition("/")
    try:
        found = float(number) / {"": 1, "s": 1, "m": 60, "h": 3600}[unit.strip()]
    except (ValueError, KeyError):
        raise ConfigurationError(f'{rate!r} is not a rate: write it like "50/s" or "10/m"') from None
    if not 0 < found < float("inf"):
        raise ConfigurationError(f"{rate!r} is not a rate: it must be greater than 0")
    return found


def duration_text(length: float) -> str:
    """Return seconds as readable text: "850 ms", "12 s", "3 m 20 s", "5 h 41 m", "2 d 3 h"."""
    if length < 1:
        return f"{length * 1000:.0f} ms"
    whole = round(length)
    if whole < _UNITS["m"]:
        return f"{whole} s"
    for name, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {name} {rest} {smaller}" if rest else f"{whole // size} {name}"
    raise AssertionError(length)
