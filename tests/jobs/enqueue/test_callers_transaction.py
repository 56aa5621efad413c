"""Enqueue in the caller's own transaction: the job exists if and only if the caller commits."""

import json
from contextlib import suppress

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row

from sereno import Sereno, Task
from tests.facts import one
from tests.jobs.enqueue.ways import ASYNC_METHODS, SYNC_METHODS, ChangedMyMindError


@pytest.fixture
def work(app: Sereno) -> Task[[str], None]:
    @app.task
    def work(text: str) -> None: ...

    return work


COUNT = "select count(*) from sereno.jobs"
TRICKY = "100% :name ? $1 '; \\ ::text é"


def delete_jobs(connection: psycopg.Connection) -> None:
    connection.execute("delete from sereno.jobs")
    connection.execute("delete from sereno.unique_keys")


def test_a_commit_makes_the_job_visible(
    work: Task[[str], None], database_url: str, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    for name, opens in SYNC_METHODS.items():
        with subtests.test(name=name):
            delete_jobs(connection)
            with opens(database_url) as callers:
                job = work.using(callers).enqueue(TRICKY)
                keyed = work.using(callers, unique_key=TRICKY).enqueue(TRICKY)
                again = work.using(callers, unique_key=TRICKY).enqueue(TRICKY)
                assert one(connection, COUNT) == 0
            stored = connection.execute(
                "select id, args ->> 'text', unique_key from sereno.jobs order by id"
            ).fetchall()
            assert stored == [(job.id, TRICKY, None), (keyed.id, TRICKY, TRICKY)]
            assert (again.id, again.created) == (keyed.id, False)


def test_a_rollback_leaves_no_job(
    app: Sereno, work: Task[[str], None], database_url: str, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    for name, opens in SYNC_METHODS.items():
        with subtests.test(name=name):
            with suppress(ChangedMyMindError), opens(database_url) as callers:
                work.using(callers).enqueue("a")
                app.enqueue_many([work.job("b"), work.using(unique_key="k").job("c")], callers)
                raise ChangedMyMindError
            assert one(connection, COUNT) == 0


@pytest.mark.slow
async def test_a_commit_makes_the_job_visible_in_async_code(
    work: Task[[str], None], database_url: str, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    for name, opens in ASYNC_METHODS.items():
        with subtests.test(name=name):
            delete_jobs(connection)
            async with opens(database_url) as callers:
                job = await work.using(callers).aenqueue(TRICKY)
                keyed = await work.using(callers, unique_key=TRICKY).aenqueue(TRICKY)
                again = await work.using(callers, unique_key=TRICKY).aenqueue(TRICKY)
                assert one(connection, COUNT) == 0
            stored = connection.execute(
                "select id, args ->> 'text', unique_key from sereno.jobs order by id"
            ).fetchall()
            assert stored == [(job.id, TRICKY, None), (keyed.id, TRICKY, TRICKY)]
            assert (again.id, again.created) == (keyed.id, False)


@pytest.mark.slow
async def test_a_rollback_leaves_no_job_in_async_code(
    app: Sereno, work: Task[[str], None], database_url: str, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    for name, opens in ASYNC_METHODS.items():
        with subtests.test(name=name):
            with suppress(ChangedMyMindError):
                async with opens(database_url) as callers:
                    await work.using(callers).aenqueue("a")
                    await app.aenqueue_many([work.job("b"), work.using(unique_key="k").job("c")], callers)
                    raise ChangedMyMindError
            assert one(connection, COUNT) == 0


def test_the_callers_row_factory_and_cursor_have_no_effect(work: Task[[str], None], database_url: str) -> None:
    with psycopg.connect(database_url, row_factory=dict_row) as callers:
        assert work.using(callers).enqueue("a").id == 1
        callers.cursor_factory = psycopg.RawCursor
        assert work.using(callers, unique_key="k").enqueue("b").created
        assert callers.execute("select count(*) as made from sereno.jobs").fetchone() == {"made": 2}


async def test_the_callers_row_factory_and_cursor_have_no_effect_in_async_code(
    work: Task[[str], None], database_url: str
) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, row_factory=dict_row) as callers:
        assert (await work.using(callers).aenqueue("a")).id == 1
        callers.cursor_factory = psycopg.AsyncRawCursor
        assert (await work.using(callers, unique_key="k").aenqueue("b")).created


async def test_the_callers_codecs_have_no_effect_on_asyncpg(work: Task[[str], None], database_url: str) -> None:
    callers = await asyncpg.connect(database_url)
    for kind in ("json", "jsonb"):
        await callers.set_type_codec(kind, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
    assert (await work.using(callers).aenqueue("a")).id == 1
    assert (await work.using(callers, unique_key="k").aenqueue("b")).created
    await callers.close()


def test_the_callers_transaction_and_settings_are_unchanged(work: Task[[str], None], database_url: str) -> None:
    with psycopg.connect(database_url) as callers:
        work.using(callers).enqueue("a")
        assert callers.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        assert callers.execute("show enable_seqscan").fetchone() == ("on",)
        callers.rollback()


def test_many_jobs_on_a_callers_connection_are_written_in_one_transaction(
    app: Sereno, work: Task[[str], None], database_url: str
) -> None:
    sent: list[str] = []

    class Counting(psycopg.Connection):
        def cursor(self, *args: object, **kwargs: object) -> psycopg.Cursor:  # type: ignore[override]  # only counted
            sent.append("cursor")
            return super().cursor(*args, **kwargs)  # type: ignore[call-overload,no-any-return]  # passed through

    with Counting.connect(database_url) as callers:
        app.enqueue_many([work.job(str(number)) for number in range(10_000)], callers)
        callers.commit()
        ids = callers.execute("select count(distinct xmin::text), count(*) from sereno.jobs").fetchone()
    assert ids == (1, 10_000)
