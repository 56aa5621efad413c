"""Suspects and isolated jobs beside others: limited processes, a share of the slots, and the crash limit."""

import asyncio
from pathlib import Path

import msgspec
import psycopg
import pytest

from sereno import Context, Limit, Sereno
from sereno.jobs.job import ClaimedJob
from sereno.jobs.task import define
from sereno.worker.claiming import slots
from sereno.worker.isolation.pool import runs_alone
from sereno.worker.isolation.slots import IsolationSlots
from tests.facts import advance, auntil, one, state
from tests.worker.isolation import isolated_tasks


class Mailer:
    def send(self) -> None: ...


def job(number: int, crashes: int = 0, queue: str = "default") -> ClaimedJob:
    return ClaimedJob(number, 1, "work", queue, 5, 1, None, msgspec.Raw(b"{}"), 0.0, 0.0, crashes=crashes)


def test_a_suspect_whose_task_is_a_method_runs_in_the_worker() -> None:
    """Another process has no such object to call."""
    bound = define(Mailer().send, context=Context, name="send")
    assert not runs_alone(bound, job(1, crashes=1))
    assert runs_alone(define(isolated_tasks.adopt, context=Context, name="adopt"), job(1, crashes=1))


def test_isolated_processes_are_limited() -> None:
    isolated = IsolationSlots(2)
    for number in (1, 2):
        assert isolated.admits(job(number), 20)
        isolated.begin(job(number))
    assert not isolated.admits(job(3), 20)
    assert isolated.free == 0
    assert isolated.end(1)
    assert not isolated.end(1)
    assert isolated.admits(job(3), 20)


def test_suspects_get_half_of_the_slots_of_their_queue_and_at_least_one() -> None:
    isolated = IsolationSlots(4)
    isolated.begin(job(1, crashes=1, queue="small"))
    assert not isolated.admits(job(2, crashes=1, queue="small"), 3)
    assert isolated.admits(job(2, crashes=1, queue="small"), 4)
    assert isolated.admits(job(2, queue="small"), 3), "no suspect"
    assert isolated.admits(job(2, crashes=1, queue="other"), 1)


def test_a_suspect_before_its_last_crash_runs_without_other_suspects() -> None:
    isolated = IsolationSlots(4)
    isolated.begin(job(1, crashes=1))
    assert not isolated.admits(job(2, crashes=2), 20)
    isolated.end(1)
    isolated.begin(job(3))
    assert isolated.admits(job(2, crashes=2), 20)
    isolated.begin(job(2, crashes=2))
    assert not isolated.admits(job(1, crashes=1), 20)
    assert not isolated.admits(job(4, crashes=2), 20)
    assert isolated.admits(job(4), 20)


@pytest.fixture
def one_process(database_url: str) -> Sereno:
    """Return an application with one isolated process at a time."""
    app = Sereno(database_url, isolated_processes=1)
    isolated_tasks.adopt(app)
    return app


@pytest.mark.slow
async def test_ordinary_jobs_run_while_suspects_wait(
    one_process: Sereno, connection: psycopg.Connection, tmp_path: Path
) -> None:
    """There are more suspects than slots, the first does not end, and other jobs wait behind them in the queue."""
    release = tmp_path / "release"
    suspects = await one_process.aenqueue_many([isolated_tasks.waits_for_a_file.job(str(release)) for _ in range(6)])
    connection.execute("update sereno.jobs set crashes = 1")
    others = await one_process.aenqueue_many([isolated_tasks.innocent.job(n) for n in range(30)])
    async with one_process.working({"default": 2}):
        await auntil(lambda: all(state(connection, job.id) == "succeeded" for job in others))
        running = "select count(*) from sereno.jobs where crashes = 1 and state in ('running', 'ready')"
        assert one(connection, running) == len(suspects)
        assert one(connection, "select count(*) from jsonb_object_keys((select suspects from sereno.sessions))") == 1
        release.touch()
        await auntil(lambda: all(state(connection, job.id) == "succeeded" for job in suspects))
    assert one(connection, "select max(attempt) from sereno.history") == 1
    await one_process.aclose()


@pytest.mark.slow
async def test_a_job_that_waits_too_long_for_a_process_is_released(
    one_process: Sereno, connection: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "ASIDE_SECONDS", 0.1)
    monkeypatch.setattr("sereno.worker.claiming.claimer.ASIDE_SECONDS", 0.1)
    release = tmp_path / "release"
    await one_process.aenqueue_many([isolated_tasks.waits_for_a_file.job(str(release)) for _ in range(2)])
    connection.execute("update sereno.jobs set crashes = 1")
    async with one_process.working({"default": 4}):
        await auntil(lambda: (one(connection, "select sum(releases) from sereno.jobs") or 0) > 0)
        assert one(connection, "select count(*) from sereno.jobs where state = 'running' and releases = 0") == 1
        release.touch()
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 2)
    assert one(connection, "select max(crashes) + max(failures) from sereno.history") == 1
    await one_process.aclose()


@pytest.mark.slow
async def test_a_worker_claims_no_isolated_jobs_that_it_cannot_start(
    one_process: Sereno, connection: psycopg.Connection, tmp_path: Path
) -> None:
    release = tmp_path / "release"
    (first,) = await one_process.aenqueue_many([isolated_tasks.waits_alone.job(str(release))])
    async with one_process.working({"default": 5}):
        await auntil(lambda: state(connection, first.id) == "running")
        more = await one_process.aenqueue_many([isolated_tasks.waits_alone.job(str(release)) for _ in range(3)])
        (other,) = await one_process.aenqueue_many([isolated_tasks.innocent.job(1)])
        await auntil(lambda: state(connection, other.id) == "succeeded")
        assert {state(connection, job.id) for job in more} == {"ready"}, "another worker could claim them"
        release.touch()
        await auntil(lambda: all(state(connection, job.id) == "succeeded" for job in [first, *more]))
    await one_process.aclose()


@pytest.mark.slow
async def test_a_queue_of_isolated_tasks_claims_only_what_can_start(
    database_url: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    app = Sereno(database_url, isolated_processes=2)
    isolated_tasks.adopt(app)
    release = tmp_path / "release"
    jobs = await app.aenqueue_many([isolated_tasks.waits_apart.job(str(release)) for _ in range(5)])
    async with app.working({"apart": 10}):
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs where state = 'running'") == 2)
        assert one(connection, "select sum(attempt) from sereno.jobs") == 2
        release.touch()
        await auntil(lambda: all(state(connection, job.id) == "succeeded" for job in jobs))
    assert one(connection, "select max(attempt) from sereno.history") == 1
    await app.aclose()


@pytest.mark.slow
async def test_a_session_reports_its_jobs_that_have_not_started(app: Sereno, connection: psycopg.Connection) -> None:
    release = asyncio.Event()

    @app.task
    async def slow() -> None:
        await release.wait()

    @app.task(batch=10)
    async def many(numbers: list[int]) -> None: ...

    first, *rest = await app.aenqueue_many([slow.job() for _ in range(4)])
    async with app.working({"default": 1}):
        await auntil(lambda: one(connection, "select cardinality(waiting) from sereno.sessions") == 3)
        assert sorted(one(connection, "select waiting from sereno.sessions")) == [job.id for job in rest]
        assert state(connection, first.id) == "running"
        release.set()
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 4)


@pytest.mark.slow
async def test_a_job_at_the_crash_limit_is_dead_without_running(
    one_process: Sereno, connection: psycopg.Connection, tmp_path: Path
) -> None:
    (job,) = await one_process.aenqueue_many([isolated_tasks.writes_its_pid.job(str(tmp_path / "number"))])
    connection.execute("update sereno.jobs set crashes = 3")
    async with one_process.working():
        await auntil(lambda: state(connection, job.id) == "dead")
    assert connection.execute("select crashes, failures, reason from sereno.history").fetchone() == (
        3,
        0,
        "crash loop: its worker died while it ran alone, 3 times",
    )
    assert not (tmp_path / "number").exists()
    await one_process.aclose()


@pytest.mark.slow
async def test_a_released_suspect_is_not_claimed_again_before_its_delay(
    one_process: Sereno, connection: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the same worker would claim and release it in an endless loop."""
    monkeypatch.setattr(slots, "ASIDE_SECONDS", 0.1)
    monkeypatch.setattr("sereno.worker.claiming.claimer.ASIDE_SECONDS", 3600.0)
    release = tmp_path / "release"
    await one_process.aenqueue_many([isolated_tasks.waits_for_a_file.job(str(release)) for _ in range(2)])
    connection.execute("update sereno.jobs set crashes = 1")
    async with one_process.working({"default": 4}):
        await auntil(lambda: one(connection, "select state from sereno.jobs where releases = 1") == "scheduled")
        wait = one(connection, "select extract(epoch from run_at - sereno.now()) from sereno.jobs where releases = 1")
        assert wait > 3000
        release.touch()
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 1)
        advance(connection, 7300)
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 2)
    await one_process.aclose()


def test_free_for_counts_the_jobs_that_could_start() -> None:
    isolated = IsolationSlots(3)
    assert isolated.free_for(["alone"], {"a": 20, "b": 1}) == (["alone"], 3, {"a": 10, "b": 1}, 2)
    isolated.begin(job(1, crashes=1, queue="b"))
    assert isolated.free_for([], {"a": 20, "b": 1}) == ([], 2, {"a": 10, "b": 0}, 1)
    isolated.end(1)
    isolated.begin(job(2, crashes=2, queue="b"))
    assert isolated.free_for([], {"a": 20, "b": 1}) == ([], 2, {"a": 0, "b": 0}, 2)


@pytest.mark.slow
async def test_a_limited_suspect_is_not_claimed_before_it_can_start(
    one_process: Sereno, connection: psycopg.Connection, tmp_path: Path
) -> None:
    """It would take a slot of its key from jobs that could run."""
    release = tmp_path / "release"
    (first,) = await one_process.aenqueue_many([isolated_tasks.waits_for_a_file.job(str(release))])
    connection.execute("update sereno.jobs set crashes = 1")
    limited = isolated_tasks.innocent.using(concurrency=Limit(2, name="pair"))
    async with one_process.working({"default": 8}):
        await auntil(lambda: one(connection, "select suspects <> '{}' from sereno.sessions"))
        with connection.transaction():
            suspects = one_process.enqueue_many([limited.job(n) for n in range(6)], connection=connection)
            connection.execute("update sereno.jobs set crashes = 1 where state = 'ready'")
        others = await one_process.aenqueue_many([limited.job(n) for n in range(6)])
        await auntil(lambda: all(state(connection, job.id) == "succeeded" for job in others))
        assert {state(connection, job.id) for job in suspects} == {"ready"}
        release.touch()
        await auntil(lambda: all(state(connection, job.id) == "succeeded" for job in [first, *suspects]))
    assert one(connection, "select max(attempt) from sereno.history") == 1
    await one_process.aclose()
