"""What a bulk operation promises: each job once, at its rate, only what was there, and it can be stopped."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sereno import Context, Sereno
from sereno.errors import InvalidArguments, Refused
from sereno.operations import bulk, jobs
from sereno.operations.plan import carry_out
from sereno.operations.search import jobs_wanted
from sereno.store import bulk as store
from sereno.store.bulk import BulkOperation
from sereno.store.filters import JobFilter
from tests.acceptance.conftest import WorkerProcess
from tests.facts import advance, auntil, one, state, until


@pytest.fixture
def work(app: Sereno) -> Any:
    @app.task(queue="elsewhere")
    def work(number: int) -> None: ...

    return work


def _waiting(app: Sereno, work: Any, count: int, **options: Any) -> list[int]:
    return [job.id for job in app.enqueue_many([work.using(**options).job(number) for number in range(count)])]


def _ended(app: Sereno, work: Any, count: int) -> list[int]:
    ids = _waiting(app, work, count)
    carry_out(app.database, jobs.cancel(JobFilter(ids=ids), reason="before"))
    return ids


def _begin(app: Sereno, action: Any, wanted: JobFilter, **options: Any) -> BulkOperation:
    return app.database.run(bulk.begin(action, wanted, yes=True, actor="ann", **options))


def _look(app: Sereno, number: int) -> BulkOperation:
    found = app.database.run(bulk.show(number))
    assert found is not None
    return found


async def _over(app: Sereno, number: int) -> BulkOperation:
    await auntil(lambda: _look(app, number).is_over)
    return _look(app, number)


def _states(connection: psycopg.Connection, ids: Sequence[int]) -> set[str | None]:
    return {state(connection, number) for number in ids}


async def test_jobs_are_retried_cancelled_and_deleted(app: Sereno, work: Any, connection: psycopg.Connection) -> None:
    ids = _ended(app, work, 2500)
    retry = _begin(app, "job.retry", JobFilter(task="work"))
    assert (retry.state, retry.waits_for) == ("waiting", "a worker")
    async with app.working({"default": 2}):
        ended = await _over(app, retry.id)
        assert (ended.state, ended.done, ended.left_alone, ended.error) == ("done", 2500, 0, None)
        assert one(connection, "select count(*) from sereno.jobs where task = 'work' and state = 'ready'") == 2500
        cancel = _begin(app, "job.cancel", JobFilter(ids=ids[:10]), reason="enough")
        assert cancel.waits_for is None
        assert (await _over(app, cancel.id)).done == 10
        assert one(connection, "select reason from sereno.history where id = %s", ids[0]) == "enough"
        delete = _begin(app, "job.delete", JobFilter(task="work", states=["cancelled"]))
        assert (await _over(app, delete.id)).done == 10
    assert _states(connection, ids[:10]) == {None}
    noted = connection.execute(
        "select action, actor, (detail->>'count')::int, (detail->>'operation')::bigint from sereno.audit "
        "where action in ('job.retry', 'job.cancel', 'job.delete') and actor = 'ann' order by id"
    ).fetchall()
    assert noted == [
        *[("job.retry", "ann", count, retry.id) for count in (1000, 1000, 500)],
        ("job.cancel", "ann", 10, cancel.id),
        ("job.delete", "ann", 10, delete.id),
    ]


async def test_a_filter_that_matches_nothing_is_done_at_once(app: Sereno, work: Any) -> None:
    _waiting(app, work, 3)
    for wanted in (JobFilter(task="nobody"), JobFilter(ids=[]), JobFilter(ids=[-5, 2**62]), JobFilter(states=["odd"])):
        number = _begin(app, "job.cancel", wanted).id
        async with app.working({"default": 1}):
            found = await _over(app, number)
        assert (found.state, found.done, found.left_alone) == ("done", 0, 0)


async def test_what_comes_later_is_left_alone(app: Sereno, work: Any, connection: psycopg.Connection) -> None:
    there, running = _waiting(app, work, 5), _waiting(app, work, 1)
    cancel = _begin(app, "job.cancel", JobFilter(task="work"))
    retry = _begin(app, "job.retry", JobFilter(ids=running))
    later = _waiting(app, work, 5)
    # It ends after it was asked to be retried.
    carry_out(app.database, jobs.cancel(JobFilter(ids=running)))
    async with app.working({"default": 1}):
        assert (await _over(app, cancel.id)).done == 5
        assert (await _over(app, retry.id)).done == 0
    assert _states(connection, there) == {"cancelled"}
    assert _states(connection, later) == {"ready"}
    assert _states(connection, running) == {"cancelled"}


async def test_the_rate_is_kept_also_by_another_worker(app: Sereno, work: Any, connection: psycopg.Connection) -> None:
    """By the database's clock: in no stretch of time more than the rate allows, and one batch."""
    _ended(app, work, 60)
    number = _begin(app, "job.retry", JobFilter(task="work"), rate=20).id
    batch = 10
    for share in (1, 30):
        async with app.working({"default": 1}):
            await auntil(lambda: _look(app, number).done >= share)  # noqa: B023 - awaited here
    # What was not done while nobody worked is not caught up.
    advance(connection, 3600)
    before = _look(app, number).done
    async with app.working({"default": 1}):
        assert (await _over(app, number)).done == 60
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


def test_another_goes_on_when_its_worker_is_killed(
    app: Sereno, work: Any, connection: psycopg.Connection, database_url: str, tmp_path: Path
) -> None:
    ids = _waiting(app, work, 200)
    number = _begin(app, "job.cancel", JobFilter(task="work"), rate=40).id
    workers = []
    try:
        workers.append(WorkerProcess(database_url, tmp_path / "handlers"))
        until(lambda: _look(app, number).done > 0)
        workers[0].kill()
        killed = _look(app, number)
        assert (killed.state, killed.finished_at) == ("running", None)
        assert killed.done < 200
        workers.append(WorkerProcess(database_url, tmp_path / "handlers"))
        until(lambda: _look(app, number).is_over)
    finally:
        for worker in workers:
            worker.kill()
    found = _look(app, number)
    assert (found.state, found.done, found.left_alone) == ("done", 200, 0)
    noted = connection.execute("select detail->'ids' from sereno.audit where action = 'job.cancel'").fetchall()
    assert sorted(each for (batch,) in noted for each in batch) == ids


async def test_it_is_stopped_in_the_middle(app: Sereno, work: Any, connection: psycopg.Connection) -> None:
    ids = _waiting(app, work, 500)
    number = _begin(app, "job.cancel", JobFilter(task="work"), rate=10).id
    async with app.working({"default": 1}):
        await auntil(lambda: _look(app, number).done > 0)
        app.database.run(bulk.stop(number, actor="bob"))
        found = await _over(app, number)
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs where task = %s", store.TASK) == 0)
    assert (found.state, found.stop_asked_by) == ("stopped", "bob")
    assert found.stop_asked_at is not None
    assert found.finished_at is not None
    assert (found.finished_at - found.stop_asked_at).total_seconds() < 1
    assert 0 < found.done < 500
    assert one(connection, "select count(*) from sereno.history where id = any(%s)", ids) == found.done
    with pytest.raises(Refused, match="is over: it is stopped"):
        app.database.run(bulk.stop(number))


async def test_one_that_nobody_has_begun_stops_at_once(app: Sereno, work: Any, connection: psycopg.Connection) -> None:
    ids = _waiting(app, work, 3)
    number = _begin(app, "job.cancel", JobFilter(task="work")).id
    assert app.database.run(bulk.stop(number)).state == "stopped"
    async with app.working({"default": 1}):
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs where task = %s", store.TASK) == 0)
    assert _states(connection, ids) == {"ready"}


async def test_a_worker_that_stops_leaves_it_to_another(app: Sereno, work: Any) -> None:
    _waiting(app, work, 40)
    number = _begin(app, "job.cancel", JobFilter(task="work"), rate=20).id
    async with app.working({"default": 1}):
        await auntil(lambda: _look(app, number).done > 0)
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < app.settings.grace
    assert _look(app, number).waits_for == "a worker"
    async with app.working({"default": 1}):
        assert (await _over(app, number)).done == 40


async def test_a_worker_of_other_queues_takes_over(app: Sereno, work: Any) -> None:
    _waiting(app, work, 3)
    number = _begin(app, "job.cancel", JobFilter(task="work")).id
    async with app.working({"mail": 1}):
        assert (await _over(app, number)).done == 3


async def test_it_goes_where_there_is_room(app: Sereno, work: Any, connection: psycopg.Connection) -> None:
    asked = "select queue from sereno.jobs where task = %s order by id desc"
    async with app.working({"small": 1, "wide": 5}):
        connection.execute("insert into sereno.pauses (kind, name, paused_by) values ('task', %s, 'x')", [store.TASK])
        _begin(app, "job.cancel", JobFilter(task="work"))
        assert one(connection, asked, store.TASK) == "wide"
        connection.execute("insert into sereno.pauses (kind, name, paused_by) values ('queue', 'wide', 'x')")
        _begin(app, "job.cancel", JobFilter(task="work"))
        assert one(connection, asked, store.TASK) == "small"


async def test_an_attempt_that_lost_its_claim_changes_nothing(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    ids = _waiting(app, work, 3)
    made = _begin(app, "job.cancel", JobFilter(task="work"))
    assert made.job_id is not None
    assert app.database.run(store.batch(made.id, made.job_id, 1, 1)) == store.Batch(None)
    connection.execute(
        "update sereno.jobs set state = 'running', attempt = 2, session_id = 9 where id = %s", [made.job_id]
    )
    for job, attempt, session in ((made.job_id, 1, 9), (made.job_id, 2, 8), (ids[0], 2, 9)):
        assert app.database.run(store.batch(made.id, job, attempt, session)) == store.Batch(None)
    assert _states(connection, ids) == {"ready"}
    assert app.database.run(store.batch(made.id, made.job_id, 2, 9)).changed == 3


async def test_a_job_that_was_ended_by_somebody_is_a_failure_that_can_be_mended(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    _waiting(app, work, 3)
    made = _begin(app, "job.cancel", JobFilter(task="work"))
    assert made.job_id is not None
    carry_out(app.database, jobs.cancel(JobFilter(ids=[made.job_id]), reason="no"))
    found = _look(app, made.id)
    assert (found.state, found.error) == ("failed", "its job ended: no")
    carry_out(app.database, jobs.retry(JobFilter(ids=[made.job_id])))
    async with app.working({"default": 1}):
        assert (await _over(app, made.id)).done == 3


async def test_running_jobs_are_asked_to_stop_and_deleted_never(app: Sereno, connection: psycopg.Connection) -> None:
    began = asyncio.Event()

    @app.task
    async def long(ctx: Context) -> None:
        began.set()
        await asyncio.sleep(3600)

    async with app.working({"default": 3}):
        job = await long.aenqueue()
        await began.wait()
        with pytest.raises(Refused, match="is running: cancel it first"):
            _begin(app, "job.delete", JobFilter(ids=[job.id]))
        delete = _begin(app, "job.delete", JobFilter(task="long"))
        assert (await _over(app, delete.id)).done == 0
        cancel = _begin(app, "job.cancel", JobFilter(task="long"))
        found = await _over(app, cancel.id)
        assert (found.done, found.asked_to_stop) == (0, 1)
        await auntil(lambda: state(connection, job.id) == "cancelled")


async def test_what_cannot_be_changed_is_left_alone_and_counted(app: Sereno, work: Any) -> None:
    ids = _ended(app, work, 1)
    (kept,) = _waiting(app, work, 1, unique_key="k")
    carry_out(app.database, jobs.cancel(JobFilter(ids=[kept])))
    _waiting(app, work, 1, unique_key="k")
    number = _begin(app, "job.retry", JobFilter(ids=[*ids, kept])).id
    async with app.working({"default": 1}):
        found = await _over(app, number)
    assert (found.state, found.done, found.left_alone) == ("done", 1, 1)


async def test_a_filter_that_this_version_does_not_know_is_refused(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    ids = _waiting(app, work, 3)
    number = _begin(app, "job.cancel", JobFilter(task="work")).id
    connection.execute("""update sereno.bulk_operations set look = look || '{"moon": "full"}'""")
    async with app.working({"default": 1}):
        found = await _over(app, number)
    assert found.state == "failed"
    assert "does not know" in str(found.error)
    assert _states(connection, ids) == {"ready"}


def test_what_a_filter_finds_must_be_confirmed(app: Sereno, connection: psycopg.Connection) -> None:
    with pytest.raises(Refused, match="confirm"):
        app.database.run(bulk.begin("job.cancel", JobFilter(task="work")))
    with pytest.raises(InvalidArguments, match="there is no operation 7"):
        app.database.run(bulk.stop(7))
    assert one(connection, "select count(*) from sereno.bulk_operations") == 0


async def test_a_search_keeps_its_meaning(app: Sereno, work: Any, connection: psycopg.Connection) -> None:
    """What is kept of it is parameters, never SQL: hostile words find nothing."""
    ids = _waiting(app, work, 4, tags=["a'); drop table sereno.jobs; --"])
    now = datetime.now(UTC)
    for text, done in (
        ("""tag:"x' or 1=1 --" """, 0),
        ('task:w* -args.number:0 tag:"a%"', 0),
        ("""task:w* -args.number:0 tag:"a'); drop table sereno.jobs; --" """, 3),
    ):
        number = _begin(app, "job.cancel", jobs_wanted(text, now)).id
        async with app.working({"default": 1}):
            assert (await _over(app, number)).done == done
    assert _states(connection, ids[1:]) == {"cancelled"}
    assert state(connection, ids[0]) == "ready"
