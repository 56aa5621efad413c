"""Connections of sereno use READ COMMITTED, also where the default of the database is another level."""

import asyncio
import logging

import psycopg
import pytest

from sereno import Limit, Sereno
from sereno.database.connect import ServiceConnection, connect
from sereno.database.statement import Operation, Statement
from tests.facts import auntil, one

LEVELS = ["repeatable read", "serializable"]


def set_default(connection: psycopg.Connection, level: str) -> None:
    name = one(connection, "select current_database()")
    connection.execute(f"alter database {name} set default_transaction_isolation = '{level}'".encode())


def isolation_level() -> Operation[str]:
    rows = yield Statement("show transaction_isolation")
    return str(rows[0][0])


@pytest.mark.parametrize("level", LEVELS)
async def test_every_connection_of_sereno_is_read_committed(
    app: Sereno, connection: psycopg.Connection, level: str
) -> None:
    set_default(connection, level)
    with psycopg.connect(app.url) as callers:
        assert one(callers, "show transaction_isolation") == level
    line = ServiceConnection(app.url, app.settings, "test")
    with connect(app.url, app.settings, "test") as plain:
        found = [one(plain, "show transaction_isolation")]
    found += [await line.run(isolation_level()), await line.run(isolation_level(), atomic=True)]
    found += [app.database.run(isolation_level()), app.database.run_one(isolation_level())]
    found += [await app.database.arun(isolation_level()), await app.database.arun_one(isolation_level())]
    await line.close()
    assert set(found) == {"read committed"}


async def test_behind_a_pooler_each_transaction_sets_its_isolation_level(
    app: Sereno, connection: psycopg.Connection
) -> None:
    set_default(connection, "repeatable read")
    pooled = Sereno(app.url, transaction_pooler=True)
    line = ServiceConnection(pooled.url, pooled.settings, "test")
    found = [
        await line.run(isolation_level()),
        await pooled.database.arun(isolation_level()),
        pooled.database.run(isolation_level()),
    ]
    await line.close()
    await pooled.database.aclose()
    assert set(found) == {"read committed"}


@pytest.mark.slow
async def test_workers_that_share_limits_have_no_serialization_failures(
    app: Sereno, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    set_default(connection, "repeatable read")
    ran: list[int] = []

    @app.task(concurrency=Limit(2, key="{k}"))
    async def limited(k: int) -> None:
        ran.append(k)

    @app.task
    async def plain(k: int) -> None:
        ran.append(k)

    caplog.set_level(logging.WARNING, "sereno")
    workers = [app.worker({"default": 10}) for _ in range(3)]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    for worker in workers:
        await worker.registered.wait()
    for _ in range(10):
        await app.aenqueue_many([task.job(n % 7) for n in range(20) for task in (limited, plain)])
    await auntil(lambda: len(ran) >= 400)
    await auntil(lambda: one(connection, "select count(*) from sereno.jobs") == 0)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)
    assert [record.getMessage() for record in caplog.records if "serialize" in record.getMessage()] == []
