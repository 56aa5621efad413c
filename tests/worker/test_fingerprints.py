"""Every stored failure has a fingerprint; other outcomes have none."""

import psycopg
import pytest

from sereno import Backoff, Cancel, Dead, Sereno, Snooze
from sereno.database.driver import drive
from sereno.jobs import operations as jobs
from sereno.jobs.filters import JobFilter
from sereno.monitoring import error_operations
from tests.facts import advance, auntil, one, state
from tests.worker.isolation import isolated_tasks

HOSTILE = ["\x00", "\ud800", "x" * 1_000_000, "\x1b[2J\x1b]0;owned\x07", "<script>alert(1)</script>", "%s %(a)s {}", ""]


@pytest.mark.slow
async def test_all_failed_attempts_of_a_job_have_one_fingerprint(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(retry=Backoff(1, first="1m", jitter=0))
    async def charge(order: int) -> None:
        raise OSError(f"order {order} was refused")

    made = [(await charge.using(tenant=f"t{number}").aenqueue(number)).id for number in (41, 4242)]
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.attempts where fingerprint is not null") == 2)
        advance(connection, 61)
        await auntil(lambda: one(connection, "select count(*) from sereno.history_dead") == 2)
    found = connection.execute(
        "select fingerprint from sereno.attempts union select fingerprint from sereno.history_dead"
    ).fetchall()
    ((fingerprint,),) = found
    detail = app.database.run(error_operations.show(fingerprint))
    assert detail is not None
    assert (detail.group.task, detail.group.error_type, detail.group.frame) == (
        "charge",
        "OSError",
        "test_fingerprints.py:charge",
    )
    assert (detail.group.total, detail.dead.value, sum(hour.count for hour in detail.hours)) == (4, 2, 4)
    assert {(hit.tenant, hit.count) for hit in detail.tenants} == {("t41", 2), ("t4242", 2)}
    assert detail.sample is not None
    assert "in charge" in (detail.sample.traceback or "")
    assert detail.sample.job_id == detail.group.last_job_id
    dead_jobs = JobFilter(states=["dead"], fingerprint=fingerprint)
    assert drive(jobs.retry(dead_jobs, yes=True), app.database.run).done == made
    assert one(connection, "select count(*) from sereno.attempts where fingerprint = %s", fingerprint) == 4


async def test_outcomes_that_are_no_failures_have_no_fingerprint(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def work(number: int) -> None:
        if number:
            raise [Snooze("1h", reason="later"), Cancel("not wanted")][number - 1]

    ids = [(await work.aenqueue(number)).id for number in range(3)]
    async with app.working():
        await auntil(lambda: [state(connection, each) for each in ids] == ["succeeded", "scheduled", "cancelled"])
    assert one(connection, "select count(*) from sereno.history where fingerprint is not null") == 0
    assert one(connection, "select count(*) from sereno.attempts where fingerprint is not null") == 0
    assert one(connection, "select count(*) from sereno.error_groups") == 0


@pytest.mark.slow
async def test_successes_are_counted_by_their_number_of_attempts(app: Sereno, connection: psycopg.Connection) -> None:
    failed: set[int] = set()

    @app.task(retry=Backoff(1, first="1m", jitter=0))
    async def work(number: int) -> None:
        if number == 3 and number not in failed:
            failed.add(number)
            raise OSError("once")

    for number in range(5):
        await work.aenqueue(number)
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 4 and failed)
        await auntil(lambda: one(connection, "select count(*) from sereno.attempts") == 1)
        advance(connection, 61)
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 5)
    assert one(connection, "select sereno.sum_of(tries) from sereno.tries where task = 'work'")[:3] == [4, 1, 0]


@pytest.mark.slow
async def test_any_error_of_a_handler_settles_its_job(app: Sereno, connection: psycopg.Connection) -> None:
    kinds: list[type[Exception]] = [Dead, ValueError, KeyError]
    count = len(kinds) * len(HOSTILE)

    @app.task(retry=0)
    def work(kind: int, text: int) -> None:
        raise kinds[kind](HOSTILE[text])

    hostile = work.using(tenant="\x1b[31m<b>")
    await app.aenqueue_many([hostile.job(kind, text) for kind in range(len(kinds)) for text in range(len(HOSTILE))])
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.history_dead") == count)
    assert one(connection, "select count(*) from sereno.history_dead where fingerprint is null") == 0
    assert one(connection, "select sum(count) from sereno.error_groups") == count
    assert one(connection, "select max(length(message)) from sereno.error_groups") <= 500
    for group in app.database.run(error_operations.list_groups()):
        assert app.database.run(error_operations.show(group.fingerprint)) is not None


@pytest.mark.slow
async def test_a_crashed_isolated_process_has_a_fingerprint(app: Sereno, connection: psycopg.Connection) -> None:
    isolated_tasks.adopt(app)
    job = (await app.aenqueue_many([isolated_tasks.kills_its_process.job()]))[0]
    async with app.working():
        await auntil(lambda: one(connection, "select crashes from sereno.jobs where id = %s", job.id) == 1)
    (group,) = app.database.run(error_operations.list_groups())
    assert (group.error_type, group.message) == ("Crash", "its process died (SIGKILL)")
    assert one(connection, "select fingerprint from sereno.attempts where job_id = %s", job.id) == group.fingerprint


class TextlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.slow
async def test_an_error_whose_text_raises_settles_its_job(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(retry=Backoff(1, first="1h"))
    async def work() -> None:
        raise TextlessError

    job = await work.aenqueue()
    async with app.working():
        await auntil(lambda: one(connection, "select failures from sereno.jobs where id = %s", job.id) == 1, timeout=10)
    (group,) = app.database.run(error_operations.list_groups())
    assert (group.error_type, group.frame) == ("TextlessError", "test_fingerprints.py:work")
