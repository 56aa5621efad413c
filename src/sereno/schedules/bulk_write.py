"""Writes schedules given as JSON objects, from an export or the command line, in bulk; some of them disabled.

The format is that of `importers.definition`, plus `enabled`: false imports it disabled, with its `note`.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.database.json_values import stored
from sereno.database.statement import Operation
from sereno.errors import InvalidArguments, InvalidSchedule
from sereno.jobs.encryption import key_of
from sereno.jobs.filters import ScheduleFilter
from sereno.jobs.job import DEFAULT_PRIORITY, JobOptions, NewJob
from sereno.schedules import queries, store
from sereno.schedules.importers.definition import MakeJob, as_object, from_object, without_key
from sereno.schedules.rows import ScheduleRow, UpsertResult
from sereno.schedules.schedule import NewSchedule
from sereno.text import check_text

# Replaces values that the database hides: see sereno.shown.
NOT_SHOWN = "not shown"
# Number of keys listed in the audit entry; the others are counted.
NAMED = 5
# States of schedules that still have to be disabled.
NOT_STOPPED = ("enabled", "parked", "finished")


@dataclass(frozen=True, slots=True)
class DescribedSchedule:
    """A schedule to write, and whether it is enabled."""

    schedule: NewSchedule
    enabled: bool = True
    note: str | None = None


def exported(row: ScheduleRow) -> dict[str, Any]:
    """Return the object of a row; a paused or disabled one is marked as such."""
    if row.state not in ("paused", "disabled"):
        return as_object(row)
    return as_object(row) | {"enabled": False} | ({"note": row.note} if row.note else {})


def described(value: Any, make_job: MakeJob) -> DescribedSchedule:
    """Return the schedule of an object, checked. InvalidSchedule describes the problem without the key."""
    if not isinstance(value, dict):
        raise InvalidSchedule("a schedule must be a JSON object")
    fields = dict(value)
    enabled, note = fields.pop("enabled", True), fields.pop("note", None)
    if not isinstance(enabled, bool):
        raise InvalidSchedule("enabled must be true or false")
    check_text("note", note)
    if isinstance(args := fields.get("args"), dict) and args.keys() == {NOT_SHOWN}:
        raise InvalidSchedule(f"its arguments were hidden in the export: {args[NOT_SHOWN]!s:.80}")
    try:
        return DescribedSchedule(from_object(fields, make_job), enabled, note)
    except InvalidSchedule as error:
        raise InvalidSchedule(without_key(error, fields.get("key"))) from error


def unchecked_job(task: str, raw: bytes, options: JobOptions) -> NewJob:
    """Return a job of an application that is not loaded, checked without knowledge of its task.

    Arguments that are encrypted, as in an export, need their key; the version of the task is unknown.
    """
    check_text("task", task)
    try:
        arguments = msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArguments(f"task {task}: the arguments must be one JSON object: {error}") from None
    priority = DEFAULT_PRIORITY if options.priority is None else options.priority
    filled = msgspec.structs.replace(options, queue=options.queue or "default", priority=priority)
    args = stored(arguments, lambda why: InvalidArguments(f"task {task}: {why}"))
    key = key_of(arguments)
    return NewJob(
        task, args, filled.checked(), requires=None if key is None else stored({"key": key}, InvalidArguments)
    )


def write(wanted: Sequence[DescribedSchedule], *, actor: str | None = None) -> Operation[list[UpsertResult]]:
    """Create or change schedules, and disable those with `enabled` false. Return the results in the order given."""
    who = actor or default_actor()
    found = yield from store.upsert([each.schedule for each in wanted], who)
    stopped = yield from _stop(wanted, who)
    found = [msgspec.structs.replace(made, what="changed") if _only_stopped(made, stopped) else made for made in found]
    touched = [made for made in found if made.what != "unchanged"]
    if touched:
        subject = f"schedule {touched[0].key}" if len(touched) == 1 else f"{len(touched)} schedules"
        detail = {"keys": [made.key for made in touched[:NAMED]], **Counter(str(made.what) for made in touched)}
        yield from audit.audit(who, "schedule.write", subject, detail)
    return found


def _stop(wanted: Sequence[DescribedSchedule], who: str) -> Operation[set[str]]:
    """Disable the schedules that must not run, each with its note. Return their keys. Paused ones stay paused."""
    notes: dict[str | None, list[str]] = defaultdict(list)
    for each in wanted:
        if not each.enabled:
            notes[each.note].append(each.schedule.key)
    stopped: set[str] = set()
    for note, keys in notes.items():
        running = ScheduleFilter(keys=keys, states=NOT_STOPPED)
        stopped |= {row.key for row in (yield from queries.page(running, len(keys), most=queries.MOST_SHOWN))}
        yield from store.disable(running, note, who)
    return stopped


def _only_stopped(made: UpsertResult, stopped: set[str]) -> bool:
    return made.what == "unchanged" and made.key in stopped
