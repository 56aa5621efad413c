"""Daily partitions of fires: created ahead, dropped whole, also where only a scheduler runs."""

import psycopg

from sereno import Cron, Sereno
from sereno.schedules.scheduler import Scheduler
from tests.facts import advance, auntil, one

PARTITIONS = (
    "select count(*) from pg_inherits join pg_class on oid = inhrelid "
    "where inhparent = 'sereno.fires'::regclass and relname ~ '^fires_[0-9]+$' "
    "and to_date(right(relname, 8), 'YYYYMMDD') {} (sereno.now() at time zone 'UTC')::date"
)


async def test_a_scheduler_creates_partitions_and_drops_old_ones(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work() -> None: ...

    app.schedules.upsert("k", work.job(), Cron("0 * * * *"), overlap="allow")
    advance(connection, 3601)
    app.schedules.tick()
    assert one(connection, "select count(*) from sereno.fires") == 1
    advance(connection, 40 * 86400)
    app.schedules.pause("k")

    scheduler = Scheduler(app.url, app.settings)
    scheduler.start()
    try:
        await auntil(lambda: one(connection, "select count(*) from sereno.fires") == 0)
        await auntil(lambda: one(connection, PARTITIONS.format(">=")) == 8)
        await auntil(lambda: one(connection, PARTITIONS.format("<")) == 0)
    finally:
        await scheduler.stop()


async def test_an_old_fire_in_the_default_partition_is_deleted(app: Sereno, connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into sereno.fires (planned_at, schedule_id, fired_at) "
        "values ('2001-01-01', 1, sereno.now() - interval '31 days'), ('2001-01-02', 1, sereno.now())"
    )
    scheduler = Scheduler(app.url, app.settings)
    scheduler.start()
    try:
        await auntil(lambda: one(connection, "select count(*) from sereno.fires") == 1)
    finally:
        await scheduler.stop()
