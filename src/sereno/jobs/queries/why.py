"""Explains in sentences why a job is not running, the most important reason first."""

import shlex
from collections.abc import Sequence
from datetime import datetime

from sereno.database.statement import Operation
from sereno.duration import duration_text
from sereno.jobs.limits import why as why_limits
from sereno.jobs.limits.why import moment
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries import why_carried, why_waiting
from sereno.jobs.queries.rows import AttemptRow, JobRow, PauseRow, ProgressRow, WaitReason
from sereno.jobs.requirements import UnmetRequirement, unmet_by_job
from sereno.jobs.signals import SignalWait, awaited_signal


def why(job_id: int, *, tenant: str | None = None) -> Operation[list[str]]:
    """Return sentences. `tenant`: of the reader, so that no data of other tenants is shown; None shows all."""
    row = yield from job_queries.job_row(job_id)
    if row is None:
        carried = yield from why_carried.why_not_stored(job_id, tenant)
        return carried or [
            no_job(job_id),
            "It may never have been created (its transaction rolled back), or it was deleted or is past retention.",
            "A task declared with history=False stores nothing when it succeeds.",
        ]
    if row.finished_at is not None:
        return _finished(row)
    waiting = yield from job_queries.waiting(row)
    if row.state == "running":
        progress = yield from job_queries.progress(job_id)
        held = yield from why_limits.holding(row)
        return [*_running(row, progress, waiting.now), *held]
    pauses = yield from job_queries.pauses([name for name in (row.queue, row.task, row.tenant) if name is not None])
    unmet = None if row.requires is None else (yield from unmet_by_job(job_id))
    blockers = [_paused(pause) for pause in pauses if _applies(pause, row)] + _unserved(row, waiting, unmet)
    if row.state == "waiting":
        others = yield from why_waiting.waits_for(row, tenant)
        return [*others, *blockers]
    if row.state == "scheduled":
        tried = yield from job_queries.attempts(job_id)
        others = yield from why_limits.held_up(row, tenant)
        awaited = yield from awaited_signal(job_id)
        first = _scheduled(row, tried, waiting) if awaited is None else _awaiting(row, awaited, waiting.now)
        return [*first, *others, *blockers]
    limits, place = yield from why_limits.waits(row, tenant)
    place = _ahead(row, waiting) if row.keys is None else place
    expiring = _expiring(row, waiting.now)
    if blockers or limits:
        return [*expiring, *blockers, *limits, *(place if limits else [])]
    line = [*_busy(row, waiting), *place]
    return [*expiring, *(line or ["It should start within moments; if it does not, run `sereno doctor`."])]


def no_job(job_id: int) -> str:
    """Return the first sentence about a job that does not exist."""
    return f"No job has the id {job_id}."


def _finished(row: JobRow) -> list[str]:
    words = {"succeeded": "It succeeded", "dead": "It is in the dead letter", "cancelled": "It was cancelled"}
    tries = "attempt" if row.attempt == 1 else "attempts"
    sentences = [f"{words[row.state]}: it finished at {moment(row.finished_at)}, after {row.attempt} {tries}."]
    if row.reason:
        sentences.append(f"The reason: {row.reason}.")
    if row.error_type:
        sentences.append(f"The last error: {_error(row.error_type, row.error_message)}.")
    if row.state == "dead":
        sentences.append(f"To run it again: sereno job retry {row.id}")
    return sentences


def _running(row: JobRow, progress: ProgressRow | None, now: datetime) -> list[str]:
    where = f" ({row.host}, pid {row.pid})" if row.host else ""
    since = f" for {duration_text((now - row.started_at).total_seconds())}" if row.started_at else ""
    sentences = [f"It is running{since}: attempt {row.attempt}, by worker session {row.session_id}{where}."]
    if progress is not None and progress.attempt == row.attempt:
        note = f", {progress.note}" if progress.note else ""
        sentences.append(f"It reports that {progress.fraction:.0%} is done{note}.")
    if row.cancel_requested:
        sentences.append("A cancel was requested, and it has not stopped yet.")
    return sentences


def _scheduled(row: JobRow, tried: Sequence[AttemptRow], waiting: WaitReason) -> list[str]:
    wait = (row.run_at - waiting.now).total_seconds()
    if wait <= 0:
        sentences = [
            f"It has been due for {duration_text(-wait)}, since {moment(row.run_at)}; a worker will make it ready."
        ]
    else:
        sentences = [f"It is scheduled for {moment(row.run_at)}, in {duration_text(wait)}."]
    return [*sentences, _postponed(row, tried[-1] if tried else None)]


def _awaiting(row: JobRow, awaited: SignalWait, now: datetime) -> list[str]:
    until = awaited.until
    whose = "" if row.tenant is None else f" --tenant {shlex.quote(row.tenant)}"
    end = ", without a timeout"
    if until is not None:
        end = f" until {moment(until)}, for {duration_text(max(0.0, (until - now).total_seconds()))}"
    return [
        f"It waits for the signal {awaited.name!r}{end}.",
        f"To send it: sereno signal send {shlex.quote(awaited.name)} [JSON]{whose}",
    ]


def _postponed(row: JobRow, last: AttemptRow | None) -> str:
    if last is not None and last.number == row.attempt and last.outcome == "snooze":
        return f"Attempt {last.number} snoozed it{f': {last.reason}' if last.reason else ''}."
    if last is not None and last.number == row.attempt and last.outcome in ("retry", "crash"):
        cause = _error(last.error_type, last.error_message) if last.error_type else last.reason or "no error was given"
        verb = "failed" if last.outcome == "retry" else "crashed"
        return f"Attempt {last.number} {verb} ({cause}); this is its retry."
    if last is not None and last.number == row.attempt and last.outcome == "release" and last.reason:
        return f"Attempt {last.number} released it: {last.reason}."
    return "It was enqueued with a delay, or postponed by an operator."


def _unserved(row: JobRow, waiting: WaitReason, unmet: UnmetRequirement | None) -> list[str]:
    if not waiting.workers:
        return ["No worker is alive: start one with `sereno worker`."]
    if not waiting.serving:
        return [f"No live worker serves its queue {row.queue!r}: start one with `sereno worker -q {row.queue}`."]
    if not waiting.able:
        return [
            f"No live worker of its queue {row.queue!r} knows its task {row.task!r}.",
            "Start one with the application that declares it, or deploy the version that has it.",
        ]
    if unmet is not None:
        return [
            f"It waits for {unmet}.",
            "If no worker can run it for the time of the setting release_grace, it becomes a dead letter.",
        ]
    return []


def _busy(row: JobRow, waiting: WaitReason) -> list[str]:
    if waiting.busy < waiting.slots:
        return []
    return [f"All {waiting.slots} slots of the workers of its queue {row.queue!r} are busy."]


def _ahead(row: JobRow, waiting: WaitReason) -> list[str]:
    if not waiting.ahead.value:
        return []
    others = "job is" if waiting.ahead.value == 1 else "jobs are"
    return [f"{waiting.ahead} {others} ahead of it in its queue (priority {row.priority}, then arrival)."]


def _expiring(row: JobRow, now: datetime) -> list[str]:
    if row.expires_at is None or row.expires_at > now:
        return []
    return [f"It expired at {moment(row.expires_at)}: the next worker that claims it will not run it."]


def _applies(pause: PauseRow, row: JobRow) -> bool:
    return (pause.kind, pause.name) in (("queue", row.queue), ("task", row.task), ("tenant", row.tenant))


def _paused(pause: PauseRow) -> str:
    note = f", with the note {pause.note!r}" if pause.note else ""
    flag = "" if pause.kind == "queue" else f"--{pause.kind} "
    return (
        f"Its {pause.kind} {pause.name!r} is paused, by {pause.paused_by} at {moment(pause.paused_at)}{note}. "
        f"To resume it: sereno queue resume {flag}{pause.name}"
    )


def _error(kind: str | None, message: str | None) -> str:
    first_line = (message or "").strip().splitlines()
    return f"{kind}: {first_line[0]}" if first_line else str(kind)
