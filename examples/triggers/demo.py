"""The demo of this example: two plants, a tank that is filled now and then, a month without a price, and a purge."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count

import psycopg

from sereno import Cron, Every, Sereno
from sereno.schedules.rules.when import When
from triggers.app import close_day, purge_readings, recount_tanks, refresh_stock, settle_month
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
        "settle:2026-10 fails four times, is disabled, and is enabled when the price has been entered",
        "schedules?q=triggers.settle",
    ),
    (
        "Procedures that jobs may call, with exact signatures. purge_readings is not allowed: its trigger is disabled",
        "procedures",
    ),
    ("recount:norte waits for a tank that is being filled, longer than a lease at times", "schedules?q=triggers"),
]
TROUBLE = {"TRIGGERS_MAX_RETRIES": "3", "TRIGGERS_FIRST_RETRY": "1s"}
# Rounds per cycle, rounds in which the tank is being filled, and the round that enters the price.
ROUNDS, FILLING, PRICE_AT = 40, 24, 80
PAUSE = 0.25


@asynccontextmanager
async def stage(app: Sereno) -> AsyncIterator[dict[str, str]]:
    """Create tables, login, allow-list and triggers, and simulate the dairy's day."""
    address = await install(app)
    async with await psycopg.AsyncConnection.connect(app.url, autocommit=True) as connection:
        await connection.execute("truncate triggers.tanks, triggers.prices, triggers.settlements")
        await connection.execute("insert into triggers.tanks values ('norte', 'a'), ('norte', 'b'), ('sur', 'a')")
        await add_triggers(app)
        day = asyncio.create_task(a_day(app, connection))
        try:
            yield {"SERENO_PROCEDURE_URL": address, **TROUBLE}
        finally:
            day.cancel()
            with suppress(asyncio.CancelledError):
                await day


async def add_triggers(app: Sereno) -> None:
    """Add the triggers as rows, as the command line or the dashboard would."""
    jobs = {
        "triggers.stock:norte": refresh_stock.job(plant="norte"),
        "triggers.stock:sur": refresh_stock.job(plant="sur"),
        "triggers.close:norte": close_day.job(plant="norte", night="{fire:%Y-%m-%d}"),
        "triggers.recount:norte": recount_tanks.job(plant="norte"),
        "triggers.settle:2026-10": settle_month.job(month="2026-10-01"),
        "triggers.purge": purge_readings.job(before="{fire:%Y-%m-%d}"),
    }
    await app.schedules.aupsert_many(
        [app.schedules.new(key, job, FAST[key], disable_after=1) for key, job in jobs.items()]
    )


async def a_day(app: Sereno, connection: psycopg.AsyncConnection) -> None:
    """Insert readings, fill a tank for a while, and enter the price after some seconds."""
    for number in count():
        await connection.execute("insert into triggers.readings values ('norte', 'b', 100), ('sur', 'a', 40)")
        filling = number % ROUNDS < FILLING
        await connection.execute(
            "update triggers.tanks set filling = %s where (plant, tank) = ('norte', 'b')", [filling]
        )
        if number == PRICE_AT:
            await connection.execute("insert into triggers.prices values ('2026-10-01', 48)")
            await app.schedules.aresume("triggers.settle:2026-10")
        await asyncio.sleep(PAUSE)
