"""pg_cron: the table cron.job."""

import re
from collections import Counter
from datetime import datetime
from functools import partial
from typing import Any

import psycopg

from sereno.schedules.importers.draft import ImportedSchedule, ScheduleDraft, Turn, UnreadableSchedule, finished
from sereno.schedules.importers.source import rows

# Name of the task that runs the SQL command; the user has to write it.
TASK = "run_sql"

# All columns of this version of pg_cron. cron.timezone exists since 1.5; before it, and by default, the zone is GMT.
_JOBS = """
select to_jsonb(job) || jsonb_build_object(
    'timezone', coalesce(nullif(current_setting('cron.timezone', true), ''), 'GMT'),
    'here', current_database(),
    'me', current_user
)
from cron.job as job
order by job.jobid
"""

# 1 to 59 seconds.
_SECONDS = re.compile(r"\s*0*([1-9]|[1-5][0-9])\s+seconds?\s*", re.IGNORECASE)
_FIELDS = 5
_MONTH_DAY = 2
_STOPPED = "was not active in pg_cron"
# pg_cron follows elapsed time: it misses what the clock skips and runs twice what the clock repeats.
_CLOCK: dict[Turn, str] = {
    ("fixed", "gap"): "pg_cron omits a time that the clock skips; here it runs right after the gap",
    ("fixed", "fold"): "pg_cron runs a repeated time on both passes; here it runs on the first",
}


def read(connection: psycopg.Connection, now: datetime) -> list[ImportedSchedule]:
    found = rows(connection, _JOBS, "cron.job")
    names = Counter(_name(row) for row in found)
    return [
        finished(
            ScheduleDraft(_key(row, names), bool(row.get("active", True)), _STOPPED, _CLOCK), partial(_fill, row), now
        )
        for row in found
    ]


def _name(row: dict[str, Any]) -> str:
    return str(row.get("jobname") or row["jobid"])


def _key(row: dict[str, Any], names: Counter[str]) -> str:
    """Return a unique key: two users may each have a job with the same name."""
    name = _name(row)
    return f"pg-cron:{name}" if names[name] == 1 else f"pg-cron:{name}:{row['jobid']}"


def _fill(row: dict[str, Any], draft: ScheduleDraft) -> None:
    draft.fields = {
        "task": TASK,
        "args": {"command": row["command"]},
        "when": _when(row, draft),
        # pg_cron does not catch up what was due while the server was down.
        "missed": "skip",
        # pg_cron runs one at a time and queues the next.
        "overlap": "queue_one",
    }
    if row["username"] != row["me"]:
        draft.notes.append(f"it runs as {row['username']!r:.60}: your task must connect as that role")
    if row["database"] != row["here"]:
        draft.notes.append(f"it runs in the database {row['database']!r:.60}: your task must connect there")


def _when(row: dict[str, Any], draft: ScheduleDraft) -> dict[str, Any]:
    text = row["schedule"]
    if seconds := _SECONDS.fullmatch(text):
        return {"kind": "every", "interval": int(seconds[1])}
    if text.strip().lower() in {"@reboot", "@restart"}:
        raise UnreadableSchedule(
            f"{text.strip()} is not a time: schedules are stored in the database and do not follow reboots"
        )
    words = text.split()
    if len(words) > _FIELDS and not text.startswith("@"):
        draft.notes.append(f"pg_cron reads the first five fields of {text!r:.60} and ignores the rest, as here")
        words = words[:_FIELDS]
    if len(words) == _FIELDS and words[_MONTH_DAY] == "$":
        words[_MONTH_DAY] = "L"
    zone = row["timezone"]
    return {"kind": "cron", "expression": " ".join(words), "tz": "UTC" if zone == "GMT" else zone}
