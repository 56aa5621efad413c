"""Pauses apply to carried jobs: a paused queue starts none, jobs of a paused task or tenant wait in PostgreSQL."""

import asyncio
from collections import Counter
from functools import partial

import psycopg
import pytest

from sereno import JetStream, Sereno
from sereno.jobs.pauses import pause, resume
from sereno.telemetry.service import Service
from sereno.worker.worker import Worker
from tests.facts import auntil, one
from tests.jobs.job_steps import do

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]


async def read_pauses(worker: Worker) -> None:
    """Let the worker read the pauses now, and wait until it has. A round that has begun may have read them before."""
    reports = worker.carried.reports
    for _ in range(2):
        rounds = reports.rounds
        reports.wake()
        await auntil(partial(_has_done_more, reports, rounds))


def _has_done_more(service: Service, rounds: int) -> bool:
    return service.rounds > rounds


async def test_a_paused_carried_queue_starts_no_job(database_url: str, jetstream: JetStream) -> None:
    app = Sereno(database_url)
    app.queue("clicks", carrier=jetstream, direct=True)
    seen: Counter[int] = Counter()

    @app.task(queue="clicks", history=False)
    async def click(number: int) -> None:
        seen[number] += 1

    with psycopg.connect(database_url, autocommit=True) as connection:
        do(connection, pause("queue", "clicks"))
        async with app.working({"clicks": 10}) as worker:
            await app.aenqueue_many([click.job(number) for number in range(100)])
            await read_pauses(worker)
            assert seen == {}
            assert worker.carried.executor.running == {}
            do(connection, resume("queue", "clicks"))
            worker.carried.reports.wake()
            await auntil(lambda: len(seen) == 100)
    await app.aclose()
    assert set(seen.values()) == {1}


async def test_received_jobs_of_a_paused_queue_wait(database_url: str, jetstream: JetStream) -> None:
    app = Sereno(database_url)
    app.queue("clicks", carrier=jetstream, direct=True)
    started: list[int] = []
    go_on = asyncio.Event()

    @app.task(queue="clicks", history=False)
    async def click(number: int) -> None:
        started.append(number)
        await go_on.wait()

    with psycopg.connect(database_url, autocommit=True) as connection:
        await app.aenqueue_many([click.job(number) for number in range(20)])
        async with app.working({"clicks": 1}) as worker:
            await auntil(lambda: len(started) == 1)
            do(connection, pause("queue", "clicks"))
            await read_pauses(worker)
            # The running job ends; the other 19, which the worker has received with it, do not start.
            go_on.set()
            await auntil(lambda: not worker.carried.executor.running)
            await read_pauses(worker)
            assert len(started) == 1
            do(connection, resume("queue", "clicks"))
            worker.carried.reports.wake()
            await auntil(lambda: len(started) == 20)
    await app.aclose()


async def test_jobs_of_a_paused_task_or_tenant_wait_in_postgresql(database_url: str, jetstream: JetStream) -> None:
    app = Sereno(database_url)
    app.queue("clicks", carrier=jetstream, direct=True)
    seen: Counter[str] = Counter()

    @app.task(queue="clicks", history=False)
    async def click(name: str) -> None:
        seen[name] += 1

    @app.task(queue="clicks", history=False)
    async def view(name: str) -> None:
        seen[name] += 1

    with psycopg.connect(database_url, autocommit=True) as connection:
        do(connection, pause("task", "view"))
        do(connection, pause("tenant", "a"))
        async with app.working({"clicks": 10}) as worker:
            await read_pauses(worker)
            await view.aenqueue("task")
            await click.using(tenant="a").aenqueue("tenant")
            await click.using(tenant="b").aenqueue("other")
            waiting = "select count(*) from sereno.jobs where state in ('ready', 'scheduled') and releases = 1"
            await auntil(lambda: one(connection, waiting) == 2)
            await auntil(lambda: seen == {"other": 1})
            do(connection, resume("task", "view"))
            do(connection, resume("tenant", "a"))
            await auntil(lambda: len(seen) == 3)
    await app.aclose()
    assert set(seen.values()) == {1}
