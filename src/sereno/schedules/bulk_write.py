"""Schedules that come as objects, from an export or the command line: written in bulk, some of them stopped.

The object of a schedule is that of `imports.form`. Beside it, `enabled`: false brings it in stopped, with its `note`.
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
from sereno.jobs.filters import ScheduleFilter
from sereno.jobs.job import DEFAULT_PRIORITY, JobOptions, NewJob
from sereno.schedules import store
from sereno.schedules.importers.definition import MakeJob, as_object, from_object, without_key
from sereno.schedules.schedule import NewSchedule
from sereno.schedules.store import ScheduleRow, UpsertResult
from sereno.text import check_text

# In place of what the database does not show: see sereno.shown.
NOT_SHOWN = "not shown"
# So many keys are named in the audit; the others are counted.
NAMED = 5
# What is to be stopped, and is not yet.
NOT_STOPPED = ("enabled", "parked", "finished")


@dataclass(frozen=True, slots=True)
class DescribedSchedule:
    """A schedule that is asked for, and whether it is to run."""

    schedule: NewSchedule
    enabled: bool = True
    note: str | None = None


def exported(row: ScheduleRow) -> dict[str, Any]:
    """The object of a row; what a person stopped says so."""
    if row.state not in ("paused", "disabled"):
        return as_object(row)
    return as_object(row) | {"enabled": False} | ({"note": row.note} if row.note else {})


def described(value: Any, make_job: MakeJob) -> DescribedSchedule:
    """The schedule of an object, checked like any other; InvalidSchedule says what is wrong, but not with which."""
    if not isinstance(value, dict):
        raise InvalidSchedule("a schedule is a JSON object")
    fields = dict(value)
    enabled, note = fields.pop("enabled", True), fields.pop("note", None)
    if not isinstance(enabled, bool):
        raise InvalidSchedule("enabled is true or false")
    check_text("note", note)
    if isinstance(args := fields.get("args"), dict) and args.keys() == {NOT_SHOWN}:
        raise InvalidSchedule(f"its arguments were not shown where it comes from: {args[NOT_SHOWN]!s:.80}")
    try:
        return DescribedSchedule(from_object(fields, make_job), enabled, note)
    except InvalidSchedule as error:
        raise InvalidSchedule(without_key(error, fields.get("key"))) from error


def unchecked_job(task: str, raw: bytes, options: JobOptions) -> NewJob:
    """A job of an application that is not at hand: only what any job must be is checked."""
    check_text("task", task)
    try:
        arguments = msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArguments(f"task {task}: the arguments must be one JSON object: {error}") from None
    priority = DEFAULT_PRIORITY if options.priority is None else options.priority
    filled = msgspec.structs.replace(options, queue=options.queue or "default", priority=priority)
    args = stored(arguments, lambda why: InvalidArguments(f"task {task}: {why}"))
    return NewJob(task, args, filled.checked())


def write(wanted: Sequence[DescribedSchedule], *, actor: str | None = None) -> Operation[list[UpsertResult]]:
    """Create them or change them to be so; answers in the order given. One that is not to run is disabled."""
    who = actor or default_actor()
    found = yield from store.upsert([each.schedule for each in wanted], who)
    stopped = yield from _stop(wanted, who)
    found = [made._replace(what="changed") if _only_stopped(made, stopped) else made for made in found]
    touched = [made for made in found if made.what != "unchanged"]
    if touched:
        subject = f"schedule {touched[0].key}" if len(touched) == 1 else f"{len(touched)} schedules"
        detail = {"keys": [made.key for made in touched[:NAMED]], **Counter(str(made.what) for made in touched)}
        yield from audit.audit(who, "schedule.write", subject, detail)
    return found


def _stop(wanted: Sequence[DescribedSchedule], who: str) -> Operation[set[str]]:
    """Disable those that are not to run, each with its note; answers their keys. What a person paused stays so."""
    notes: dict[str | None, list[str]] = defaultdict(list)
    for each in wanted:
        if not each.enabled:
            notes[each.note].append(each.schedule.key)
    stopped: set[str] = set()
    for note, keys in notes.items():
        going = ScheduleFilter(keys=keys, states=NOT_STOPPED)
        stopped |= {row.key for row in (yield from store.page(going, len(keys), most=store.LINE))}
        yield from store.disable(going, note, who)
    return stopped


def _only_stopped(made: UpsertResult, stopped: set[str]) -> bool:
    return made.what == "unchanged" and made.key in stopped
