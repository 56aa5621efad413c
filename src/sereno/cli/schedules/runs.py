"""Texts about the runs of a schedule: the last run, and the list of runs, with equal skips folded into one line."""

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from itertools import groupby
from typing import Any

from sereno.cli.output import visible
from sereno.cli.schedules.text import about, brief_time, effective_state, full_time, last_words
from sereno.duration import duration_text
from sereno.jobs.lifecycle import LIVE
from sereno.jobs.operations import JobDetail
from sereno.schedules.operations import ScheduleDetail
from sereno.schedules.rows import FireRow, ScheduleRow
from sereno.schedules.runs import counts_text

# Fires that a page reads: it folds skips, so it needs more of them than the lines that it shows.
FIRES_READ = 1000

# Seconds after the planned instant from which a start is shown as late.
LATE = 1.0

SKIPS = {
    "late": "it was later than max_lateness",
    "missed": "no scheduler was running",
    "overlap": "the previous run was still active",
    "superseded": "a newer instant replaced it",
    "finished": "the schedule had reached max_fires",
    "duplicate": "a job with its unique key existed",
}
# What an active run means for the next instants, by overlap policy.
MEANWHILE = {
    "skip": "the next instants are skipped until it ends",
    "queue_one": "the next instant waits until it ends",
}


def job_object(found: JobDetail | None) -> dict[str, Any] | None:
    """Return the job for JSON output; `sereno job show` has the rest."""
    names = ("id", "state", "attempt", "run_at", "started_at", "finished_at")
    return None if found is None else {name: getattr(found.job, name) for name in names}


def last_run(row: ScheduleRow, found: JobDetail | None, clock: tzinfo, now: datetime) -> str:
    """Return the last run: job 41, waits for a retry at 09:31:12 UTC; the next instants are skipped until it ends."""
    if found is None:
        outcome = last_words(row, now)
        return f"job {row.last_job_id}, {outcome}" if outcome and row.last_job_id is not None else outcome
    text = f"job {found.job.id}, {_job_words(found, clock, now)}"
    return f"{text}; {after}" if found.job.state in LIVE and (after := _meanwhile(row, now)) else text


def _job_words(found: JobDetail, clock: tzinfo, now: datetime) -> str:
    job = found.job
    if job.finished_at is not None:
        error = ": ".join(part for part in (job.error_type, job.error_message) if part)
        ended = f"{job.state} {about((now - job.finished_at).total_seconds())} ago"
        return f"{ended}: {visible(error)}" if error and job.state != "succeeded" else ended
    if job.state == "running" and job.started_at is not None:
        return f"running for {about((now - job.started_at).total_seconds())}"
    if job.state == "scheduled":
        last = found.attempts[-1].outcome if found.attempts else ""
        what = {"retry": "waits for a retry at", "crash": "waits for a retry at", "snooze": "is snoozed until"}
        return f"{what.get(last, 'waits until')} {brief_time(job.run_at, clock, now)}"
    return f"waits for a worker (sereno why {job.id})"


def _meanwhile(row: ScheduleRow, now: datetime) -> str:
    if effective_state(row, now) != "enabled":
        return ""
    if row.next_run_at is None:
        return "the next instant is planned when it ends"
    return MEANWHILE.get(row.overlap, "")


def run_lines(detail: ScheduleDetail, clock: tzinfo, limit: int) -> list[str]:
    """Return the runs, newest first; consecutive skips for one reason are one line."""
    groups = [list(same) for _, same in groupby(detail.fires, key=_kind)][:limit]
    jobs = [f"job {same[0].job_id}" if same[0].job_id is not None else "" for same in groups]
    width = max(map(len, jobs), default=0)
    uncounted = len(detail.fires) >= FIRES_READ
    return [
        f"{_planned(same[0], clock)}   {job:<{width}}   "
        + fire_words(same, clock, detail.now, more=uncounted and same[-1] is detail.fires[-1])
        for same, job in zip(groups, jobs, strict=True)
    ]


def _kind(fire: FireRow) -> tuple[object, ...]:
    """Return the grouping key: skips for one reason share a line, a run never does."""
    return (fire.job_id, fire.planned_at, fire.fired_at) if fire.reason is None else (fire.job_id, fire.reason)


def fire_words(same: Sequence[FireRow], clock: tzinfo, now: datetime, *, more: bool = False) -> str:
    """Return the outcome of an instant, or of several that were skipped for one reason."""
    fire = same[0]
    if fire.reason is None:
        return "".join(_run_words(fire, now))
    count = sum(each.stands_for or 1 for each in same)
    since = f" since {_planned(same[-1], clock)}" if len(same) > 1 else ""
    others = f" ({count:,}{' or more' if more else ''} instants{since})" if count > 1 else ""
    return f"skipped: {SKIPS.get(fire.reason, visible(fire.reason))}{others}"


def _run_words(fire: FireRow, now: datetime) -> Iterator[str]:
    yield fire.state
    if fire.started_at is not None and fire.finished_at is not None:
        yield f" after {duration_text(max(0.0, (fire.finished_at - fire.started_at).total_seconds()))}"
    elif fire.state == "running" and fire.started_at is not None:
        yield f" for {about((now - fire.started_at).total_seconds())}"
    if fire.attempt > 1:
        yield f", attempt {fire.attempt}"
    elif (late := _late(fire)) >= LATE:
        yield f", started {about(late)} late"
    if (fire.stands_for or 1) > 1:
        yield f", covers {fire.stands_for} instants"
    if fire.counts:
        yield f" · {visible(counts_text(fire.counts))}"
    if fire.error:
        yield f": {visible(fire.error)}"


def _late(fire: FireRow) -> float:
    if fire.started_at is None or fire.planned_at is None:
        return 0.0
    return (fire.started_at - fire.planned_at).total_seconds()


def _planned(fire: FireRow, clock: tzinfo) -> str:
    return full_time(fire.planned_at or fire.fired_at, clock)
