"""An outcome that cannot be described, encoded or stored affects only its own job."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import psycopg
import pytest

from sereno import Backoff, Cancel, Context, Dead, RetryAfter, Sereno, Snooze
from sereno.database.connect import ServiceConnection
from sereno.jobs.attempt import SUCCEEDED, Settlement
from sereno.jobs.settlement import SettleResult
from sereno.telemetry.metrics import MetricTally
from sereno.worker.settler import Settler
from tests.facts import auntil, one, state
from tests.hostile_errors import HOSTILE
from tests.jobs.job_steps import add, session, take

OTHERS = 20


class DateTime(datetime):
    """Like pendulum.DateTime and pandas.Timestamp."""


class Seconds(float):
    """Like numpy.float64."""


def in_an_hour(kind: type[datetime] = DateTime) -> datetime:
    then = datetime.now(UTC) + timedelta(hours=1)
    return kind(then.year, then.month, then.day, then.hour, then.minute, then.second, tzinfo=UTC)


def tampered() -> Snooze:
    snooze = Snooze(1)
    snooze.wait, snooze.until = None, datetime(2030, 1, 1)  # noqa: DTZ001 - the point
    return snooze


OUTCOMES: dict[str, tuple[Callable[[], BaseException], str]] = {
    "datetime of a library": (lambda: Snooze(until=in_an_hour()), "scheduled"),
    "number of a library": (lambda: Snooze(Seconds(3600)), "scheduled"),
    "unknown limit": (lambda: RetryAfter(Seconds(3600), limit="unknown"), "scheduled"),
    "reason that is no text": (lambda: Dead(7), "dead"),  # type: ignore[arg-type]  # the point
    "reason of bytes": (lambda: Cancel(b"\xff"), "cancelled"),  # type: ignore[arg-type]  # the point
    "tampered with": (tampered, "dead"),
}


KINDS = {name: (make, "dead") for name, make in HOSTILE.items()} | OUTCOMES


@pytest.mark.slow
async def test_anything_a_handler_raises_affects_only_its_own_job(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(retry=Backoff(0), timeout=None)
    async def poison(name: str) -> NoReturn:
        make, _ = KINDS[name]
        raise make()

    @app.task
    async def fine() -> None: ...

    bad = dict(zip(KINDS, await app.aenqueue_many([poison.job(name) for name in KINDS]), strict=True))
    others = await app.aenqueue_many([fine.job() for _ in range(OTHERS)])
    async with app.working():
        await auntil(
            lambda: not one(connection, "select count(*) from sereno.jobs where state in ('ready', 'running')")
        )
    assert {name: state(connection, job.id) for name, job in bad.items()} == {
        name: expected for name, (_, expected) in KINDS.items()
    }
    assert {state(connection, job.id) for job in others} == {"succeeded"}
    assert one(connection, "select max(attempt) from sereno.history") == 1


class RaisingFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> NoReturn:
        raise RuntimeError(f"no line of {record.name}")


async def test_a_log_filter_that_raises_blocks_no_settlement(
    app: Sereno, connection: psycopg.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    @app.task(retry=Backoff(0))
    async def fails() -> NoReturn:
        raise ValueError("no luck")

    raising, logger = RaisingFilter(), logging.getLogger("sereno")
    logger.addFilter(raising)
    try:
        job = await fails.aenqueue()
        async with app.working():
            await auntil(lambda: state(connection, job.id) == "dead")
    finally:
        logger.removeFilter(raising)
    assert "a log line (job.dead) was not written: RuntimeError" in capsys.readouterr().err


@pytest.mark.slow
async def test_an_invalid_progress_note_blocks_no_other_note(app: Sereno, connection: psycopg.Connection) -> None:
    done = asyncio.Event()
    notes: list[Any] = ["a\x00b", "\ud800", object(), "fine"]

    @app.task
    async def reports(ctx: Context, number: int) -> None:
        while not done.is_set():
            ctx.progress(0.5, notes[number])
            await asyncio.sleep(0.01)

    jobs = await app.aenqueue_many([reports.job(number) for number in range(len(notes))])
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.progress") == len(jobs))
        assert one(connection, "select note from sereno.progress where job_id = %s", jobs[-1].id) == "fine"
        done.set()


async def settle(app: Sereno, own_session: int, items: list[SettleResult], rounds: int = 1) -> Settler:
    line = ServiceConnection(app.url, app.settings, "settler")
    settler = Settler(line, own_session, MetricTally(), lambda *_: None, lambda: None)
    for item in items:
        settler.add(item)
    try:
        for _ in range(rounds):
            await settler.run_once()
    finally:
        await line.close()
    return settler


async def test_a_row_that_cannot_be_built_is_dead_and_its_batch_is_settled(
    app: Sereno, connection: psycopg.Connection
) -> None:
    unencodable: Any = object()
    ids = add(connection, 9)
    own = session(connection)
    jobs = take(connection, own)
    bad = Settlement("retry", delay=unencodable, reason="busy")
    good = Settlement("retry", delay=3600.0, reason="busy")
    settler = await settle(
        app, own, [SettleResult(job.id, job.attempt, 0.0, bad if job.id == ids[4] else good) for job in jobs]
    )
    assert not settler._waiting
    assert state(connection, ids[4]) == "dead"
    assert one(connection, "select reason from sereno.history") == "its outcome could not be stored"
    assert {state(connection, job_id) for job_id in ids if job_id != ids[4]} == {"scheduled"}


async def test_a_limit_that_cannot_be_closed_blocks_no_outcome(app: Sereno, connection: psycopg.Connection) -> None:
    (job_id,) = add(connection)
    own = session(connection)
    (job,) = take(connection, own)
    invalid: Any = 7
    settler = await settle(app, own, [SettleResult(job.id, job.attempt, 0.0, Settlement("snooze", throttle=invalid))])
    assert not settler._waiting
    assert state(connection, job_id) == "ready"


REFUSE = """
    create function sereno.refuse() returns trigger language plpgsql as $$
    begin raise exception 'not %', new.id; end $$;
    create trigger refuse before insert on sereno.history for each row when (new.task = 'refused')
        execute function sereno.refuse();
"""


@pytest.mark.slow
async def test_an_outcome_that_cannot_be_stored_even_as_dead_is_retried_later(
    app: Sereno, connection: psycopg.Connection
) -> None:
    connection.execute(REFUSE)
    (refused,) = add(connection, task="refused")
    others = add(connection, 5)
    own = session(connection, tasks=("work", "refused"))
    jobs = take(connection, own, tasks=("work", "refused"))
    line = ServiceConnection(app.url, app.settings, "settler")
    confirmed: set[int] = set()
    settler = Settler(line, own, MetricTally(), lambda ids, _: confirmed.update(ids), lambda: None)
    for job in jobs:
        settler.add(SettleResult(job.id, job.attempt, 0.0, SUCCEEDED))
    try:
        rest = await settler.run_once()
        assert 0 < rest <= 1
        assert {state(connection, job_id) for job_id in others} == {"succeeded"}
        assert confirmed == set(others)
        assert state(connection, refused) == "running"
        connection.execute("drop trigger refuse on sereno.history")
        settler.start()
        await auntil(lambda: state(connection, refused) == "succeeded")
        await auntil(lambda: refused in confirmed)
    finally:
        await settler.stop()
        await line.close()
        with suppress(psycopg.Error):
            connection.execute("drop function sereno.refuse cascade")
