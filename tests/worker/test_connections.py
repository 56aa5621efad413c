"""Connections of handlers: each slot of a worker has one, and a job that gets none has not failed."""

import asyncio
import threading

import psycopg
import pytest

from sereno import Backoff, Context, Sereno
from sereno.database import database
from tests.facts import auntil, one

NO_RETRY = Backoff(0)


@pytest.mark.slow
async def test_every_slot_has_a_connection_despite_a_small_pool(
    database_url: str, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "TIMEOUT", 0.5)
    app = Sereno(database_url, pool_size=1)
    inside, all_running = 0, asyncio.Event()

    @app.task(retry=NO_RETRY)
    async def report(ctx: Context) -> None:
        nonlocal inside
        async with ctx.transaction() as own:
            await own.execute("select 1")
            inside += 1
            if inside == 12:
                all_running.set()
            await all_running.wait()

    await app.aenqueue_many([report.job() for _ in range(12)])
    async with app.working({"default": 12}):
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 12)
    assert connection.execute("select distinct state, attempt from sereno.history").fetchall() == [("succeeded", 1)]
    await app.aclose()


@pytest.mark.slow
async def test_every_thread_has_a_connection_despite_a_small_pool(
    database_url: str, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "TIMEOUT", 0.5)
    app = Sereno(database_url, pool_size=1)
    all_running = threading.Barrier(6)

    @app.task(retry=NO_RETRY)
    def report(ctx: Context) -> None:
        with ctx.transaction() as own:
            own.execute("select 1")
            all_running.wait(30)

    await app.aenqueue_many([report.job() for _ in range(6)])
    async with app.working({"default": 6}):
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 6)
    assert connection.execute("select distinct state, attempt from sereno.history").fetchall() == [("succeeded", 1)]
    await app.aclose()


@pytest.mark.slow
async def test_handlers_that_need_a_second_connection_do_not_deadlock(
    database_url: str, connection: psycopg.Connection
) -> None:
    app = Sereno(database_url, pool_size=1)
    inside, all_running = 0, asyncio.Event()

    @app.task(retry=NO_RETRY)
    async def report(ctx: Context) -> None:
        nonlocal inside
        async with ctx.transaction() as own:
            await own.execute("select 1")
            inside += 1
            if inside == 8:
                all_running.set()
            await all_running.wait()
            await ctx.step("second", dict)

    await app.aenqueue_many([report.job() for _ in range(8)])
    async with app.working({"default": 8}):
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 8)
    assert connection.execute("select distinct state, attempt from sereno.history").fetchall() == [("succeeded", 1)]
    await app.aclose()


@pytest.mark.slow
async def test_a_job_that_gets_no_pooled_connection_is_postponed_without_a_failure(
    database_url: str, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "TIMEOUT", 0.1)
    app = Sereno(database_url, pool_size=1)

    @app.task(retry=NO_RETRY)
    async def greedy(ctx: Context) -> None:
        async with app.database.aconnection(), app.database.aconnection(), ctx.transaction():
            pass

    await greedy.aenqueue()
    async with app.working({"default": 1}):
        await auntil(lambda: one(connection, "select snoozes from sereno.jobs") == 1)
    assert connection.execute("select state, failures, crashes from sereno.jobs").fetchone() == ("scheduled", 0, 0)
    assert "all 2 connections were in use" in one(connection, "select reason from sereno.attempts")
    await app.aclose()


async def test_a_job_is_postponed_without_a_failure_if_the_server_has_no_connection(
    database_url: str, connection: psycopg.Connection
) -> None:
    app = Sereno(database_url)
    began, proceed = asyncio.Event(), asyncio.Event()

    @app.task(retry=NO_RETRY)
    async def report(ctx: Context) -> None:
        began.set()
        await proceed.wait()
        async with ctx.transaction():
            pass

    await report.aenqueue()
    async with app.working({"default": 1}):
        await began.wait()
        # Connection limits do not apply to superusers such as the test user, so the limit is set on a role.
        connection.execute("create role few login connection limit 0")
        try:
            app.database._url = app.database.url.replace("postgres@", "few@")
            await app.database.aclose()
            proceed.set()
            await auntil(lambda: one(connection, "select snoozes from sereno.jobs") == 1)
        finally:
            connection.execute("drop role few")
    assert connection.execute("select state, failures, crashes from sereno.jobs").fetchone() == ("scheduled", 0, 0)
    assert "too many connections" in one(connection, "select reason from sereno.attempts")
