"""Runs a Django task in a worker: its connections, context and signals, and its return value."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import iscoroutinefunction
from random import Random
from traceback import format_exception
from typing import Any, LiteralString

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections, reset_queries
from django.utils import timezone

from sereno.contrib.django.framework import (
    Task,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from sereno.contrib.django.project import Project
from sereno.database.json_values import stored
from sereno.errors import InvalidArguments
from sereno.jobs.attempt import Dead, settlement
from sereno.worker.context import Context

# Both statements run in the transaction that settles the job, so an attempt that has lost its lease changes nothing.
STORE_VALUE = (
    "insert into sereno_django_return (job_id, value, stored_at) values (%s, %s::jsonb, clock_timestamp()) "
    "on conflict (job_id) do update set value = excluded.value, stored_at = excluded.stored_at"
)
DELETE_VALUE = "delete from sereno_django_return where job_id = %s"


def handler(app: Project, task: Task) -> Callable[..., Any]:
    """Return the function that the worker calls. Async tasks run in its event loop, sync ones in a thread."""

    def run(args: list[Any], kwargs: dict[str, Any], ctx: Context) -> None:
        with _connections():
            running = RunningTask(app, task, ctx)
            running.start()
            try:
                statement = running.store_statement(task.call(*running.arguments(args), **kwargs))
                if statement is not None:
                    with ctx.transaction() as connection:
                        connection.execute(*statement)
            except Exception as error:
                running.failed(error)
                raise
            running.succeeded()

    async def arun(args: list[Any], kwargs: dict[str, Any], ctx: Context) -> None:
        # A separate thread for the ORM calls of this attempt, as for a request.
        async with ThreadSensitiveContext():
            running = RunningTask(app, task, ctx)
            try:
                await sync_to_async(running.start)()
                statement = running.store_statement(await task.acall(*running.arguments(args), **kwargs))
                if statement is not None:
                    async with ctx.transaction() as connection:
                        await connection.execute(*statement)
            except Exception as error:
                await sync_to_async(running.failed)(error)
                raise
            else:
                await sync_to_async(running.succeeded)()
            finally:
                # The thread ends, so its connections are closed.
                await sync_to_async(connections.close_all)()

    return arun if iscoroutinefunction(task.func) else run


@dataclass
class RunningTask:
    """One attempt of a Django task: its result, context and signals."""

    app: Project
    task: Task
    ctx: Context
    result: TaskResult | None = None

    def start(self) -> None:
        from sereno.contrib.django.results import find  # noqa: PLC0415 - its model can be imported only after Django is set up

        self.result = find(self.app, str(self.ctx.job_id), self.task.backend)
        task_started.send_robust(type(self.task.get_backend()), task_result=self.result)

    def arguments(self, args: list[Any]) -> list[Any]:
        return [TaskContext(task_result=self.result), *args] if self.task.takes_context else args

    def store_statement(self, value: Any) -> tuple[LiteralString, list[Any]] | None:
        """Return the statement that stores the return value; None if there is nothing to store.

        A value that cannot be stored makes the job dead: a retry would repeat work that is done.
        """
        try:
            plain = normalize_json(value)
            raw = stored(plain, InvalidArguments)
        except (TypeError, ValueError, InvalidArguments) as error:
            raise Dead(f"the return value cannot be stored: {error}") from error
        if len(raw) > self.app.settings.arguments_limit:
            limit = self.app.settings.arguments_limit
            raise Dead(f"the return value has {len(raw):,} bytes, the limit is {limit:,} (arguments_limit)")
        object.__setattr__(self.result, "_return_value", plain)
        if plain is not None:
            return STORE_VALUE, [self.ctx.job_id, raw.decode()]
        # An earlier run of a requeued job may have stored a value.
        return (DELETE_VALUE, [self.ctx.job_id]) if self.ctx.attempt > 1 else None

    def succeeded(self) -> None:
        self._finish(TaskResultStatus.SUCCESSFUL)

    def failed(self, error: BaseException) -> None:
        """Send the signal of a failed task, unless the job will be retried."""
        policy = self.ctx.retry or self.app.registry.find(self.ctx.task).retry
        ending: Any = error
        if (
            settlement(ending, failures=self.ctx.failures, crashes=0, policy=policy, chance=_NO_CHANCE).outcome
            != "dead"
        ):
            return
        if self.result is not None:
            kind, lines = type(error), "".join(format_exception(error))
            path = f"{kind.__module__}.{kind.__qualname__}"
            self.result.errors.append(TaskError(exception_class_path=path, traceback=lines))
            self._finish(TaskResultStatus.FAILED)

    def _finish(self, status: Any) -> None:
        """Send `task_finished`; a receiver that fails must not make a successful job run again."""
        object.__setattr__(self.result, "status", status)
        object.__setattr__(self.result, "finished_at", timezone.now())
        task_finished.send_robust(type(self.task.get_backend()), task_result=self.result)


# The outcome does not depend on the random part of the delay.
_NO_CHANCE = Random(0)  # noqa: S311 - see above


@contextmanager
def _connections() -> Iterator[None]:
    """Close broken and too old connections before and after, as Django does around a request."""
    close_old_connections()
    reset_queries()
    try:
        yield
    finally:
        close_old_connections()
