"""The backend for `TASKS`: enqueues Django tasks as jobs, in the transaction of Django's own connection."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils import timezone

from sereno.contrib.django.framework import BaseTaskBackend, Task, TaskResult, TaskResultStatus, task_enqueued
from sereno.contrib.django.priority import to_sereno
from sereno.contrib.django.project import DeclaredTask, app
from sereno.contrib.django.results import find
from sereno.contrib.django.running import handler

# Options that apply to every task of this backend; other names are refused.
OPTIONS = {"retry", "timeout"}


class SerenoBackend(BaseTaskBackend):
    """A task backend of Django. `OPTIONS`: `retry` and `timeout`, as for `@app.task`, for every task of the backend."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        unknown = set(self.options) - OPTIONS
        if unknown:
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}]: OPTIONS has unknown {min(unknown)!r}: use only {' and '.join(sorted(OPTIONS))}"
            )

    def validate_task(self, task: Task) -> None:
        """Register the task with sereno; Django calls this for every declared task."""
        super().validate_task(task)
        with app.declare_lock:
            if task.module_path not in app.declared:
                app.declared[task.module_path] = self._declare(task)

    def _declare(self, task: Task) -> DeclaredTask:
        decorate = app.task(
            name=task.module_path, queue=task.queue_name, priority=to_sereno(task.priority), **self.options
        )
        return DeclaredTask(task, decorate(handler(app, task)))

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Enqueue a job in the current transaction; workers see it after the commit."""
        self.validate_task(task)
        result = TaskResult(
            task=task,
            id="",
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        sereno_task = app.declared[task.module_path].sereno_task.using(
            connections[app.alias],
            queue=task.queue_name,
            priority=to_sereno(task.priority),
            run_at=_instant(task.run_after),
        )
        job = sereno_task.enqueue(result.args, result.kwargs)
        object.__setattr__(result, "id", str(job.id))
        object.__setattr__(result, "enqueued_at", timezone.now())
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Return the current result of a job; inside a transaction also of a job that is not committed yet."""
        return find(app, result_id, self.alias)

    def check(self, **_: Any) -> Iterable[checks.CheckMessage]:
        """Report a missing app, for `manage.py check`."""
        if apps.is_installed("sereno.contrib.django"):
            return []
        return [
            checks.Error(
                f"TASKS[{self.alias!r}] stores return values in a table of sereno.contrib.django.",
                hint='Add "sereno.contrib.django" to INSTALLED_APPS, and run migrate.',
                id="sereno.E001",
            )
        ]


def _instant(moment: Any) -> Any:
    """Return an aware datetime: with USE_TZ off, Django's datetimes are naive and in TIME_ZONE."""
    return timezone.make_aware(moment) if moment is not None and timezone.is_naive(moment) else moment
