"""django-celery-beat: a periodic task with an interval, a crontab, a clocked time or a solar event."""

import re
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import psycopg

from sereno.schedules.importers import cron_fields
from sereno.schedules.importers.draft import (
    ImportedSchedule,
    NeedlessSchedule,
    ScheduleDraft,
    Turn,
    UnreadableSchedule,
    finished,
)
from sereno.schedules.importers.source import rows

_TASKS = """
select to_jsonb(periodic) || jsonb_build_object(
    'interval', to_jsonb(pace), 'crontab', to_jsonb(crontab),
    'solar', to_jsonb(solar), 'clocked', to_jsonb(clocked)
)
from django_celery_beat_periodictask as periodic
left join django_celery_beat_intervalschedule as pace on pace.id = periodic.interval_id
left join django_celery_beat_crontabschedule as crontab on crontab.id = periodic.crontab_id
left join django_celery_beat_solarschedule as solar on solar.id = periodic.solar_id
left join django_celery_beat_clockedschedule as clocked on clocked.id = periodic.clocked_id
order by periodic.name
"""

# Celery adds this task itself, to delete its old results.
_HOUSEKEEPING = "celery.backend_cleanup"
_PERIODS = frozenset({"days", "hours", "minutes", "seconds", "microseconds"})

_PART = re.compile(r"(?:(?P<star>\*)|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d+))?", re.ASCII)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# "monday" is read as "mon", as Celery does.
_NAMES = {name: day for day, name in enumerate(_WEEKDAYS)} | {name: month for month, name in enumerate(_MONTHS, 1)}
_LETTERS = 3

_STOPPED = "was disabled in celery-beat"
_CLOCK: dict[Turn, str] = {
    ("fixed", "gap"): "celery beat delays a time that the clock skips by the gap; here it runs right after the gap",
    ("rhythm", "fold"): "celery beat pauses while the times of one hour are repeated; here it runs on both passes",
}


def read(connection: psycopg.Connection, now: datetime) -> list[ImportedSchedule]:
    return [
        finished(
            ScheduleDraft(f"celery-beat:{row['name']}", bool(row["enabled"]), _STOPPED, _CLOCK),
            partial(_fill, row, now),
            now,
        )
        for row in rows(connection, _TASKS, "django_celery_beat_periodictask")
    ]


def _fill(row: dict[str, Any], now: datetime, draft: ScheduleDraft) -> None:
    if row["task"] == _HOUSEKEEPING:
        raise NeedlessSchedule("it deletes Celery's own results, which do not exist here")
    draft.fields = {
        "task": row["task"],
        "args": _arguments(row),
        "when": _when(row),
        # Celery sends a message regardless of the previous run, and one for all missed ones when it is back.
        "overlap": "allow",
        "missed": "latest",
        **_limits(row, now),
    }
    if row["queue"]:
        draft.fields["queue"] = row["queue"]
    if row["priority"] is not None:
        draft.notes.append(
            f"its priority {row['priority']} is not imported: brokers read it in opposite directions; "
            "here 0 is first and 9 is last"
        )
    others = [name for name in ("exchange", "routing_key", "headers") if row.get(name) not in {None, "", "{}"}]
    if others:
        draft.notes.append(f"{', '.join(others)} not imported: a job is addressed by its queue only")


def _arguments(row: dict[str, Any]) -> dict[str, Any]:
    if _decoded(row, "args", list[Any]):
        raise UnreadableSchedule(
            "it has positional arguments, but arguments are stored by parameter name: "
            "give it keyword arguments in Celery first"
        )
    found: dict[str, Any] = _decoded(row, "kwargs", dict[str, Any])
    if b'"__type__"' in msgspec.json.encode(found):
        raise UnreadableSchedule("its keyword arguments have a value that only Celery's JSON supports, such as a date")
    return found


def _decoded(row: dict[str, Any], name: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(row[name] or ("[]" if name == "args" else "{}"), type=kind)
    except msgspec.MsgspecError as error:
        raise UnreadableSchedule(f"its {name} are not in Celery's format: {error}") from None


def _when(row: dict[str, Any]) -> dict[str, Any]:
    """Return the rule, chosen in the order in which Celery checks them."""
    if row["interval"]:
        return _every(row["interval"])
    if row["crontab"]:
        return _cron(row["crontab"])
    if sun := row["solar"]:
        raise UnreadableSchedule(
            f"it follows the sun ({sun['event']} at {sun['latitude']}, {sun['longitude']}), and there is no such rule; "
            "use an hourly schedule and let the task compute the position of the sun"
        )
    if row["clocked"]:
        return {"kind": "once", "at": row["clocked"]["clocked_time"]}
    raise UnreadableSchedule("it has no schedule: neither interval nor crontab, clocked or solar")


def _every(interval: dict[str, Any]) -> dict[str, Any]:
    if interval["period"] not in _PERIODS:
        raise UnreadableSchedule(f"its period {interval['period']!r:.40} is unknown")
    return {"kind": "every", "interval": timedelta(**{interval["period"]: interval["every"]}).total_seconds()}


def _cron(crontab: dict[str, Any]) -> dict[str, Any]:
    def field(name: str, bounds: tuple[int, int]) -> str:
        return cron_fields.field(_values(crontab, name, bounds), bounds, star=crontab[name].startswith("*"))

    month_day, weekday = cron_fields.days(
        _values(crontab, "day_of_month", cron_fields.MONTH_DAYS),
        _values(crontab, "day_of_week", cron_fields.WEEKDAYS),
        star=crontab["day_of_month"].startswith("*"),
    )
    expression = (
        field("minute", cron_fields.MINUTES),
        field("hour", cron_fields.HOURS),
        month_day,
        field("month_of_year", cron_fields.MONTHS),
        weekday,
    )
    return {"kind": "cron", "expression": " ".join(expression), "tz": crontab["timezone"]}


def _values(crontab: dict[str, Any], name: str, bounds: tuple[int, int]) -> set[int]:
    """Return the values of a field as Celery reads it."""
    found: set[int] = set()
    for part in str(crontab[name]).split(","):
        try:
            found |= _part(part.strip(), bounds)
        except (LookupError, ValueError):
            raise UnreadableSchedule(f"its {name.replace('_', ' ')} {part!r:.40} is unknown") from None
    return found


def _part(text: str, bounds: tuple[int, int]) -> set[int]:
    """Return the values of *, */2, 7, 7-9 or 7-9/2; a descending range wraps around."""
    low, high = bounds
    match = _PART.fullmatch(text)
    if match is None or (match["step"] and not (match["star"] or match["last"])):
        raise ValueError(text)
    run = [*range(low, high + 1)]
    if not match["star"]:
        first, last = run.index(_value(match["first"])), run.index(_value(match["last"] or match["first"]))
        run = run[first : last + 1] if first <= last else run[first:] + run[: last + 1]
    return {*run[:: int(match["step"] or 1)]}


def _value(text: str) -> int:
    return int(text) if text.isdigit() else _NAMES[text[:_LETTERS].lower()]


def _limits(row: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Return its start, its end, and its maximum number of runs."""
    found: dict[str, Any] = {}
    start, expires = _date(row["start_time"]), _date(row["expires"])
    if row["interval"]:
        # The interval continues: Celery counts from the last run, or from when the row was written.
        last = _date(row["last_run_at"]) or (None if start else _date(row["date_changed"]))
        found["starts_at"] = max(at for at in (start, last) if at is not None).isoformat()
    elif start and start > now and not row["clocked"]:
        found["starts_at"] = start.isoformat()
    if expires and not row["clocked"]:
        # In Celery the end is exclusive.
        found["ends_at"] = (expires - timedelta(microseconds=1)).isoformat()
    if row["one_off"] and row["total_run_count"]:
        raise UnreadableSchedule("it was a one-off and has already run")
    if row["one_off"] and not row["clocked"]:
        found["max_fires"] = 1
    if row.get("expire_seconds") is not None:
        found["expires_after"] = row["expire_seconds"]
    return found


def _date(text: str | None) -> datetime | None:
    if text is None:
        return None
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise UnreadableSchedule(
            "its dates have no time zone, because Django runs with USE_TZ = False: create this one by hand"
        )
    return at
