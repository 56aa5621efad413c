"""Steps and queries shared by the scheduler's tests."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any

import msgspec
import psycopg
from psycopg.types.json import Jsonb

from sereno import Every, Sereno
from sereno.jobs.task_handle import Task
from sereno.schedules.scheduler import Scheduler
from tests.facts import auntil, one

Work = Task[[str], None]
Connection = psycopg.Connection[Any]


class Deploy:
    """The same service, started with other code each time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._started: list[Sereno] = []

    def __call__(self, *keys: str, service: str = "shop", every: str = "1h", **options: Any) -> Sereno:
        app = Sereno(self._url, service=service)
        self._started.append(app)
        for key in keys:

            @app.cycle(Every(every), key=key, **options)
            @app.task(name=f"task_of_{key}")
            def work() -> None: ...

        return app

    def close(self) -> None:
        for app in self._started:
            app.close()


def made(connection: Connection, key: str | None = None) -> int:
    """Count the jobs that schedules made, finished or not."""
    found: int = one(
        connection,
        "select count(*) from (select schedule_id from sereno.jobs union all select schedule_id from sereno.history) j "
        "join sereno.schedules s on s.id = schedule_id where %s::text is null or key = %s",
        key,
        key,
    )
    return found


def now(connection: Connection) -> datetime:
    found: datetime = one(connection, "select sereno.now()")
    return found


def lease(connection: Connection) -> tuple[str, int]:
    row = connection.execute("select holder, fence from sereno.leases where name = 'scheduler'").fetchone()
    assert row is not None
    return row[0], row[1]


@asynccontextmanager
async def scheduling(app: Sereno, **settings: Any) -> AsyncIterator[Scheduler]:
    started = Scheduler(app.url, msgspec.structs.replace(app.settings, **settings))
    started.start()
    try:
        yield started
    finally:
        await started.stop()


async def wait_until_asleep(connection: Connection) -> None:
    """Wait until a scheduler leads, has polled, and sleeps for seconds."""
    await auntil(
        lambda: one(connection, "select wakes_at > sereno.now() + interval '3 seconds' from sereno.leases") or False
    )


@contextmanager
def locked(url: str, key: str) -> Iterator[None]:
    """Hold a lock on this schedule in another transaction."""
    with psycopg.connect(url) as other:
        other.execute("select from sereno.schedules where key = %s for update", [key])
        yield
        other.rollback()


def fake_next(connection: Connection, key: str, at: datetime) -> None:
    connection.execute("update sereno.schedules set next_run_at = %s where key = %s", [at, key])


def insert_run(connection: Connection, key: str, state: str = "succeeded", ago: int = 60, result: Any = None) -> int:
    """Insert a run that has ended."""
    found: int = one(
        connection,
        "insert into sereno.history (id, finished_at, started_at, run_at, created_at, attempt, failures, crashes, "
        "snoozes, releases, priority, state, queue, task, tenant, args, schedule_id, planned_at, stands_for, result) "
        "select %s, p + interval '3 seconds', p + interval '1 second', p, p, 1, 0, 0, 0, 0, 5, %s, 'default', 'work', "
        "tenant, '{}', id, p, 1, %s from sereno.schedules, (select sereno.now() - make_interval(secs => %s) as p) t "
        "where key = %s returning id",
        7_000_000 + ago,
        state,
        None if result is None else Jsonb(result),
        ago,
        key,
    )
    return found
