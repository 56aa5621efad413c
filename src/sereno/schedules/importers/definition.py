"""The definition of a schedule as one JSON object: written by exports and importers, read by imports.

It has only the fields that are set. Durations are in seconds, dates are texts with an offset, the rule is a `when`.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from sereno.database.json_values import stored
from sereno.errors import ConfigurationError, InvalidArguments, InvalidSchedule
from sereno.jobs.job import JobOptions, NewJob
from sereno.schedules.rows import ScheduleRow
from sereno.schedules.rules.when import decode
from sereno.schedules.schedule import NewSchedule
from sereno.text import check_text

MakeJob = Callable[[str, bytes, JobOptions], NewJob]

_TEXT: Final = (str,)
_NUMBER: Final = (int,)
_DURATION: Final = (str, int, float)
_DATE: Final = (str, datetime)

# The types of each field, checked before its value.
FIELDS: Final[Mapping[str, tuple[type, ...]]] = {
    "key": _TEXT,
    "task": _TEXT,
    "args": (dict,),
    "when": (dict,),
    "queue": _TEXT,
    "priority": _NUMBER,
    "tenant": _TEXT,
    "tags": (list,),
    "trace": _TEXT,
    "unique_key": _TEXT,
    "unique_for": _DURATION,
    "on_conflict": _TEXT,
    "missed": _TEXT,
    "missed_limit": _NUMBER,
    "missed_window": _DURATION,
    "max_lateness": _DURATION,
    "overlap": _TEXT,
    "starts_at": _DATE,
    "ends_at": _DATE,
    "max_fires": _NUMBER,
    "disable_after": _NUMBER,
    "expires_after": _DURATION,
}
_NEEDED = ("key", "task", "when")
_OPTIONS = ("queue", "priority", "tenant", "tags", "trace", "unique_key", "unique_for", "on_conflict")
_TYPE_NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    dict: "an object",
    list: "a list",
    datetime: "a date",
}

# Longest text of a date or duration in characters.
_LONGEST_TEXT = 100
# Range of integers in PostgreSQL.
_LARGEST = 2**63
_DAY = 86400
_DEFAULTS = {"missed": "latest", "missed_limit": 100, "missed_window": _DAY, "overlap": "skip", "on_conflict": "keep"}


def as_object(row: ScheduleRow) -> dict[str, Any]:
    """Return the definition of a stored schedule."""
    found: dict[str, Any] = {
        "key": row.key,
        "task": row.task,
        "args": row.args,
        "when": row.rule,
        "queue": row.queue,
        "priority": row.priority,
        "tenant": row.tenant,
        "tags": row.tags or None,
        "trace": row.trace,
        "unique_key": row.unique_key,
        "unique_for": "forever" if row.unique_forever else _seconds(row.unique_for),
        "on_conflict": row.on_conflict,
        "missed": row.missed,
        "missed_limit": row.missed_limit,
        "missed_window": _seconds(row.missed_window),
        "max_lateness": _seconds(row.max_lateness),
        "overlap": row.overlap,
        "starts_at": _text(row.starts_at),
        "ends_at": _text(row.ends_at),
        "max_fires": row.max_fires,
        "disable_after": row.disable_after,
        "expires_after": _seconds(row.expires_after),
    }
    return {name: value for name, value in found.items() if value is not None and value != _DEFAULTS.get(name)}


def from_object(fields: Mapping[str, Any], make_job: MakeJob) -> NewSchedule:
    """Return the checked schedule of this definition. InvalidSchedule names the wrong field."""
    if not isinstance(fields, Mapping):
        raise InvalidSchedule(f"a schedule must be a JSON object, not {_kind(fields)}")
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        return _schedule(given, make_job)
    except (InvalidArguments, ConfigurationError) as error:
        raise _refusal(given, str(error)) from error
    except RecursionError:
        raise _refusal(given, "it is nested too deeply") from None


def _schedule(given: dict[str, Any], make_job: MakeJob) -> NewSchedule:
    _check_shapes(given)
    check_text("task", given["task"])
    args = stored(given.pop("args", {}), lambda why: _refusal(given, f"args: {why}"))
    options = JobOptions(**{name: given.pop(name) for name in _OPTIONS if name in given}).checked()
    try:
        when = decode(given.pop("when"))
    except InvalidSchedule as error:
        raise _refusal(given, str(error)) from None
    for name in ("starts_at", "ends_at"):
        if name in given:
            given[name] = _date(given, name)
    job = make_job(given.pop("task"), args, options)
    return NewSchedule(job=job, when=when, **given).checked()


def _check_shapes(given: Mapping[str, Any]) -> None:
    """Check the names and types of the fields; their values are checked by NewSchedule and JobOptions."""
    for name, value in given.items():
        if name not in FIELDS:
            raise _refusal(given, f"there is no field {str(name)[:40]!r}; the fields are {', '.join(FIELDS)}")
        wanted = FIELDS[name]
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise _refusal(given, f"{name} is {' or '.join(_TYPE_NAMES[kind] for kind in wanted)}, not {_kind(value)}")
        if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
            raise _refusal(given, f"{name} is out of range")
        if isinstance(value, str) and wanted in {_DURATION, _DATE} and len(value) > _LONGEST_TEXT:
            raise _refusal(given, f"{name} is too long: {len(value)} characters, at most {_LONGEST_TEXT}")
    if not all(isinstance(tag, str) for tag in given.get("tags", ())):
        raise _refusal(given, "tags is a list of texts")
    for name in _NEEDED:
        if name not in given:
            raise _refusal(given, f"it needs a {name}")


def _date(given: Mapping[str, Any], name: str) -> datetime:
    value = given[name]
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise _refusal(given, f'{name} {value!r} is not a date: write it like "2027-01-08T09:00:00Z"') from None


def _refusal(given: Mapping[str, Any], why: str) -> InvalidSchedule:
    key = given.get("key")
    return InvalidSchedule(
        f"schedule {key!r:.80}: {why}" if isinstance(key, str) else f"a schedule without a key: {why}"
    )


def without_key(error: Exception, key: object) -> str:
    """Return the problem without the key, for output that shows the key next to it."""
    return str(error).removeprefix(f"schedule {key!r:.80}: ")


def _kind(value: object) -> str:
    return "true or false" if isinstance(value, bool) else _TYPE_NAMES.get(type(value)) or type(value).__name__


def _seconds(value: float | None) -> int | float | None:
    return int(value) if value is not None and value == int(value) else value


def _text(value: datetime | None) -> str | None:
    return None if value is None else value.astimezone(UTC).isoformat()


def plain_job(task: str, args: bytes, options: JobOptions) -> NewJob:
    """Return a job without knowledge of its task, to check the rest of a schedule."""
    return NewJob(task, args, options)
