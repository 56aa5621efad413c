"""Statements that write, read and change schedules."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries
from sereno.errors import InvalidSchedule
from sereno.jobs.filters import ScheduleFilter
from sereno.schedules.firing import first_instant
from sereno.schedules.rules.instants import compile_text
from sereno.schedules.schedule import NewSchedule, rule_text, shift
from sereno.search.sql_terms import SearchParams
from sereno.zones import instant

_sql = queries("schedules/store")


# A limit above any real number of schedules.
EVERY = 2**62
# Rows that one search statement scans.
WINDOW = 100_000
# Newest instants of one schedule that a search scans.
FIRES_WINDOW = 1000
# Bytes of arguments shown per schedule in a list; larger arguments are left out.
LINE = 16 * 1024


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is stored."""

    id: int
    key: str
    state: str
    rule: dict[str, Any]
    shift: int
    next_run_at: datetime | None
    planned: bool
    task: str
    queue: str
    priority: int
    tenant: str | None
    trace: str | None
    tags: list[str] | None
    args: dict[str, Any]
    unique_key: str | None
    unique_for: float | None
    unique_forever: bool | None
    on_conflict: str | None
    expires_after: float | None
    missed: str
    missed_limit: int
    missed_window: float
    max_lateness: float | None
    overlap: str
    disable_after: int | None
    starts_at: datetime | None
    ends_at: datetime | None
    max_fires: int | None
    paused_until: datetime | None
    note: str | None
    changed_by: str | None
    declared_by: str | None
    created_at: datetime
    changed_at: datetime
    last_planned_at: datetime | None
    last_base_at: datetime | None
    last_fired_at: datetime | None
    last_job_id: int | None
    last_finished_at: datetime | None
    last_state: str | None
    last_error: str | None
    held_at: datetime | None
    fired: int
    missed_count: int
    succeeded: int
    failed: int
    failed_in_row: int
    skipped: dict[str, int]
    lateness: list[int | None]

    @property
    def late_p99(self) -> float | None:
        """Return the 99th percentile of lateness in seconds, within a factor of two, from the buckets of the row."""
        counts = [count or 0 for count in self.lateness]
        wanted = sum(counts) * 0.99
        seen = 0
        for power, count in enumerate(counts, 1):
            seen += count
            if count and seen >= wanted:
                return float(2**power) / 1000
        return None


class UpsertResult(NamedTuple):
    """The result of writing a schedule. "taken": it was declared, but the key belongs to a tenant's schedule."""

    id: int
    key: str
    what: Literal["created", "changed", "unchanged", "taken"]
    state: str
    next_run_at: int | None


class FireRow(NamedTuple):
    """One instant of a schedule: its job and the outcome, or why it made no job."""

    planned_at: datetime | None
    fired_at: datetime
    job_id: int | None
    stands_for: int | None
    reason: str | None
    state: str
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    error: str | None


class SchedulerRow(NamedTuple):
    """The leading scheduler and its last tick. `lag`: seconds that the oldest due schedule has waited."""

    holder: str
    fence: int
    since: datetime
    until: datetime
    alive: bool
    wakes_at: datetime | None
    ticked_at: datetime | None
    tick_seconds: float | None
    tick_fires: int | None
    error: str | None
    error_at: datetime | None
    zones: str | None
    lag: float | None


_upserted = msgspec.json.Decoder(list[UpsertResult])
_rows = msgspec.json.Decoder(list[ScheduleRow])
_row = msgspec.json.Decoder(ScheduleRow)
_arguments = msgspec.json.Decoder(dict[str, Any])
_instants = msgspec.json.Decoder(list[int])
_objects = msgspec.json.Decoder(dict[str, dict[str, Any]])


def clock() -> Operation[int]:
    """Return now, by the database's clock."""
    rows = yield Statement(_sql["clock"])
    return int(rows[0][0])


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
    upsert = Statement(
        _sql["upsert"], {"rows": encoder.encode(payload).decode(), "actor": actor, "declared_by": declared_by}
    )
    rows = yield upsert
    if rows[0][2]:
        # Another transaction has just committed the same rows; this statement's snapshot was older.
        rows = yield upsert
    return _upserted.decode(rows[0][0])


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


def page(
    wanted: ScheduleFilter, limit: int, after: str = "", *, most: int | None = None
) -> Operation[list[ScheduleRow]]:
    """Return a page by key; `after` is the last key of the previous page. `most`: bytes of arguments shown, or all."""
    rows = yield Statement(_sql["list"], wanted.params() | {"limit": limit, "after": after, "most": most})
    return _rows.decode(rows[0][0])


def search(
    wanted: ScheduleFilter, limit: int, after: str = "", *, most: int | None = None
) -> Operation[tuple[list[ScheduleRow], str | None]]:
    """Return a page of search results from a bounded scan, and the key at which the scan stopped unless at the end."""
    params = wanted.params()
    start = wanted.search_params.begins.get("key", "") if wanted.search_params is not None else ""
    if params["keys"] is not None:
        return (yield from page(wanted, limit, after, most=most)), None
    bounds = {"limit": limit, "after": after, "start": start, "window": WINDOW}
    rows = yield Statement(_sql["search"], params | bounds | {"most": most})
    found = _rows.decode(rows[0][0])
    if len(found) == limit:
        return found, None
    last = yield Statement(_sql["looked_at"], {"tenant": params["tenant"], **bounds})
    return found, last[0][0] if last and last[0][0].startswith(start) else None


def page_to_change(wanted: ScheduleFilter, limit: int, after: str = "") -> Operation[list[ScheduleRow]]:
    """Like `page`, but locked until the transaction ends, and without large arguments."""
    rows = yield Statement(_sql["list_locked"], wanted.params() | {"limit": limit, "after": after, "most": LINE})
    return _rows.decode(rows[0][0])


def soonest(wanted: ScheduleFilter, limit: int) -> Operation[list[ScheduleRow]]:
    """Return schedules by due time; a search scans a bounded number of rows."""
    given = wanted.params() | {"limit": limit, "most": LINE}
    if wanted.search_params is None:
        rows = yield Statement(_sql["soonest"], given)
    else:
        rows = yield Statement(_sql["search_soonest"], given | {"window": WINDOW})
    return _rows.decode(rows[0][0])


def count(wanted: ScheduleFilter, bound: int = EVERY) -> Operation[dict[str, int]]:
    """Count matching schedules by state, up to a bound."""
    rows = yield Statement(_sql["count"], wanted.params() | {"bound": bound})
    return {row[0]: int(row[1]) for row in rows}


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
    rows = yield Statement(_sql["lock_one"], {"key": key, "most": LINE})
    if not rows:
        raise InvalidSchedule(f"there is no schedule {key!r:.80}; `sereno schedule list` lists all schedules")
    try:
        args = _arguments.decode(rows[0][1])
    except (RecursionError, msgspec.DecodeError):
        raise InvalidSchedule(f"schedule {key!r:.80}: its arguments are nested too deeply: write it again") from None
    return msgspec.structs.replace(_row.decode(rows[0][0]), args=args)


def note_manual(schedule: int, job: int, *, fired: int, duplicates: int) -> Operation[None]:
    yield Statement(_sql["note_manual"], {"id": schedule, "job": job, "fired": fired, "duplicates": duplicates})


def fires(schedule: int, limit: int, search_params: SearchParams | None = None) -> Operation[list[FireRow]]:
    """Return the newest fires first."""
    given = (
        {"window": limit, "terms": None}
        if search_params is None
        else {"window": FIRES_WINDOW, "terms": search_params.terms}
    )
    rows = yield Statement(_sql["fires"], {"id": schedule, "limit": limit, **given})
    return [FireRow(*row) for row in rows]


def fired_instants(schedule: int, instants: Sequence[int]) -> Operation[set[int]]:
    """Return those of these instants that have already made a job."""
    if not instants:
        return set()
    rows = yield Statement(
        _sql["fired_instants"],
        {"id": schedule, "instants": list(instants), "first": min(instants), "last": max(instants)},
    )
    return set(_instants.decode(rows[0][0]))


def rules(wanted: ScheduleFilter, until: datetime, limit: int) -> Operation[list[tuple[str, int]]]:
    """Return the rules of schedules that may fire until then and how many share each, the most common first."""
    rows = yield Statement(_sql["rules"], wanted.params() | {"until": until, "limit": limit})
    return [(row[0], int(row[1])) for row in rows]


def scheduler() -> Operation[SchedulerRow | None]:
    rows = yield Statement(_sql["scheduler"])
    return SchedulerRow(*rows[0]) if rows else None
