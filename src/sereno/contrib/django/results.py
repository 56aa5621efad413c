"""A job as Django shows it: a `TaskResult`."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from django.db import connections

from sereno.contrib.django.framework import Task, TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus
from sereno.contrib.django.models import Return
from sereno.contrib.django.priority import ours, theirs
from sereno.contrib.django.project import Project
from sereno.database.caller_connection import run_borrowed
from sereno.errors import JobNotFound
from sereno.jobs.operations import JobDetail, show
from sereno.jobs.rows import AttemptRow, JobRow

_STATUS = {
    "scheduled": TaskResultStatus.READY,
    "ready": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "succeeded": TaskResultStatus.SUCCESSFUL,
    "dead": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}
# Endings of attempts that are no errors.
_NO_ERROR = ("running", "succeeded", "snooze", "release")
_ID = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)


def find(app: Project, result_id: str, alias: str) -> TaskResult:
    """On Django's connection, so that it sees what the caller sees; TaskResultDoesNotExist when there is none."""
    if _ID.fullmatch(str(result_id)) is None:
        raise TaskResultDoesNotExist(result_id)
    connection = connections[app.alias]
    try:
        detail: JobDetail = run_borrowed(connection, show(int(result_id)), app.settings.schema)
    except JobNotFound:
        raise TaskResultDoesNotExist(result_id) from None
    declared = app.declared.get(detail.job.task)
    if declared is None:
        # Nothing is imported because a row says so.
        raise TaskResultDoesNotExist(f"job {result_id} is of {detail.job.task:.200}, which is no task of Django's here")
    result = _result(detail, _as_asked(declared.theirs, detail.job), alias)
    if result.status == TaskResultStatus.SUCCESSFUL:
        kept = Return.objects.using(app.alias).filter(job_id=detail.job.id).first()
        object.__setattr__(result, "_return_value", None if kept is None else kept.value)
    return result


def _result(detail: JobDetail, task: Task, alias: str) -> TaskResult:
    job, attempts = detail.job, detail.attempts
    args, kwargs = _arguments(job)
    return TaskResult(
        task=task,
        id=str(job.id),
        status=_STATUS[job.state],
        enqueued_at=job.created_at,
        started_at=attempts[0].started_at if attempts else None,
        last_attempted_at=attempts[-1].started_at if attempts else None,
        finished_at=job.finished_at,
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=list(_errors(job, attempts)),
        worker_ids=[str(attempt.session_id) for attempt in attempts],
    )


def _as_asked(task: Task, job: JobRow) -> Task:
    """With the options that this job has; of its priority only the step is known."""
    priority = task.priority if ours(task.priority) == job.priority else theirs(job.priority)
    return replace(task, queue_name=job.queue, priority=priority, run_after=task.run_after)


def _arguments(job: JobRow) -> tuple[list[Any], dict[str, Any]]:
    """Django reads JSON as text. What was enqueued from SQL may have any shape."""
    said: Any = json.loads(job.args) if isinstance(job.args, str) else job.args
    args, kwargs = said.get("args"), said.get("kwargs")
    return args if isinstance(args, list) else [], kwargs if isinstance(kwargs, dict) else {}


def _errors(job: JobRow, attempts: list[AttemptRow]) -> Iterator[TaskError]:
    failed = [attempt for attempt in attempts if attempt.outcome not in _NO_ERROR]
    for attempt in failed:
        said = attempt.traceback or attempt.error_message or attempt.reason or attempt.outcome
        yield TaskError(exception_class_path=_class_path(attempt), traceback=said)
    if not failed and _STATUS[job.state] == TaskResultStatus.FAILED:
        # It was cancelled, or ended before it was tried.
        yield TaskError(exception_class_path="sereno.errors.SerenoError", traceback=job.reason or job.state)


def _class_path(attempt: AttemptRow) -> str:
    """Of a class that is loaded here: a traceback holds foreign text, and must not choose what is imported."""
    if attempt.error_type is None:
        return "sereno.errors.SerenoError"
    known = {path for kind in _kinds(BaseException) if (path := _path_of(kind)) is not None}
    found = sorted(path for path in known if path.endswith(f".{attempt.error_type}"))
    named = [path for path in found if f"\n{path.removeprefix('builtins.')}" in (attempt.traceback or "")]
    return (named or found or ["builtins.Exception"])[0]


def _path_of(kind: type[BaseException]) -> str | None:
    """Where a class is; None for one whose metaclass does not tell."""
    try:
        return f"{kind.__module__}.{kind.__qualname__}"
    except BaseException:  # noqa: BLE001 - any class that was ever loaded is looked at
        return None


def _kinds(of: type[BaseException]) -> Iterator[type[BaseException]]:
    yield of
    for kind in of.__subclasses__():
        yield from _kinds(kind)
