"""Converts the triggers of APScheduler 3 into rules: cron, interval and date."""

from collections.abc import Set as AbstractSet
from typing import Any

from sereno.schedules.importers.apscheduler_values import interval, moment, zone_name
from sereno.schedules.importers.cron_fields import (
    EVERY_WEEKDAY,
    HOURS,
    MINUTES,
    MONTH_DAYS,
    MONTHS,
    SECONDS,
    WEEKDAY_NAMES,
    WEEKDAYS,
    days,
    field,
    special_days,
)
from sereno.schedules.importers.draft import UnreadableSchedule
from sereno.schedules.importers.pickle_reader import PickledObject

_TRIGGERS = "apscheduler.triggers"
CRON, INTERVAL, DATE = (
    f"{_TRIGGERS}.cron.CronTrigger",
    f"{_TRIGGERS}.interval.IntervalTrigger",
    f"{_TRIGGERS}.date.DateTrigger",
)
_NO_COUNTERPART = {
    f"{_TRIGGERS}.combining.AndTrigger": "it fires when several triggers agree: write one rule for the combination",
    f"{_TRIGGERS}.combining.OrTrigger": "it has several triggers: write a schedule for each",
    f"{_TRIGGERS}.calendarinterval.CalendarIntervalTrigger": "it counts days, weeks or months: write a cron rule",
}
_FIELDS = frozenset(
    f"{_TRIGGERS}.cron.fields.{name}Field" for name in ("Base", "Week", "DayOfMonth", "DayOfWeek", "Month")
)
_EXPRESSIONS = f"{_TRIGGERS}.cron.expressions."
_ALL, _LAST_DAY, _POSITION = (
    f"{_EXPRESSIONS}{name}Expression" for name in ("All", "LastDayOfMonth", "WeekdayPosition")
)
_RANGES = frozenset(f"{_EXPRESSIONS}{name}RangeExpression" for name in ("", "Month", "Weekday"))
KNOWN = frozenset({CRON, INTERVAL, DATE, _ALL, _LAST_DAY, _POSITION, *_NO_COUNTERPART}) | _FIELDS | _RANGES

_NEWEST = 2
# Positions "1st" to "5th" are 0 to 4, "last" is 5.
_LAST_OF_ITS_KIND = 5


def state_of(trigger: Any) -> dict[str, Any]:
    """Return the values of a trigger. UnreadableSchedule if there is no equivalent rule."""
    if isinstance(trigger, PickledObject) and trigger.name in _NO_COUNTERPART:
        raise UnreadableSchedule(_NO_COUNTERPART[trigger.name])
    if not isinstance(trigger, PickledObject) or trigger.name not in {CRON, INTERVAL, DATE}:
        raise UnreadableSchedule("it has no trigger")
    state = trigger.attributes()
    if state.get("version", 1) > _NEWEST:
        raise UnreadableSchedule(f"its trigger has the unsupported version {state['version']!s:.20}")
    return state


def rule(trigger: PickledObject, state: dict[str, Any]) -> dict[str, Any]:
    """Return its rule in the object form, without its jitter."""
    match trigger.name:
        case "apscheduler.triggers.cron.CronTrigger":
            return {"kind": "cron", "expression": _expression(state["fields"]), "tz": zone_name(state["timezone"])}
        case "apscheduler.triggers.interval.IntervalTrigger":
            return {"kind": "every", "interval": interval(state["interval"]).total_seconds()}
        case _:
            return {"kind": "once", "at": moment(state["run_date"]).isoformat()}


def _expression(fields: list[PickledObject]) -> str:
    parts = {found["name"]: found["expressions"] for found in (part.attributes() for part in fields)}
    for name in ("year", "week"):
        if not all(part.name == _ALL and not part.attributes().get("step") for part in parts[name]):
            raise UnreadableSchedule(f"its trigger uses the field {name}, which a cron expression here does not have")
    month_day, weekday = _days(parts)
    written = [
        _field(parts["minute"], MINUTES),
        _field(parts["hour"], HOURS),
        month_day,
        _field(parts["month"], MONTHS),
        weekday,
    ]
    second = _field(parts["second"], SECONDS)
    return " ".join(written if second == "0" else [second, *written])


def _field(parts: list[PickledObject], bounds: tuple[int, int]) -> str:
    return field(_values(parts, bounds), bounds, star=_has_star(parts))


def _days(parts: dict[str, list[PickledObject]]) -> tuple[str, str]:
    # Monday is 0 in APScheduler.
    weekdays = {(day + 1) % len(EVERY_WEEKDAY) for day in _values(parts["day_of_week"], WEEKDAYS)}
    special = [part for part in parts["day"] if part.name in {_LAST_DAY, _POSITION}]
    month_days = _values([part for part in parts["day"] if part not in special], MONTH_DAYS)
    if not special:
        return days(month_days, weekdays, star=_has_star(parts["day"]))
    positions = {_position(part.attributes()) for part in special if part.name == _POSITION}
    return special_days(month_days, weekdays, last=any(part.name == _LAST_DAY for part in special), positions=positions)


def _position(part: dict[str, Any]) -> str:
    """Return a position: the second Friday is FRI#2, the last one 5L."""
    weekday = (_whole(part["weekday"], WEEKDAYS) + 1) % len(EVERY_WEEKDAY)
    number = _whole(part["option_num"], (0, _LAST_OF_ITS_KIND))
    return f"{weekday}L" if number == _LAST_OF_ITS_KIND else f"{WEEKDAY_NAMES[weekday]}#{number + 1}"


def _values(parts: list[PickledObject], bounds: tuple[int, int]) -> AbstractSet[int]:
    """Return every value that one of the parts matches."""
    low, high = bounds
    found: set[int] = set()
    for part in parts:
        state = part.attributes()
        step = 1 if state.get("step") is None else _whole(state["step"], (1, high + 1))
        if part.name == _ALL:
            found.update(range(low, high + 1, step))
        elif part.name in _RANGES:
            last = high if state["last"] is None else _whole(state["last"], bounds)
            found.update(range(_whole(state["first"], bounds), last + 1, step))
        else:
            raise UnreadableSchedule(f"has an unexpected {part.name!r:.80} in its trigger")
    return found


def _has_star(parts: list[PickledObject]) -> bool:
    return bool(parts) and parts[0].name == _ALL


def _whole(value: Any, bounds: tuple[int, int]) -> int:
    if not isinstance(value, int) or not bounds[0] <= value <= bounds[1]:
        raise UnreadableSchedule(f"its trigger has a number outside {bounds[0]} to {bounds[1]}")
    return value
