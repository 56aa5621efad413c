"""APScheduler 3: reads the table of its SQLAlchemy job store. Each job is a pickle, which is parsed, never executed."""

import base64
from datetime import datetime
from functools import partial
from typing import Any

import psycopg

from sereno.schedules.importers import apscheduler_triggers, apscheduler_values, pickle_reader
from sereno.schedules.importers.apscheduler_triggers import DATE, INTERVAL
from sereno.schedules.importers.apscheduler_values import moment, plain
from sereno.schedules.importers.draft import ImportedSchedule, ScheduleDraft, Turn, UnreadableSchedule, finished
from sereno.schedules.importers.pickle_reader import PickledObject
from sereno.schedules.importers.source import rows
from sereno.schedules.schedule import LONGEST_WINDOW

# A pickle that is too large is not sent by the server.
_JOBS = """
select jsonb_build_object(
    'id', job.id,
    'enabled', job.next_run_time is not null,
    'size', octet_length(job.job_state),
    'state', case when octet_length(job.job_state) <= %(largest)s then encode(job.job_state, 'base64') end
)
from apscheduler_jobs as job
order by job.id
"""
_JOB = "apscheduler.job.Job"
_KNOWN = apscheduler_values.KNOWN | apscheduler_triggers.KNOWN | {_JOB}
_NEWEST = 1

_STOPPED = "was paused in APScheduler"
_CLOCK: dict[Turn, str] = {
    ("fixed", "gap"): "APScheduler delays a time that the clock skips by the gap; here it runs right after the gap",
    ("fixed", "fold"): "APScheduler runs a repeated time on both passes; here it runs on the first",
}
# Grace times in seconds up to this one are APScheduler's default, which few people set on purpose.
_SHORT_GRACE = 10
_A_DAY = 86400


def read(connection: psycopg.Connection, now: datetime) -> list[ImportedSchedule]:
    return [
        finished(
            ScheduleDraft(f"apscheduler:{row['id']}", row["enabled"], _STOPPED, _CLOCK), partial(_fill, row, now), now
        )
        for row in rows(connection, _JOBS, "apscheduler_jobs", {"largest": pickle_reader.LARGEST})
    ]


def _fill(row: dict[str, Any], now: datetime, draft: ScheduleDraft) -> None:
    state = _state(row)
    if state["args"]:
        raise UnreadableSchedule(
            "it has positional arguments, but arguments are stored by parameter name: "
            "give it keyword arguments (kwargs=) first"
        )
    draft.fields = {"task": state["func"], "args": plain(state["kwargs"]), **_when(state, now, draft)}
    _overlap_and_missed(state, draft)
    if state["executor"] != "default":
        draft.notes.append(f"its executor {state['executor']!r:.60} is not imported: the queue decides where jobs run")


def _state(row: dict[str, Any]) -> dict[str, Any]:
    if row["state"] is None:
        raise UnreadableSchedule(
            f"its job state has {row['size']:,} bytes; more than {pickle_reader.LARGEST:,} are not read"
        )
    try:
        found = pickle_reader.read(base64.b64decode(row["state"]), _KNOWN)
    except UnreadableSchedule as error:
        raise UnreadableSchedule(f"its job state {error}") from None
    state = found.attributes() if isinstance(found, PickledObject) and found.name == _JOB else found
    if not isinstance(state, dict) or state.get("version", 1) != _NEWEST or not isinstance(state.get("kwargs"), dict):
        raise UnreadableSchedule("its job state is not one of APScheduler 3")
    return state


def _when(state: dict[str, Any], now: datetime, draft: ScheduleDraft) -> dict[str, Any]:
    """Return the rule, its start and its end."""
    trigger = state["trigger"]
    values = apscheduler_triggers.state_of(trigger)
    when = apscheduler_triggers.rule(trigger, values)
    found: dict[str, Any] = {"when": when}
    upcoming = None if state["next_run_time"] is None else moment(state["next_run_time"])
    if trigger.name == DATE:
        # The job may have been rescheduled since.
        when["at"] = when["at"] if upcoming is None else upcoming.isoformat()
        return found
    if values["end_date"] is not None:
        found["ends_at"] = moment(values["end_date"]).isoformat()
    start = None if values["start_date"] is None else moment(values["start_date"])
    if values.get("jitter"):
        when["spread"] = values["jitter"]
        draft.notes.append("its jitter, random for each run, becomes a spread: a fixed offset of this schedule")
    elif trigger.name == INTERVAL:
        # It counts on from the next planned run.
        start = upcoming or start
    if start is not None and (trigger.name == INTERVAL or start > now):
        found["starts_at"] = start.isoformat()
    return found


def _overlap_and_missed(state: dict[str, Any], draft: ScheduleDraft) -> None:
    grace, most, coalesce = state["misfire_grace_time"], state["max_instances"], state["coalesce"]
    fields = draft.fields
    fields["overlap"] = "skip" if most == 1 and coalesce else "allow"
    fields["missed"] = "latest" if coalesce else "all"
    if not coalesce and most == 1:
        draft.notes.append("missed runs come one after the other there; here they run in parallel")
    if not coalesce:
        draft.notes.append("of its missed runs, the last 100 of one day are caught up, not all")
    if most > 1:
        draft.notes.append(f"at most {most} of its runs overlap there; here the number is not limited")
    if grace is None or grace > LONGEST_WINDOW:
        return
    fields["max_lateness"] = grace
    if not coalesce and grace > _A_DAY:
        fields["missed_window"] = grace
    if grace <= _SHORT_GRACE:
        draft.notes.append(
            f"a run that is more than {grace} s late is skipped, also when one scheduler takes over from another; "
            "if this was not set on purpose, remove max_lateness"
        )
