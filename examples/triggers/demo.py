"""The demo of this example: two plants, a tank that is filled now and then, a month without a price, and a purge.

`python -m triggers.demo` runs it alone.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count

import psycopg

from sereno import Cron, Every, NewJob, Sereno
from sereno.schedules.rules.when import When
from triggers.app import app, call
from triggers.install import install

APP = "triggers.app:app"
FAST: dict[str, When] = {
    "triggers.stock:norte": Every("5s", count_from="clock"),
    "triggers.stock:sur": Every("5s", count_from="clock"),
    "triggers.close:norte": Cron("*/10 * * * * *", tz="Europe/Madrid"),
    "triggers.recount:norte": Every("3s", count_from="end"),
    "triggers.settle:2026-10": Every("4s"),
    "triggers.purge": Every("4s"),
}
LINKS: list[tuple[str, str]] = [
    (
        "A schedule that fails four times is disabled; it is enabled when the missing price has been entered.",
        "schedules?q=triggers.settle",
    ),
    (
        "Procedures that jobs may call, with exact signatures. One is not allowed, so its trigger was disabled.",
        "procedures",
    ),
    ("A procedure that waits for a locked row, at times longer than a lease.", "schedules?q=triggers"),
]
# Rounds per cycle, rounds in which the tank is being filled, and the round that enters the price.
ROUNDS, FILLING, PRICE_AT = 40, 24, 80
PAUSE = 0.25


def trigger(procedure: str, concurrency_key: str, **params: str) -> NewJob:
    """Return the job of a trigger that is retried after 1, 2 and 4 seconds."""
    job: NewJob = call.job("triggers", procedure, concurrency_key, dict(params), max_retries=3, backoff_seconds=1)
    return job


TRIGGERS: dict[str, NewJob] = {
    "triggers.stock:norte": trigger("refresh_stock", "norte", plant="norte"),
    "triggers.stock:sur": trigger("refresh_stock", "sur", plant="sur"),
    "triggers.close:norte": trigger("close_day", "norte", plant="norte", night="{fire:%Y-%m-%d}"),
    "triggers.recount:norte": trigger("recount_tanks", "norte", plant="norte"),
    "triggers.settle:2026-10": trigger("settle_month", "{key}", month="2026-10-01"),
    "triggers.purge": trigger("purge_readings", "{key}", before="{fire:%Y-%m-%d}"),
}


@asynccontextmanager
async def stage(to: Sereno) -> AsyncIterator[dict[str, str]]:
    """Create tables, login, allow-list and triggers, and simulate the dairy's day."""
    address = await install(to)
    async with await psycopg.AsyncConnection.connect(to.url, autocommit=True) as connection:
        await connection.execute("truncate triggers.tanks, triggers.prices, triggers.settlements")
        await connection.execute("insert into triggers.tanks values ('norte', 'a'), ('norte', 'b'), ('sur', 'a')")
        await to.schedules.aupsert_many(
            [to.schedules.new(key, job, FAST[key], disable_after=1) for key, job in TRIGGERS.items()]
        )
        day = asyncio.create_task(a_day(to, connection))
        try:
            yield {"SERENO_PROCEDURE_URL": address}
        finally:
            day.cancel()
            with suppress(asyncio.CancelledError):
                await day


async def a_day(to: Sereno, connection: psycopg.AsyncConnection) -> None:
    """Insert readings, fill a tank for a while, and enter the price after some seconds."""
    for number in count():
        await connection.execute("insert into triggers.readings values ('norte', 'b', 100), ('sur', 'a', 40)")
        filling = number % ROUNDS < FILLING
        await connection.execute(
            "update triggers.tanks set filling = %s where (plant, tank) = ('norte', 'b')", [filling]
        )
        if number == PRICE_AT:
            await connection.execute("insert into triggers.prices values ('2026-10-01', 48)")
            await to.schedules.aresume("triggers.settle:2026-10")
        await asyncio.sleep(PAUSE)


async def main() -> None:
    """Run the worker and the dashboard of this example until Ctrl-C."""
    app.migrate()
    async with stage(app) as environment:
        given = {**os.environ, **environment, "SERENO_DATABASE_URL": app.url}
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "sereno", "run", APP, env=given)
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
    await app.aclose()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
