"""A connection of the wrong kind is refused with an error, before anything is written."""

import asyncpg
import psycopg
import pytest
from psycopg_pool import ConnectionPool
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from sereno import ConfigurationError, Sereno, Task
from tests.jobs.enqueue.ways import sqlalchemy_url, with_django


@pytest.fixture
def work(app: Sereno) -> Task[[], None]:
    @app.task
    def work() -> None: ...

    return work


def assert_refused(work: Task[[], None], wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=r"enqueue\(\) cannot use a .*: it takes"):
        work.using(wrong).enqueue()


async def aassert_refused(work: Task[[], None], wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=r"aenqueue\(\) cannot use a .*: it takes"):
        await work.using(wrong).aenqueue()


async def test_an_object_that_is_not_a_connection_is_refused(work: Task[[], None], subtests: pytest.Subtests) -> None:
    for wrong in ["postgresql://", 7, object()]:
        with subtests.test(wrong=wrong):
            assert_refused(work, wrong)
            await aassert_refused(work, wrong)


async def test_a_sync_connection_in_async_code_is_refused(work: Task[[], None], database_url: str) -> None:
    with psycopg.connect(database_url) as callers:
        await aassert_refused(work, callers)
    with create_engine(sqlalchemy_url(database_url, "psycopg"), poolclass=NullPool).connect() as callers_alchemy:
        await aassert_refused(work, callers_alchemy)


async def test_an_async_connection_in_sync_code_is_refused(work: Task[[], None], database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url) as callers:
        assert_refused(work, callers)
    callers_asyncpg = await asyncpg.connect(database_url)
    assert_refused(work, callers_asyncpg)
    await callers_asyncpg.close()
    engine = create_async_engine(sqlalchemy_url(database_url, "asyncpg"), poolclass=NullPool)
    async with engine.connect() as callers_alchemy:
        assert_refused(work, callers_alchemy)


async def test_a_pool_or_an_engine_is_refused(work: Task[[], None], database_url: str) -> None:
    assert_refused(work, create_engine(sqlalchemy_url(database_url, "psycopg"), poolclass=NullPool))
    await aassert_refused(work, create_async_engine(sqlalchemy_url(database_url, "asyncpg"), poolclass=NullPool))
    with ConnectionPool(database_url, open=False) as pool:
        assert_refused(work, pool)
    async with asyncpg.create_pool(database_url, min_size=1, max_size=1) as asyncpg_pool:
        await aassert_refused(work, asyncpg_pool)


def test_a_cursor_is_refused(work: Task[[], None], database_url: str) -> None:
    with psycopg.connect(database_url) as callers, callers.cursor() as cursor:
        assert_refused(work, cursor)
    with with_django(database_url) as callers_django, callers_django.cursor() as django_cursor:
        assert_refused(work, django_cursor)


def test_a_connection_to_another_database_than_postgresql_is_refused(work: Task[[], None]) -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as callers:
        assert_refused(work, callers)
    engine.dispose()
