"""pg_cron: the table cron.job."""

import re
from collections import Counter
from datetime import datetime
from functools import partial
from typing import Any

import psycopg

from sereno.schedules.importers.draft import Draft, ImportedSchedule, Turn, UnreadableSchedule, finished
from sereno.schedules.importers.source import rows

# What runs SQL there; here it is a task that somebody writes.
TASK = "run_sql"

# Every column that this version of pg_cron has. cron.timezone came with 1.5; before it, and by default, it is GMT.
_JOBS = """
select to_jsonb(job) || jsonb_build_object(
    'timezone', coalesce(nullif(current_setting('cron.timezone', true), ''), 'GMT'),
    'here', current_database(),
    'me', current_user
)
from cron.job as job
order by job.jobid
"""

# One to fifty-nine.
_SECONDS = re.compile(r"\s*0*([1-9]|[1-5][0-9])\s+seconds?\s*", re.IGNORECASE)
_FIELDS = 5
_MONTH_DAY = 2
_STOPPED = "was not active in pg_cron"
# It looks at the time that passes: what the clock skips is not there, and what it repeats is there twice.
_CLOCK: dict[Turn, str] = {
    ("fixed", "gap"): "pg_cron leaves out a time that the clock skips; here it runs right after the gap",
    ("fixed", "fold"): "pg_cron runs a time that comes twice on both passes; here it runs on the first",
}


def read(connection: psycopg.Connection, now: datetime) -> list[ImportedSchedule]:
    found = rows(connection, _JOBS, "cron.job")
    names = Counter(_name(row) for row in found)
    return [
        finished(Draft(_key(row, names), bool(row.get("active", True)), _STOPPED, _CLOCK), partial(_fill, row), now)
        for row in found
    ]


def _name(row: dict[str, Any]) -> str:
    return str(row.get("jobname") or row["jobid"])


def _key(row: dict[str, Any], names: Counter[str]) -> str:
    """Two users may each have a job of one name."""
    name = _name(row)
    return f"pg-cron:{name}" if names[name] == 1 else f"pg-cron:{name}:{row['jobid']}"


def _fill(row: dict[str, Any], draft: Draft) -> None:
    draft.fields = {
        "task": TASK,
        "args": {"command": row["command"]},
        "when": _when(row, draft),
        # What was due while the server was down is gone there.
        "missed": "skip",
        # One run at a time, and what is due meanwhile waits.
        "overlap": "queue_one",
    }
    if row["username"] != row["me"]:
        draft.notes.append(f"it runs as {row['username']!r:.60}: your task must connect as that role")
    if row["database"] != row["here"]:
        draft.notes.append(f"it runs in the database {row['database']!r:.60}: your task must connect there")


def _when(row: dict[str, Any], draft: Draft) -> dict[str, Any]:
    text = row["schedule"]
    if seconds := _SECONDS.fullmatch(text):
        return {"kind": "every", "interval": int(seconds[1])}
    if text.strip().lower() in {"@reboot", "@restart"}:
        raise UnreadableSchedule(
            f"{text.strip()} is no time: a schedule belongs to the database, which knows no reboot of yours"
        )
    words = text.split()
    if len(words) > _FIELDS and not text.startswith("@"):
        draft.notes.append(f"pg_cron reads the first five fields of {text!r:.60} and ignores the rest; so does this")
        words = words[:_FIELDS]
    if len(words) == _FIELDS and words[_MONTH_DAY] == "$":
        words[_MONTH_DAY] = "L"
    zone = row["timezone"]
    return {"kind": "cron", "expression": " ".join(words), "tz": "UTC" if zone == "GMT" else zone}
