"""Enqueues jobs through the application's own connection or in the caller's transaction."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sereno.database.caller_connection import arun_on_caller, run_on_caller
from sereno.database.database import Database
from sereno.jobs.job import EnqueuedJob, NewJob
from sereno.jobs.transitions import ENQUEUE_ONE, one_job_values
from sereno.jobs.transitions import enqueue as enqueue_operation
from sereno.telemetry import tracing


def enqueue_one(database: Database, job: NewJob, connection: Any = None) -> EnqueuedJob:
    """Enqueue one job. A plain job on the application's own connection, the most common call, takes a fast path."""
    is_usual = connection is None and job.keys is None and job.requires is None and tracing.active is None
    if is_usual and job.options.is_plain:
        (job_id, _) = database.first_row(ENQUEUE_ONE, one_job_values(job))
        return EnqueuedJob(int(job_id or 0), job.task)
    return enqueue(database, [job], connection)[0]


def enqueue(database: Database, jobs: Sequence[NewJob], connection: Any = None) -> list[EnqueuedJob]:
    with span_of(jobs):
        return store(database, jobs, connection)


def store(database: Database, jobs: Sequence[NewJob], connection: Any = None) -> list[EnqueuedJob]:
    """`enqueue` without a span of its own."""
    operation = enqueue_operation(jobs)
    if connection is not None:
        return run_on_caller(connection, operation, database.settings.schema, notify=database.settings.notify)
    if needs_transaction(jobs):
        return database.run(operation)
    return database.run_one(operation)


async def aenqueue(database: Database, jobs: Sequence[NewJob], connection: Any = None) -> list[EnqueuedJob]:
    with span_of(jobs):
        return await astore(database, jobs, connection)


async def astore(database: Database, jobs: Sequence[NewJob], connection: Any = None) -> list[EnqueuedJob]:
    operation = enqueue_operation(jobs)
    if connection is not None:
        return await arun_on_caller(connection, operation, database.settings.schema, notify=database.settings.notify)
    if needs_transaction(jobs):
        return await database.arun(operation)
    return await database.arun_one(operation)


def span_of(jobs: Sequence[NewJob]) -> AbstractContextManager[None]:
    """Return the span of an enqueue, if this process is traced."""
    return nullcontext() if tracing.active is None else tracing.active.enqueuing(jobs)


def needs_transaction(jobs: Sequence[NewJob]) -> bool:
    """Return whether the jobs need a transaction: a unique-key conflict may raise, or some wait for other jobs."""
    return any(job.options.on_conflict == "raise" or job.options.after for job in jobs)
