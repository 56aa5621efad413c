"""A running worker: log lines of jobs, batches of outcomes, and recovery from lost connections."""

import asyncio
import json
import logging

import psycopg
import pytest

from sereno import Backoff, Context, Sereno
from sereno.telemetry.log_events import JsonFormatter
from sereno.worker import settler
from tests.facts import auntil, one, state

CANARY = "canary-7f3a"


async def test_log_lines_name_the_job_and_never_its_arguments(
    app: Sereno, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(retry=Backoff(0))
    async def work(ctx: Context, secret: str) -> None:
        ctx.log.warning("half way", extra={"event": "shop.half_way", "note": None})
        raise ValueError("went wrong")

    caplog.set_level(logging.DEBUG, "sereno")
    job = await work.using(tenant="r42", trace="t-1").aenqueue(CANARY)
    wrong = one(connection, "select sereno.enqueue('work', %s)", json.dumps({"secret": [CANARY]}))
    async with app.working():
        await auntil(lambda: state(connection, job.id) == "dead" and state(connection, wrong) == "dead")
    lines = [
        json.loads(JsonFormatter().format(record)) for record in caplog.records if record.name.startswith("sereno")
    ]
    assert CANARY not in json.dumps(lines)
    by_event = {line["event"]: line for line in lines if line.get("job_id") == job.id}
    assert {"shop.half_way", "job.dead"} <= by_event.keys()
    for line in by_event.values():
        assert (line["task"], line["tenant"], line["attempt"], line["trace_id"]) == ("work", "r42", 1, "t-1")
    assert by_event["job.dead"]["error_type"] == "ValueError"
    # A null that the handler gave is written; the engine's own lines omit what they do not have.
    assert by_event["shop.half_way"]["note"] is None
    assert None not in by_event["job.dead"].values()


async def test_outcomes_are_written_in_batches_or_at_once_if_a_task_requires_it(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settler, "FLUSH_AFTER", 3600.0)
    ran: list[str] = []

    @app.task
    async def patient() -> None:
        ran.append("patient")

    @app.task(settle_at_once=True)
    async def hasty() -> None:
        ran.append("hasty")

    async with app.working():
        first = await patient.aenqueue()
        await auntil(lambda: ran == ["patient"])
        assert state(connection, first.id) == "running"
        second = await hasty.aenqueue()
        await auntil(lambda: state(connection, second.id) == "succeeded")
        # It was written in the same batch.
        assert state(connection, first.id) == "succeeded"


async def test_jobs_of_a_task_that_no_live_worker_knows_are_reported(
    app: Sereno, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def known() -> None: ...

    connection.execute("select sereno.enqueue('unknown_here')")
    async with app.working():
        await auntil(lambda: any("unknown_here" in record.getMessage() for record in caplog.records))


async def test_an_outcome_that_cannot_be_stored_does_not_block_its_batch(
    app: Sereno, connection: psycopg.Connection
) -> None:
    """A trigger of the user refuses one history row: the batch is halved until the bad row is alone."""
    connection.execute(
        "create function refuse() returns trigger language plpgsql as $$ begin "
        "if new.args ->> 'n' = '13' and new.state = 'succeeded' then raise 'not this one'; end if; return new; end $$"
    )
    connection.execute(
        "create trigger refuse before insert on sereno.history_done for each row execute function refuse()"
    )

    @app.task
    async def work(n: int) -> None: ...

    await app.aenqueue_many([work.job(n) for n in range(50)])
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 50)
    dead = connection.execute("select args, reason from sereno.history_dead").fetchall()
    assert dead == [({"n": 13}, "its outcome could not be stored")]


@pytest.mark.slow
async def test_a_worker_survives_lost_connections(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def work() -> None:
        await asyncio.sleep(0)

    async with app.working():
        for _ in range(5):
            jobs = await app.aenqueue_many([work.job() for _ in range(20)])
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where application_name like 'sereno%' and application_name <> 'sereno client' "
                "and datname = current_database()"
            )
            await auntil(lambda: all(state(connection, job.id) == "succeeded" for job in jobs))  # noqa: B023
