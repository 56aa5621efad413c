"""Converts a job to Django's `TaskResult`."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from django.db import connections

from sereno.contrib.django.framework import Task, TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus
from sereno.contrib.django.models import Return
from sereno.contrib.django.priority import to_django, to_sereno
from sereno.contrib.django.project import Project
from sereno.database.caller_connection import run_on_caller
from sereno.errors import JobNotFound
from sereno.jobs.operations import JobDetail, show
from sereno.jobs.queries.rows import AttemptRow, JobRow

_STATUS = {
    "waiting": TaskResultStatus.READY,
    "scheduled": TaskResultStatus.READY,
    "ready": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "succeeded": TaskResultStatus.SUCCESSFUL,
    "dead": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}
# Outcomes of attempts that are not errors.
_NO_ERROR = ("running", "succeeded", "snooze", "release")
_ID = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)


def find(app: Project, result_id: str, alias: str) -> TaskResult:
    """Return the result of a job, or raise TaskResultDoesNotExist.

    It reads on Django's connection, so that it sees what the caller's transaction sees.
    """
    if _ID.fullmatch(str(result_id)) is None:
        raise TaskResultDoesNotExist(result_id)
    connection = connections[app.alias]
    try:
        detail: JobDetail = run_on_caller(connection, show(int(result_id)), app.settings.schema)
    except JobNotFound:
        raise TaskResultDoesNotExist(result_id) from None
    declared = app.declared.get(detail.job.task)
    if declared is None:
        # A task name from a row must not cause an import.
        raise TaskResultDoesNotExist(
            f"job {result_id} has task {detail.job.task:.200}, which is not a Django task here"
        )
    result = _result(detail, _as_enqueued(declared.django_task, detail.job), alias)
    if result.status == TaskResultStatus.SUCCESSFUL:
        row = Return.objects.using(app.alias).filter(job_id=detail.job.id).first()
        object.__setattr__(result, "_return_value", None if row is None else row.value)
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


def _as_enqueued(task: Task, job: JobRow) -> Task:
    """Return the task with the options of this job. Its exact Django priority is lost: several make one of sereno's."""
    priority = task.priority if to_sereno(task.priority) == job.priority else to_django(job.priority)
    return replace(task, queue_name=job.queue, priority=priority, run_after=task.run_after)


def _arguments(job: JobRow) -> tuple[list[Any], dict[str, Any]]:
    """Return args and kwargs. Django's connection returns JSON as text; a job from SQL may have any arguments."""
    arguments: Any = json.loads(job.args) if isinstance(job.args, str) else job.args
    args, kwargs = arguments.get("args"), arguments.get("kwargs")
    return args if isinstance(args, list) else [], kwargs if isinstance(kwargs, dict) else {}


def _errors(job: JobRow, attempts: list[AttemptRow]) -> Iterator[TaskError]:
    failed = [attempt for attempt in attempts if attempt.outcome not in _NO_ERROR]
    for attempt in failed:
        text = attempt.traceback or attempt.error_message or attempt.reason or attempt.outcome
        yield TaskError(exception_class_path=_class_path(attempt), traceback=text)
    if not failed and _STATUS[job.state] == TaskResultStatus.FAILED:
        # The job was cancelled, or ended before its first attempt.
        yield TaskError(exception_class_path="sereno.errors.SerenoError", traceback=job.reason or job.state)


def _class_path(attempt: AttemptRow) -> str:
    """Return the path of an exception class that is already loaded: a text in a row must not make Django import it."""
    if attempt.error_type is None:
        return "sereno.errors.SerenoError"
    known = {path for kind in _kinds(BaseException) if (path := _path_of(kind)) is not None}
    found = sorted(path for path in known if path.endswith(f".{attempt.error_type}"))
    named = [path for path in found if f"\n{path.removeprefix('builtins.')}" in (attempt.traceback or "")]
    return (named or found or ["builtins.Exception"])[0]


def _path_of(kind: type[BaseException]) -> str | None:
    """Return the import path of a class; None if its metaclass raises."""
    try:
        return f"{kind.__module__}.{kind.__qualname__}"
    except BaseException:  # noqa: BLE001 - this reads every loaded exception class
        return None


def _kinds(of: type[BaseException]) -> Iterator[type[BaseException]]:
    yield of
    for kind in of.__subclasses__():
        yield from _kinds(kind)
