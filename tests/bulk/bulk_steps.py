"""Steps of the tests of bulk operations: jobs to change, an operation, and its end."""

from collections.abc import Sequence
from typing import Any

import psycopg

from sereno import Sereno
from sereno.bulk import operations as bulk
from sereno.database.driver import drive
from sereno.jobs import operations as jobs
from sereno.jobs.filters import JobFilter
from sereno.jobs.rows import BulkOperation
from tests.facts import auntil, state


def add_waiting(app: Sereno, work: Any, count: int, **options: Any) -> list[int]:
    return [job.id for job in app.enqueue_many([work.using(**options).job(number) for number in range(count)])]


def add_ended(app: Sereno, work: Any, count: int) -> list[int]:
    ids = add_waiting(app, work, count)
    drive(jobs.cancel(JobFilter(ids=ids), reason="before"), app.database.run)
    return ids


def begin_bulk(app: Sereno, action: Any, wanted: JobFilter, **options: Any) -> BulkOperation:
    return app.database.run(bulk.begin(action, wanted, yes=True, actor="ann", **options))


def show_bulk(app: Sereno, number: int) -> BulkOperation:
    found = app.database.run(bulk.show(number))
    assert found is not None
    return found


async def ended_bulk(app: Sereno, number: int) -> BulkOperation:
    await auntil(lambda: show_bulk(app, number).is_over)
    return show_bulk(app, number)


def raise_rate(connection: psycopg.Connection, rate: float) -> None:
    """Raise the rate of an operation that was slow so that it could not end before its worker was killed."""
    connection.execute("update sereno.bulk_operations set rate = %s", [rate])


def states_of(connection: psycopg.Connection, ids: Sequence[int]) -> set[str | None]:
    return {state(connection, number) for number in ids}
