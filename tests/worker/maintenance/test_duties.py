"""Maintenance does not delay jobs, and continues where it was interrupted."""

import psycopg
import pytest

from sereno import Every, Sereno
from sereno.access import idempotency
from sereno.database.connect import ServiceConnection
from sereno.schedules.scheduler import Scheduler
from sereno.worker import sessions
from sereno.worker.maintenance import duties
from sereno.worker.maintenance.duties import (
    Maintenance,
    MaintenanceDuty,
    MaintenanceStep,
    maintenance_connection,
    run_page,
)
from tests.facts import auntil, one, state

BLOCKED = "select count(*) from pg_locks where not granted and relation = %s::regclass"


def lock(url: str, table: str) -> psycopg.Connection:
    """Return a connection that locks the table exclusively until it is closed."""
    holder = psycopg.connect(url)
    holder.execute(f"lock table {table} in access exclusive mode".encode())
    return holder


@pytest.mark.slow
@pytest.mark.parametrize("table", ["sereno.idempotency_keys", "sereno.minutes", "sereno.lanes", "sereno.duties"])
async def test_due_jobs_are_promoted_while_housekeeping_waits(
    app: Sereno, connection: psycopg.Connection, table: str
) -> None:
    @app.task
    async def work() -> None: ...

    holder = lock(app.database.url, table)
    async with app.working():
        try:
            await auntil(lambda: one(connection, BLOCKED, table))
            job = await work.using(delay="100ms").aenqueue()
            await auntil(lambda: state(connection, job.id) != "scheduled")
        finally:
            holder.close()


@pytest.mark.slow
async def test_schedules_fire_while_the_housekeeping_of_the_scheduler_waits(
    app: Sereno, connection: psycopg.Connection
) -> None:
    @app.task
    async def work() -> None: ...

    await app.schedules.aupsert("often", work.job(), when=Every("1s"))
    scheduler = Scheduler(app.url, app.settings)
    with lock(app.database.url, "sereno.bulk_operations"):
        scheduler.start()
        await auntil(lambda: one(connection, BLOCKED, "sereno.bulk_operations"))
        fired = one(connection, "select count(*) from sereno.fires")
        await auntil(lambda: one(connection, "select count(*) from sereno.fires") > fired)
    await scheduler.stop()


async def test_a_step_that_timed_out_continues_later_and_blocks_no_other(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "STATEMENT_TIMEOUT", 0.2)
    connection.execute(
        "insert into sereno.idempotency_keys (who, key, request, at) "
        "select 'me', n::text, '', sereno.now() - interval '2 days' from generate_series(1, 3) as n"
    )
    connection.execute(
        "insert into sereno.unique_keys (task, unique_key, job_id, until) values ('work', 'k', 1, sereno.now())"
    )
    own = maintenance_connection(app.database.url, app.settings, "test")
    service = Maintenance(
        "test",
        own,
        [
            MaintenanceDuty(
                "test",
                0.0,
                [
                    MaintenanceStep("responses", _delete_page_of_responses),
                    MaintenanceStep("keys", _delete_page_of_sessions),
                ],
            )
        ],
    )
    try:
        with lock(app.database.url, "sereno.idempotency_keys"):
            await service.run_once()
            await service.run_once()
        assert one(connection, "select count(*) from sereno.unique_keys") == 0
        assert one(connection, "select count(*) from sereno.idempotency_keys") == 3
        active = "select count(*) from pg_stat_activity where application_name = 'sereno test' and state = 'active'"
        assert one(connection, active) == 0, "the server still runs a statement that its client gave up"
        await service.run_once()
        assert one(connection, "select count(*) from sereno.idempotency_keys") == 0
    finally:
        await service.stop()


async def _delete_page_of_responses(connection: ServiceConnection) -> bool:
    return await run_page(connection, idempotency.delete_old_responses())


async def _delete_page_of_sessions(connection: ServiceConnection) -> bool:
    return await run_page(connection, sessions.forget_ended())
