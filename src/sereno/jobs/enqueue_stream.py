"""Enqueues jobs from a generator: the server writes one chunk while the client generates the next.

All chunks share one transaction. Neither side holds more than a few chunks, so a million jobs need no more memory than
a thousand, apart from their ids.
"""

from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack
from itertools import islice
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from sereno.database.database import Database
from sereno.database.statement import Operation
from sereno.jobs.enqueue import span_of
from sereno.jobs.job import EnqueuedJob, NewJob
from sereno.jobs.transitions import enqueue

T = TypeVar("T")

# Jobs per statement: large enough to amortise its fixed cost, small enough that the server starts early.
CHUNK = 2_000


def enqueue_stream(database: Database, jobs: Iterable[NewJob]) -> list[EnqueuedJob]:
    created: list[EnqueuedJob] = []
    with ExitStack() as stack:
        stack.enter_context(span_of(()))
        connection = stack.enter_context(database.connection())
        stack.enter_context(database.explained())
        stack.enter_context(connection.transaction())
        stack.enter_context(connection.pipeline())
        sent: list[tuple[Operation[list[EnqueuedJob]], psycopg.Cursor[Any]]] = []
        for chunk in chunks(jobs):
            operation = enqueue(chunk)
            statement = next(operation)
            cursor = psycopg.Cursor(connection, row_factory=tuple_row)
            cursor.execute(statement.text(database.settings.schema), statement.params)
            sent.append((operation, cursor))
        for operation, cursor in sent:
            created += created_jobs(operation, cursor.fetchall())
    return created


async def aenqueue_stream(database: Database, jobs: Iterable[NewJob]) -> list[EnqueuedJob]:
    created: list[EnqueuedJob] = []
    async with AsyncExitStack() as stack:
        stack.enter_context(span_of(()))
        connection = await stack.enter_async_context(database.aconnection())
        stack.enter_context(database.explained())
        await stack.enter_async_context(connection.transaction())
        await stack.enter_async_context(connection.pipeline())
        sent: list[tuple[Operation[list[EnqueuedJob]], psycopg.AsyncCursor[Any]]] = []
        for chunk in chunks(jobs):
            operation = enqueue(chunk)
            statement = next(operation)
            cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
            await cursor.execute(statement.text(database.settings.schema), statement.params)
            sent.append((operation, cursor))
        for operation, cursor in sent:
            created += created_jobs(operation, await cursor.fetchall())
    return created


def chunks(jobs: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(jobs)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


def created_jobs(operation: Operation[list[EnqueuedJob]], rows: list[tuple[Any, ...]]) -> list[EnqueuedJob]:
    """Return the result of a one-statement operation for these rows."""
    try:
        operation.send(rows)
    except StopIteration as end:
        created: list[EnqueuedJob] = end.value
        return created
    raise AssertionError("enqueue yielded more than one statement")
