"""A bulk operation changes each match once, at its rate, only what existed at its start, and can be stopped."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sereno import Context, Sereno
from sereno.bulk import operations as bulk
from sereno.database.connect import ServiceConnection
from sereno.database.driver import drive
from sereno.errors import InvalidArguments, Refused
from sereno.jobs import bulk as store
from sereno.jobs import operations as jobs
from sereno.jobs.filters import JobFilter
from sereno.jobs.queries.search import jobs_wanted
from sereno.schedules.maintenance import fires_duty
from sereno.worker import bulk_task as engine_bulk
from tests.acceptance.conftest import WorkerProcess, expire_leases
from tests.bulk.bulk_steps import add_ended, add_waiting, begin_bulk, ended_bulk, raise_rate, show_bulk, states_of
from tests.facts import advance, auntil, one, state, until
from tests.jobs.job_steps import waits_for_a_lock
from tests.worker.maintenance.locked_tables import do_all


async def test_jobs_are_retried_cancelled_and_deleted(app: Sereno, work: Any, connection: psycopg.Connection) -> None:
    ids = add_ended(app, work, 2500)
    retry = begin_bulk(app, "job.retry", JobFilter(task="work"))
    assert (retry.state, retry.waits_for) == ("waiting", "a worker")
    async with app.working({"default": 2}):
        ended = await ended_bulk(app, retry.id)
        assert (ended.state, ended.done, ended.left_alone, ended.error) == ("done", 2500, 0, None)
        assert one(connection, "select count(*) from sereno.jobs where task = 'work' and state = 'ready'") == 2500
        cancel = begin_bulk(app, "job.cancel", JobFilter(ids=ids[:10]), reason="enough")
        assert cancel.waits_for is None
        assert (await ended_bulk(app, cancel.id)).done == 10
        assert one(connection, "select reason from sereno.history where id = %s", ids[0]) == "enough"
        delete = begin_bulk(app, "job.delete", JobFilter(task="work", states=["cancelled"]))
        assert (await ended_bulk(app, delete.id)).done == 10
    assert states_of(connection, ids[:10]) == {None}
    audited = connection.execute(
        "select action, actor, (detail->>'count')::int, (detail->>'operation')::bigint from sereno.audit "
        "where action in ('job.retry', 'job.cancel', 'job.delete') and actor = 'ann' order by id"
    ).fetchall()
    assert audited == [
        *[("job.retry", "ann", count, retry.id) for count in (1000, 1000, 500)],
        ("job.cancel", "ann", 10, cancel.id),
        ("job.delete", "ann", 10, delete.id),
    ]


@pytest.mark.slow
async def test_a_conflict_of_unique_keys_is_reported_and_the_others_are_retried(
    app: Sereno, work: Any, connection: psycopg.Connection, database_url: str
) -> None:
    ids = [*add_ended(app, work, 5), *add_waiting(app, work, 1, unique_key="k"), *add_ended(app, work, 5)]
    drive(jobs.cancel(JobFilter(ids=ids[5:6]), reason="before"), app.database.run)
    with psycopg.connect(database_url) as other:
        live = work.using(other, unique_key="k").enqueue(1)
        retry = begin_bulk(app, "job.retry", JobFilter(task="work", states=["cancelled"]))
        async with app.working({"default": 2}):
            await auntil(lambda: waits_for_a_lock(connection))
            other.commit()
            ended = await ended_bulk(app, retry.id)
    assert (ended.state, ended.done, ended.left_alone, ended.error) == ("done", 10, 1, None)
    assert states_of(connection, [*ids[:5], *ids[6:]]) == {"ready"}
    audited = one(
        connection, "select detail->'conflicts' from sereno.audit where action = 'job.retry' and actor = 'ann'"
    )
    assert audited == [{"job": ids[5], "held_by": live.id}]


@pytest.mark.slow
async def test_a_filter_that_matches_nothing_is_done_at_once(app: Sereno, work: Any) -> None:
    add_waiting(app, work, 3)
    for wanted in (JobFilter(task="unknown"), JobFilter(ids=[]), JobFilter(ids=[-5, 2**62]), JobFilter(states=["odd"])):
        number = begin_bulk(app, "job.cancel", wanted).id
        async with app.working({"default": 1}):
            found = await ended_bulk(app, number)
        assert (found.state, found.done, found.left_alone) == ("done", 0, 0)


@pytest.mark.slow
async def test_jobs_created_or_ended_later_are_left_alone(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    existing, running = add_waiting(app, work, 5), add_waiting(app, work, 1)
    cancel = begin_bulk(app, "job.cancel", JobFilter(task="work"))
    retry = begin_bulk(app, "job.retry", JobFilter(ids=running))
    later = add_waiting(app, work, 5)
    # This job ends after the retry was requested.
    drive(jobs.cancel(JobFilter(ids=running)), app.database.run)
    async with app.working({"default": 1}):
        assert (await ended_bulk(app, cancel.id)).done == 5
        assert (await ended_bulk(app, retry.id)).done == 0
    assert states_of(connection, existing) == {"cancelled"}
    assert states_of(connection, later) == {"ready"}
    assert states_of(connection, running) == {"cancelled"}


@pytest.mark.slow
async def test_the_rate_applies_across_workers(app: Sereno, work: Any, connection: psycopg.Connection) -> None:
    """By the database's clock: in no period more changes than the rate allows plus one batch."""
    add_ended(app, work, 60)
    number = begin_bulk(app, "job.retry", JobFilter(task="work"), rate=20).id
    batch = 10
    for share in (1, 30):
        async with app.working({"default": 1}):
            await auntil(lambda: show_bulk(app, number).done >= share)  # noqa: B023 - awaited here
    # The time without a worker does not count for the rate.
    advance(connection, 3600)
    before = show_bulk(app, number).done
    async with app.working({"default": 1}):
        assert (await ended_bulk(app, number)).done == 60
    assert before < 60
    steps: list[tuple[float, int]] = connection.execute(
        "select date_part('epoch', at), (detail->>'count')::int from sereno.audit "
        "where action = 'job.retry' order by id"
    ).fetchall()
    assert max(count for _, count in steps) <= batch
    for first, (begin, _) in enumerate(steps):
        for last in range(first, len(steps)):
            changed = sum(count for _, count in steps[first : last + 1])
            assert changed <= 20 * (steps[last][0] - begin) + batch + 1e-6


@pytest.mark.slow
def test_another_worker_continues_when_the_first_is_killed(
    app: Sereno, work: Any, connection: psycopg.Connection, database_url: str, tmp_path: Path
) -> None:
    ids = add_waiting(app, work, 40)
    number = begin_bulk(app, "job.cancel", JobFilter(task="work"), rate=2).id
    workers = []
    try:
        workers.append(WorkerProcess(database_url, tmp_path / "handlers"))
        until(lambda: show_bulk(app, number).done > 0)
        workers[0].kill()
        killed = show_bulk(app, number)
        assert (killed.state, killed.finished_at) == ("running", None)
        assert killed.done < len(ids)
        expire_leases(connection)
        raise_rate(connection, 400)
        workers.append(WorkerProcess(database_url, tmp_path / "handlers"))
        until(lambda: show_bulk(app, number).is_over)
    finally:
        for worker in workers:
            worker.kill()
    found = show_bulk(app, number)
    assert (found.state, found.done, found.left_alone) == ("done", len(ids), 0)
    audited = connection.execute("select detail->'ids' from sereno.audit where action = 'job.cancel'").fetchall()
    assert sorted(each for (batch,) in audited for each in batch) == ids


@pytest.mark.slow
async def test_an_operation_can_be_stopped_while_it_runs(
    app: Sereno, work: Any, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The next batch is due in a quarter of an hour; meanwhile the task checks whether it is to stop.
    monkeypatch.setattr(engine_bulk, "LONG_WAIT", 3600.0)
    ids = add_waiting(app, work, 500)
    number = begin_bulk(app, "job.cancel", JobFilter(task="work"), rate=1 / 900).id
    async with app.working({"default": 1}):
        await auntil(lambda: show_bulk(app, number).done > 0)
        requested = app.database.run(bulk.stop(number, actor="bob"))
        found = await ended_bulk(app, number)
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs where task = %s", store.TASK) == 0)
    assert (found.state, found.stop_requested_by) == ("stopped", "bob")
    assert found.stop_requested_at is not None
    assert found.finished_at is not None
    assert 0 < found.done < 500
    assert found.done == requested.done, "jobs were changed after the request to stop"
    assert one(connection, "select count(*) from sereno.history where id = any(%s)", ids) == found.done
    with pytest.raises(Refused, match="has ended already: it is stopped"):
        app.database.run(bulk.stop(number))


async def test_an_operation_that_has_not_started_stops_at_once(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    ids = add_waiting(app, work, 3)
    number = begin_bulk(app, "job.cancel", JobFilter(task="work")).id
    assert app.database.run(bulk.stop(number)).state == "stopped"
    async with app.working({"default": 1}):
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs where task = %s", store.TASK) == 0)
    assert states_of(connection, ids) == {"ready"}


@pytest.mark.slow
async def test_a_worker_that_stops_leaves_the_operation_to_another(app: Sereno, work: Any) -> None:
    # A worker that waits for the end of the operation would exceed the time limit of the test.
    app.override(grace=3600)
    add_waiting(app, work, 40)
    number = begin_bulk(app, "job.cancel", JobFilter(task="work"), rate=20).id
    async with app.working({"default": 1}):
        await auntil(lambda: show_bulk(app, number).done > 0)
    assert show_bulk(app, number).done < 40
    assert show_bulk(app, number).waits_for == "a worker"
    async with app.working({"default": 1}):
        assert (await ended_bulk(app, number)).done == 40


async def test_a_worker_of_other_queues_takes_over_an_operation(app: Sereno, work: Any) -> None:
    add_waiting(app, work, 3)
    number = begin_bulk(app, "job.cancel", JobFilter(task="work")).id
    async with app.working({"mail": 1}):
        assert (await ended_bulk(app, number)).done == 3


async def test_an_operation_is_enqueued_where_there_are_free_slots(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    newest_queue = "select queue from sereno.jobs where task = %s order by id desc"
    async with app.working({"small": 1, "wide": 5}):
        connection.execute("insert into sereno.pauses (kind, name, paused_by) values ('task', %s, 'x')", [store.TASK])
        begin_bulk(app, "job.cancel", JobFilter(task="work"))
        assert one(connection, newest_queue, store.TASK) == "wide"
        connection.execute("insert into sereno.pauses (kind, name, paused_by) values ('queue', 'wide', 'x')")
        begin_bulk(app, "job.cancel", JobFilter(task="work"))
        assert one(connection, newest_queue, store.TASK) == "small"


async def test_an_attempt_that_lost_its_claim_changes_nothing(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    ids = add_waiting(app, work, 3)
    made = begin_bulk(app, "job.cancel", JobFilter(task="work"))
    assert made.job_id is not None
    assert app.database.run(store.batch(made.id, made.job_id, 1, 1)) == store.BulkBatch(None)
    connection.execute(
        "update sereno.jobs set state = 'running', attempt = 2, session_id = 9 where id = %s", [made.job_id]
    )
    for job, attempt, session in ((made.job_id, 1, 9), (made.job_id, 2, 8), (ids[0], 2, 9)):
        assert app.database.run(store.batch(made.id, job, attempt, session)) == store.BulkBatch(None)
    assert states_of(connection, ids) == {"ready"}
    assert app.database.run(store.batch(made.id, made.job_id, 2, 9)).changed == 3


async def test_an_operation_whose_job_was_cancelled_has_failed_and_can_be_retried(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    add_waiting(app, work, 3)
    made = begin_bulk(app, "job.cancel", JobFilter(task="work"))
    assert made.job_id is not None
    drive(jobs.cancel(JobFilter(ids=[made.job_id]), reason="no"), app.database.run)
    found = show_bulk(app, made.id)
    assert (found.state, found.error) == ("failed", "its job ended: no")
    drive(jobs.retry(JobFilter(ids=[made.job_id])), app.database.run)
    async with app.working({"default": 1}):
        assert (await ended_bulk(app, made.id)).done == 3


async def test_running_jobs_are_asked_to_stop_and_never_deleted(app: Sereno, connection: psycopg.Connection) -> None:
    began = asyncio.Event()

    @app.task
    async def long(ctx: Context) -> None:
        began.set()
        await asyncio.sleep(3600)

    async with app.working({"default": 3}):
        job = await long.aenqueue()
        await began.wait()
        with pytest.raises(Refused, match="is running: cancel it first"):
            begin_bulk(app, "job.delete", JobFilter(ids=[job.id]))
        delete = begin_bulk(app, "job.delete", JobFilter(task="long"))
        assert (await ended_bulk(app, delete.id)).done == 0
        cancel = begin_bulk(app, "job.cancel", JobFilter(task="long"))
        found = await ended_bulk(app, cancel.id)
        assert (found.done, found.stop_requested) == (0, 1)
        await auntil(lambda: state(connection, job.id) == "cancelled")


async def test_jobs_that_cannot_be_changed_are_left_alone_and_counted(app: Sereno, work: Any) -> None:
    ids = add_ended(app, work, 1)
    (keyed,) = add_waiting(app, work, 1, unique_key="k")
    drive(jobs.cancel(JobFilter(ids=[keyed])), app.database.run)
    add_waiting(app, work, 1, unique_key="k")
    number = begin_bulk(app, "job.retry", JobFilter(ids=[*ids, keyed])).id
    async with app.working({"default": 1}):
        found = await ended_bulk(app, number)
    assert (found.state, found.done, found.left_alone) == ("done", 1, 1)


async def test_a_filter_that_this_version_does_not_know_is_refused(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    ids = add_waiting(app, work, 3)
    number = begin_bulk(app, "job.cancel", JobFilter(task="work")).id
    connection.execute("""update sereno.bulk_operations set selection = selection || '{"moon": "full"}'""")
    async with app.working({"default": 1}):
        found = await ended_bulk(app, number)
    assert found.state == "failed"
    assert "does not know" in str(found.error)
    assert states_of(connection, ids) == {"ready"}


def test_a_change_by_filter_without_confirmation_is_refused(app: Sereno, connection: psycopg.Connection) -> None:
    with pytest.raises(Refused, match="confirm"):
        app.database.run(bulk.begin("job.cancel", JobFilter(task="work")))
    with pytest.raises(InvalidArguments, match="there is no operation 7"):
        app.database.run(bulk.stop(7))
    assert one(connection, "select count(*) from sereno.bulk_operations") == 0


@pytest.mark.slow
async def test_a_search_with_an_sql_injection_matches_only_its_text(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    """A search is stored as parameters, never as SQL."""
    ids = add_waiting(app, work, 4, tags=["a'); drop table sereno.jobs; --"])
    now = datetime.now(UTC)
    for text, done in (
        ("""tag:"x' or 1=1 --" """, 0),
        ('task:w* -args.number:0 tag:"a%"', 0),
        ("""task:w* -args.number:0 tag:"a'); drop table sereno.jobs; --" """, 3),
    ):
        number = begin_bulk(app, "job.cancel", jobs_wanted(text, now)).id
        async with app.working({"default": 1}):
            assert (await ended_bulk(app, number)).done == done
    assert states_of(connection, ids[1:]) == {"cancelled"}
    assert state(connection, ids[0]) == "ready"


async def test_operations_that_ended_long_ago_are_deleted(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    add_waiting(app, work, 1)
    done, lost, waiting = (begin_bulk(app, "job.cancel", JobFilter(task="work")) for _ in range(3))
    app.database.run(bulk.stop(done.id))
    connection.execute("delete from sereno.jobs where id = %s", [lost.job_id])
    line = ServiceConnection(app.database.url, app.settings, "test")
    try:
        for days, left in ((89, 3), (2, 1)):
            advance(connection, days * 86400)
            await do_all(line, [fires_duty(app.settings)])
            assert one(connection, "select count(*) from sereno.bulk_operations") == left
    finally:
        await line.close()
    assert show_bulk(app, waiting.id).state == "waiting"
