"""Statements that write and lock schedules."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from sereno.database.clock import clock
from sereno.database.json_values import encoder, is_too_deep
from sereno.database.statement import Operation, Statement, queries
from sereno.errors import InvalidSchedule
from sereno.jobs.filters import ScheduleFilter
from sereno.schedules.firing import first_instant
from sereno.schedules.queries import MOST_SHOWN
from sereno.schedules.rows import ScheduleRow, UpsertOutcome, UpsertResult
from sereno.schedules.rules.instants import compile_text
from sereno.schedules.schedule import NewSchedule, rule_text, shift
from sereno.zones import instant, moment

_sql = queries("schedules/store")

# The fields of UpsertResult; the instant in microseconds.
_upserted = msgspec.json.Decoder(list[tuple[int, str, UpsertOutcome, str, int | None]])
_rows = msgspec.json.Decoder(list[ScheduleRow])
_row = msgspec.json.Decoder(ScheduleRow)
_arguments = msgspec.json.Decoder(dict[str, Any])
_objects = msgspec.json.Decoder(dict[str, dict[str, Any]])


def upsert(
    schedules: Sequence[NewSchedule],
    actor: str,
    *,
    state: str | None = None,
    declared_by: str | None = None,
    may_be_over: bool = False,
) -> Operation[list[UpsertResult]]:
    """Write checked schedules. One whose instants are all past is refused unless `may_be_over`."""
    if not schedules:
        return []
    _check_keys(schedules)
    now = yield from clock()
    first = [_first(schedule, now) for schedule in schedules]
    over = [schedule for schedule, at in zip(schedules, first, strict=True) if at is None]
    if over and not may_be_over:
        yield from _check_known(over)
    payload = [schedule.as_row() | {"next": at, "state": state} for schedule, at in zip(schedules, first, strict=True)]
    statement = Statement(
        _sql["upsert"], {"rows": encoder.encode(payload).decode(), "actor": actor, "declared_by": declared_by}
    )
    rows = yield statement
    if rows[0][2]:
        # Another transaction has just committed the same rows; this statement's snapshot was older.
        rows = yield statement
    return [
        UpsertResult(number, key, what, stored_state, None if at is None else moment(at))
        for number, key, what, stored_state, at in _upserted.decode(rows[0][0])
    ]


def _check_keys(schedules: Sequence[NewSchedule]) -> None:
    seen: set[str] = set()
    for schedule in schedules:
        if schedule.key in seen:
            raise schedule.refusal("it is given twice in one call")
        seen.add(schedule.key)


def _first(schedule: NewSchedule, now: int) -> int | None:
    rule = compile_text(rule_text(schedule.when))
    starts_at = None if schedule.starts_at is None else instant(schedule.starts_at)
    at = first_instant(rule, shift(schedule.key, schedule.when), now, starts_at)
    if at is not None and schedule.ends_at is not None and at > instant(schedule.ends_at):
        return None
    return at


def _check_known(over: Sequence[NewSchedule]) -> Operation[None]:
    rows = yield Statement(_sql["known_rules"], {"keys": [schedule.key for schedule in over]})
    known = _objects.decode(rows[0][0])
    for schedule in over:
        if known.get(schedule.key) != msgspec.json.decode(rule_text(schedule.when)):
            raise schedule.refusal("it would never fire: its instants are all past")


def retire(service: str, keys: Collection[str]) -> Operation[list[str]]:
    """Disable schedules that this service no longer declares. Return their keys."""
    rows = yield Statement(_sql["retire"], {"service": service, "keys": list(keys)})
    return [row[0] for row in rows]


def lock_page(wanted: ScheduleFilter, limit: int, after: str = "") -> Operation[list[ScheduleRow]]:
    """Return a page by key, locked until the transaction ends, without large arguments."""
    rows = yield Statement(_sql["lock_page"], wanted.params() | {"limit": limit, "after": after, "most": MOST_SHOWN})
    return _rows.decode(rows[0][0])


def pause(wanted: ScheduleFilter, until: datetime | None, note: str | None, actor: str) -> Operation[int]:
    return _counted("pause", wanted, {"until": until, "note": note, "actor": actor})


def resume(wanted: ScheduleFilter, actor: str) -> Operation[int]:
    return _counted("resume", wanted, {"actor": actor})


def disable(wanted: ScheduleFilter, note: str | None, actor: str) -> Operation[int]:
    return _counted("disable", wanted, {"note": note, "actor": actor})


def delete(wanted: ScheduleFilter) -> Operation[int]:
    return _counted("delete", wanted, {})


def _counted(name: str, wanted: ScheduleFilter, others: Mapping[str, Any]) -> Operation[int]:
    rows = yield Statement(_sql[name], {**wanted.params(), **others})
    return int(rows[0][0])


def reshift(rows: Sequence[Mapping[str, Any]]) -> Operation[int]:
    """Change rule, offset and next instant by id."""
    found = yield Statement(_sql["reshift"], {"rows": encoder.encode(rows).decode()})
    return int(found[0][0])


def lock_one(key: str) -> Operation[ScheduleRow]:
    """Lock and return a schedule for a manual run."""
    rows = yield Statement(_sql["lock_one"], {"key": key, "most": MOST_SHOWN})
    if not rows:
        raise InvalidSchedule(f"there is no schedule {key!r:.80}; `sereno schedule list` lists all schedules")
    # A row of an older version; how deep a decoder can go depends on the version of Python.
    if is_too_deep(rows[0][1].encode()):
        raise InvalidSchedule(f"schedule {key!r:.80}: its arguments are nested too deeply: write it again")
    args = _arguments.decode(rows[0][1])
    return msgspec.structs.replace(_row.decode(rows[0][0]), args=args)


def note_manual(schedule: int, job: int, *, fired: int, duplicates: int) -> Operation[None]:
    yield Statement(_sql["note_manual"], {"id": schedule, "job": job, "fired": fired, "duplicates": duplicates})
