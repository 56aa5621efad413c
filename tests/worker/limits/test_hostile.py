"""An invalid key, limit name or handler affects only its own job."""

import msgspec
import psycopg
import pytest

from sereno import Context, InvalidArguments, Limit, Rate, RetryAfter, Sereno
from sereno.jobs import pauses
from tests.facts import auntil, one
from tests.worker.limits.limit_facts import finished


async def test_a_key_that_is_too_long_for_an_index_blocks_no_other_job(
    database_url: str, connection: psycopg.Connection
) -> None:
    app = Sereno(database_url)

    @app.task(concurrency=Limit(1, key="{account}"), fair_key="{account}", order_key="{account}")
    async def work(account: str) -> None: ...

    with pytest.raises(InvalidArguments, match="characters"):
        work.enqueue("x" * 5000)
    async with app.working():
        long = "encode(sha512(n::text::bytea), 'hex')"
        connection.execute(
            "select sereno.enqueue('work', jsonb_build_object('account',"
            f" (select string_agg({long}, '') from generate_series(1, 100) as n)))"
        )
        await work.aenqueue("short")
        await auntil(lambda: finished(connection) == 2)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["a\x00b", "\ud800", "x" * 501])
async def test_a_handler_with_an_invalid_limit_name_affects_no_other_job(
    database_url: str, connection: psycopg.Connection, wrong: str
) -> None:
    app = Sereno(database_url)

    @app.task(rate=Rate(100, name="provider"), retry=0)
    async def throttles(ctx: Context) -> None:
        ctx.throttle("provider", seconds=1, key=wrong)

    @app.task(retry=0)
    async def raises() -> None:
        raise RetryAfter(1, limit=wrong)

    @app.task
    async def other() -> None: ...

    for task in (throttles, raises, other):
        await task.aenqueue()
    async with app.working():
        await auntil(lambda: finished(connection) == 3)
    assert one(connection, "select count(*) from sereno.history where state = 'dead'") == 2


@pytest.mark.slow
async def test_a_paused_tenant_does_not_block_other_tenants(database_url: str, connection: psycopg.Connection) -> None:
    app = Sereno(database_url)
    app.queue("default", fair_key="{tenant}")

    @app.task
    async def work(n: int) -> None: ...

    app.database.run(pauses.pause("tenant", "paused"))
    await app.aenqueue_many([work.using(tenant="paused").job(n) for n in range(50)])
    await app.aenqueue_many([work.using(tenant=f"t{n % 2}").job(n) for n in range(300)])
    async with app.working({"default": 10}):
        await auntil(lambda: finished(connection) == 300)
        await app.database.arun(pauses.resume("tenant", "paused"))
        await auntil(lambda: finished(connection) == 350)


def test_limits_of_a_job_and_of_its_task_add_up(database_url: str) -> None:
    app = Sereno(database_url)

    @app.task
    def work() -> None: ...

    twice = work.using(rate=Rate(1, name="a")).using(concurrency=Limit(2, name="b")).using(order_key="o")
    keys = msgspec.json.decode(twice.job().keys or b"")
    assert ([entry[0] for entry in keys["limits"]], keys["order"]) == (["a", "b"], "o")
