"""Fills and runs an archive: jobs of an old day, and an old delivery."""

import asyncio
from datetime import date, timedelta

import psycopg

from sereno import Sereno
from tests.facts import one

# Number of jobs that ended on the old day.
OLD_JOBS = 30
OLD_DELIVERY = 77


def fill(connection: psycopg.Connection, days_ago: int = 40, jobs: int = OLD_JOBS, first: int = 1) -> date:
    """Insert jobs `first`, `first + 1`, … that ended this many days ago."""
    day: date = one(connection, "select (sereno.now() at time zone 'UTC')::date") - timedelta(days=days_ago)
    connection.execute("select sereno.make_history_partition(%s)", [day])
    connection.execute(
        "insert into sereno.history (id, state, task, queue, tenant, attempt, failures, crashes, snoozes, releases, "
        "priority, args, run_at, created_at, finished_at) "
        "select n, 'succeeded', 'work', 'default', 'ann', 1, 0, 0, 0, 0, 5, '{}', %(at)s, %(at)s, %(at)s "
        "from generate_series(%(first)s::bigint, %(last)s) as n",
        {"at": f"{day} 10:00:00+00", "first": first, "last": first + jobs - 1},
    )
    return day


def old_delivery(connection: psycopg.Connection, days_ago: int = 40) -> int:
    """Insert a delivery that arrived this many days ago, of a deleted event."""
    connection.execute("insert into sereno.recipients (tenant, key) values ('ann', 'maria') on conflict do nothing")
    connection.execute(
        "insert into sereno.deliveries (id, event_id, recipient_id, channel, tenant, state, due_at, created_at, "
        "changed_at, sent_at) overriding system value "
        "select %(id)s, 1, id, 'sms', 'ann', 'delivered', at, at, at, at "
        "from sereno.recipients, (select sereno.now() - make_interval(days => %(days)s) as at) as old",
        {"id": OLD_DELIVERY, "days": days_ago},
    )
    return OLD_DELIVERY


def move(app: Sereno) -> None:
    asyncio.run(_cycle(app, is_moved=True, is_exported=False))


def export(app: Sereno) -> list[str]:
    """Run the export cycle and return its problems."""
    return asyncio.run(_cycle(app, is_moved=False, is_exported=True))


def archive(app: Sereno) -> None:
    """Run both cycles; neither may report a problem."""
    assert asyncio.run(_cycle(app, is_moved=True, is_exported=True)) == []


async def _cycle(app: Sereno, *, is_moved: bool, is_exported: bool) -> list[str]:
    archiver = app.archive.archiver()
    problems: list[str] = []
    try:
        if is_moved:
            problems += (await archiver.move()).problems
        if is_exported:
            problems += (await archiver.export()).problems
    finally:
        await app.database.aclose()
    return problems
