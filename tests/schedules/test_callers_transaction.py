"""A schedule is written together with the caller's own rows, on every kind of connection."""

from contextlib import suppress

import psycopg
import pytest

from sereno import Cron, Sereno, Task
from tests.facts import one
from tests.jobs.enqueue.ways import ASYNC_METHODS, SYNC_METHODS, ChangedMyMindError

COUNT = "select count(*) from sereno.schedules"
TRICKY = "100% :name ? $1 '; \\ ::text é"
RULE = Cron("0 3 * * *", tz="America/Sao_Paulo", spread="20m")


@pytest.fixture
def work(app: Sereno) -> Task[[str], None]:
    @app.task
    def work(text: str) -> None: ...

    return work


def test_a_schedule_is_committed_and_rolled_back_with_the_callers_rows(
    app: Sereno,
    work: Task[[str], None],
    database_url: str,
    connection: psycopg.Connection,
    subtests: pytest.Subtests,
) -> None:
    for name, connect in SYNC_METHODS.items():
        with subtests.test(name=name):
            connection.execute("delete from sereno.schedules")
            with suppress(ChangedMyMindError), connect(database_url) as callers:
                app.schedules.upsert(TRICKY, work.job(TRICKY), RULE, connection=callers)
                raise ChangedMyMindError
            assert one(connection, COUNT) == 0
            with connect(database_url) as callers:
                made = app.schedules.upsert(TRICKY, work.job(TRICKY), RULE, tenant=TRICKY, connection=callers)
                assert one(connection, COUNT) == 0
                assert app.schedules.pause(TRICKY, note=TRICKY, connection=callers) == 1
                assert app.schedules.resume(TRICKY, connection=callers) == 1
            row = app.schedules.get(TRICKY)
            assert (row.id, row.args, row.tenant) == (made.id, {"text": TRICKY}, TRICKY)


@pytest.mark.slow
async def test_a_schedule_is_committed_and_rolled_back_in_async_code(
    app: Sereno,
    work: Task[[str], None],
    database_url: str,
    connection: psycopg.Connection,
    subtests: pytest.Subtests,
) -> None:
    for name, connect in ASYNC_METHODS.items():
        with subtests.test(name=name):
            connection.execute("delete from sereno.schedules")
            with suppress(ChangedMyMindError):
                async with connect(database_url) as callers:
                    await app.schedules.aupsert(TRICKY, work.job(TRICKY), RULE, connection=callers)
                    raise ChangedMyMindError
            assert one(connection, COUNT) == 0
            async with connect(database_url) as callers:
                made = await app.schedules.aupsert(TRICKY, work.job(TRICKY), RULE, connection=callers)
                assert one(connection, COUNT) == 0
                assert await app.schedules.apause(TRICKY, note=TRICKY, connection=callers) == 1
            assert (await app.schedules.aget(TRICKY)).id == made.id
    await app.aclose()
