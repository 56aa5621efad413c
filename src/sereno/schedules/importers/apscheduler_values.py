"""Converts the values of an APScheduler job from parsed pickles: moments, zones, durations and plain arguments."""

import math
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

from sereno.schedules.importers.draft import UnreadableSchedule
from sereno.schedules.importers.pickle_reader import PickledObject
from sereno.zones import zone

_ZONEINFO = frozenset({"zoneinfo.ZoneInfo._unpickle", "backports.zoneinfo.ZoneInfo._unpickle"})
# Releases before 3.11 use zones of pytz, and a wrapper around it for the local zone.
KNOWN = _ZONEINFO | {
    "zoneinfo.ZoneInfo",
    "backports.zoneinfo.ZoneInfo",
    "pytz._UTC",
    "pytz._p",
    "pytz.FixedOffset",
    "pytz_deprecation_shim._impl.wrap_zone",
    "datetime.datetime",
    "datetime.date",
    "datetime.timedelta",
    "datetime.timezone",
}

# Values in the arguments of one job: a small pickle can hold the same list a billion times.
_MOST_VALUES = 10_000
_DEEPEST = 32
_LARGEST = 2**63
_HOUR = 3600


def moment(value: Any) -> datetime:
    """Return an aware moment in UTC."""
    at = _datetime(value)
    if at.tzinfo is None:
        raise UnreadableSchedule("one of its dates has no time zone")
    return at.astimezone(UTC)


def interval(value: Any) -> timedelta:
    if not isinstance(value, PickledObject) or value.name != "datetime.timedelta":
        raise UnreadableSchedule("its interval cannot be read")
    return timedelta(*value.args)


def zone_name(value: Any) -> str:
    """Return the zone name for a rule."""
    match value:
        case PickledObject(name="pytz_deprecation_shim._impl.wrap_zone", args=(inner, *_)):
            return zone_name(inner)
        case PickledObject(name=name, args=(str(key), *_)) if name in _ZONEINFO or name == "pytz._p":
            return key
        case _:
            hours, rest = divmod(_offset(value).total_seconds(), _HOUR)
            if rest:
                raise UnreadableSchedule(
                    f"its time zone has no name, only the offset {_offset(value)} from UTC: create this one by hand"
                )
            # These names follow POSIX: west is positive.
            return f"Etc/GMT{-hours:+.0f}" if hours else "UTC"


def _datetime(value: Any) -> datetime:
    """Return a datetime from Python's packed form: ten bytes and an optional zone."""
    match value:
        case PickledObject(name="datetime.datetime", args=(bytes(raw), *zones)) if len(raw) == len("yymdhmsuuu"):
            year, (month, day, hour, minute, second) = raw[0] * 256 + raw[1], raw[2:7]
            clock = _clock(zones[0]) if zones else None
            # The highest bit of the month is the fold.
            fold, month = divmod(month, 128)
            return datetime(year, month, day, hour, minute, second, int.from_bytes(raw[7:]), clock, fold=fold)
    raise UnreadableSchedule("one of its dates cannot be read")


def _clock(value: Any) -> tzinfo:
    match value:
        case PickledObject(name="pytz_deprecation_shim._impl.wrap_zone", args=(inner, *_)):
            return _clock(inner)
        case PickledObject(name="pytz._p", args=(str(), int(offset), *_)):
            # A pytz zone is pickled with the one offset that applied at that moment.
            return timezone(timedelta(seconds=offset))
        case PickledObject(name=name, args=(str(key), *_)) if name in _ZONEINFO or name == "pytz._p":
            return zone(key).info
        case _:
            return timezone(_offset(value))


def _offset(value: Any) -> timedelta:
    """Return the offset from UTC of a zone without a name."""
    match value:
        case PickledObject(name="pytz._UTC"):
            return timedelta()
        case PickledObject(name="pytz.FixedOffset", args=(int(minutes),)):
            return timedelta(minutes=minutes)
        case PickledObject(name="datetime.timezone", args=(length, *_)):
            return interval(length)
    raise UnreadableSchedule("its time zone cannot be read")


def plain(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments as JSON values."""
    left = [_MOST_VALUES]
    return {name: _plain(value, left, 0) for name, value in arguments.items()}


def _plain(value: Any, left: list[int], depth: int) -> Any:
    left[0] -= 1
    if left[0] < 0 or depth > _DEEPEST:
        raise UnreadableSchedule(
            f"its arguments have more than {_MOST_VALUES:,} values, or are nested more than {_DEEPEST} levels deep"
        )
    match value:
        case None | bool() | str():
            return value
        case int() if -_LARGEST <= value < _LARGEST:
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return [_plain(item, left, depth + 1) for item in value]
        case dict():
            return {name: _plain(item, left, depth + 1) for name, item in value.items()}
        case PickledObject(name="datetime.datetime"):
            return _datetime(value).isoformat()
    what = value.name if isinstance(value, PickledObject) else type(value).__name__
    raise UnreadableSchedule(f"its arguments contain a {what}, which has no JSON form")
