"""The kit for users' tests: jobs run, the clock can be advanced, and assertions can fail."""

import asyncio
import importlib
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sereno import Sereno
from sereno.testing.kit import Kit
from tests.facts import is_gone

HERE = Path(__file__).parent
SHOP = "shop_under_test"


@pytest.fixture(scope="module")
def database_url(shared_database_url: str) -> str:
    """Return one database for all tests: the kit empties its schema for each of them, and migrates it only once."""
    return shared_database_url


@pytest.fixture
def kit(database_url: str, sereno_kit: Callable[[Sereno], Kit], monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    """A fresh copy of the application for each test."""
    monkeypatch.setenv("SERENO_DATABASE_URL", database_url)
    monkeypatch.syspath_prepend(str(HERE))
    sys.modules.pop(SHOP, None)
    made = sereno_kit(shop().app)
    yield made
    made.app.close()


def shop() -> Any:
    """Return the module as this test imported it."""
    return importlib.import_module(SHOP)


@pytest.mark.slow
def test_assert_enqueued_finds_jobs_by_task_and_arguments(kit: Kit) -> None:
    shop().charge.enqueue(7)
    assert kit.assert_enqueued("charge", order=7).state == "ready"
    assert kit.assert_enqueued(shop().charge, order=7, times=1)
    kit.assert_not_enqueued(shop().charge, order=8)
    with pytest.raises(AssertionError, match=r"charge\(order=8\) was enqueued 0 times.*charge\(order=7\) ready"):
        kit.assert_enqueued("charge", order=8)
    with pytest.raises(AssertionError, match="1 times, not 2"):
        kit.assert_enqueued("charge", order=7, times=2)
    with pytest.raises(AssertionError, match=r"was enqueued: charge\(order=7\)"):
        kit.assert_not_enqueued("charge")


def test_drain_runs_ready_jobs(kit: Kit) -> None:
    job = shop().charge.enqueue(7)
    # The cycle fires, too: it is declared, and its first run is now or later.
    assert ("charge", "succeeded") in [(each.task, each.state) for each in kit.drain().jobs]
    assert kit.job(job).state == "succeeded"
    assert not kit.drain().jobs


def test_a_new_kit_finds_empty_tables_and_the_first_ids(kit: Kit, sereno_kit: Callable[[Sereno], Kit]) -> None:
    kit.app.recipients.upsert("user:7")
    shop().order_paid.notify(shop().Order(1), to="user:7")
    first = shop().charge.enqueue(7)
    kit.travel("1h")
    kit.drain()
    with psycopg.connect(kit.app.database.url, autocommit=True) as connection:

        def filled() -> set[str]:
            tables = connection.execute(
                "select relname, relid::regclass from pg_stat_user_tables where schemaname = %s",
                [kit.app.settings.schema],
            ).fetchall()
            rows = (connection.execute(f"select 1 from {full} limit 1".encode()) for _, full in tables)
            return {name for (name, _), found in zip(tables, rows, strict=True) if found.fetchone()}

        assert {"recipients", "events", "deliveries", "sessions", "clock"} < filled()
        again = sereno_kit(kit.app)
        assert filled() <= {"migrations", "duties"}
    assert abs(again.now() - datetime.now(UTC)) < timedelta(minutes=30)
    assert shop().charge.enqueue(7).id <= first.id


def test_maintenance_is_due_again_when_the_clock_has_moved(kit: Kit, sereno_kit: Callable[[Sereno], Kit]) -> None:
    with psycopg.connect(kit.app.database.url, autocommit=True) as connection:

        def done() -> dict[str, datetime]:
            kit.drain()
            query = f"select name, done_at from {kit.app.settings.schema}.duties"
            return dict(connection.execute(query.encode()).fetchall())

        # A drain may end before maintenance has begun.
        first = kit.until(done)
        sereno_kit(kit.app)
        second = done()
        assert all(second[name] > first[name] for name in first)
        assert done().items() >= second.items(), "nothing is due a moment later"
        kit.travel("1d")
        kit.until(lambda: all(at > second[name] for name, at in done().items() if name in second))


@pytest.mark.slow
def test_retries_stay_scheduled_until_they_are_due(kit: Kit) -> None:
    job = shop().charge.enqueue(13)
    assert not kit.drain().failed
    assert kit.job(job).state == "scheduled"
    before = kit.now()
    assert kit.travel_to_next() - before > timedelta(minutes=9)
    (dead,) = kit.drain().failed
    assert (dead.id, dead.error_type, dead.error_message) == (job.id, "ValueError", "no luck")
    with pytest.raises(AssertionError, match="no job is scheduled"):
        kit.travel_to_next()


def test_travel_to_next_accepts_a_job_that_is_already_due(kit: Kit) -> None:
    shop().charge.using(run_at=kit.now() + timedelta(minutes=1)).enqueue(7)
    kit.travel("2m")
    kit.travel_to_next()
    assert [job.state for job in kit.drain().jobs] == ["succeeded"]


def test_schedules_fire_after_time_travel(kit: Kit) -> None:
    kit.drain()
    before = len(kit.jobs("sweep"))
    kit.travel("1h")
    kit.drain()
    assert len(kit.jobs("sweep")) == before + 1
    assert kit.travel_to(kit.now() + timedelta(days=1)) - kit.now() < timedelta(minutes=1)
    with pytest.raises(ValueError, match="is past"):
        kit.travel_to(kit.now() - timedelta(days=1))


@pytest.mark.slow
async def test_drain_works_in_async_tests(kit: Kit) -> None:
    await shop().charge.aenqueue(7)
    assert [job.task for job in (await kit.adrain()).jobs if job.task == "charge"] == ["charge"]
    await shop().charge.aenqueue(8)
    assert "charge" in [job.task for job in kit.drain().jobs]


@pytest.mark.slow
def test_assert_delivered_finds_deliveries_by_recipient(kit: Kit) -> None:
    kit.app.recipients.upsert("user:7")
    shop().order_paid.notify(shop().Order(1), to="user:7")
    with pytest.raises(AssertionError, match="did not reach user:7"):
        kit.assert_delivered("order.paid", to="user:7")
    kit.assert_not_delivered("order.paid", to="user:7")
    kit.drain()
    assert kit.assert_delivered(shop().order_paid, to="user:7", channel="in_app").recipient == "user:7"
    with pytest.raises(AssertionError, match=r"did not reach user:8; deliveries: order\.paid to user:7 by in_app"):
        kit.assert_delivered("order.paid", to="user:8")
    with pytest.raises(AssertionError, match="was delivered"):
        kit.assert_not_delivered("order.paid", to="user:7")


def test_each_test_starts_empty(kit: Kit, sereno_kit: Callable[[Sereno], Kit]) -> None:
    shop().charge.enqueue(7)
    kit.travel("1d")
    again = sereno_kit(kit.app)
    assert not again.jobs()
    with psycopg.connect(kit.app.url) as connection:
        row = connection.execute("select now()").fetchone()
    assert row is not None
    assert abs(again.now() - row[0]) < timedelta(minutes=5)


@pytest.mark.slow
def test_connections_left_by_an_earlier_test_are_closed(kit: Kit, sereno_kit: Callable[[Sereno], Kit]) -> None:
    shop().charge.enqueue(7)
    with psycopg.connect(kit.app.url) as late, psycopg.connect(kit.app.url) as elsewhere:
        late.execute(f"select from {kit.app.settings.schema}.jobs")
        elsewhere.execute("create table ours (n int)")
        sereno_kit(kit.app).assert_not_enqueued("charge")
        with pytest.raises(psycopg.OperationalError):
            late.execute("select 1")
        elsewhere.commit()


@pytest.mark.slow
def test_session_ids_are_not_reused_by_the_next_test(kit: Kit, sereno_kit: Callable[[Sereno], Kit]) -> None:
    def sessions() -> list[int]:
        with psycopg.connect(kit.app.url, autocommit=True) as connection:
            rows = connection.execute(f"select id from {kit.app.settings.schema}.sessions".encode()).fetchall()
        return [row[0] for row in rows]

    kit.drain()
    (earlier,) = sessions()
    sereno_kit(kit.app).drain()
    (now,) = sessions()
    assert now > earlier


@pytest.mark.slow
def test_scheduled_jobs_have_the_limits_of_the_code(kit: Kit) -> None:
    """The limits hold even before a worker has run the task."""
    kit.app.schedules.synchronise()
    kit.app.schedules.tick()
    kit.travel("61m")
    kit.drain()
    (job,) = kit.jobs("sweep")
    with psycopg.connect(kit.app.url) as connection:
        found = connection.execute(
            f"select keys -> 'limits' from {kit.app.settings.schema}.history where id = %s", [job.id]
        ).fetchone()
    assert found == ([["sweeps", "", 1]],)


def test_the_kit_changes_only_its_own_schema(kit: Kit) -> None:
    shop().charge.enqueue(7)
    assert kit.app.settings.schema.startswith("sereno_test_")
    with psycopg.connect(kit.app.url) as connection:
        assert connection.execute("select count(*) from sereno.jobs").fetchone() == (0,)


@pytest.mark.slow
def test_the_job_of_a_killed_worker_runs_again(kit: Kit, tmp_path: Path) -> None:
    marker = tmp_path / "began"
    job = shop().wait_for_ever.enqueue(str(marker))
    with kit.crash_worker(f"{SHOP}:app") as worker:
        child = worker.until(lambda: marker.exists() and marker.read_text())
        assert kit.job(job).state == "running"
        worker.kill()
    for pid in (worker.pid, int(child)):
        # The system takes a moment to remove orphaned processes.
        kit.until(lambda: is_gone(pid))  # noqa: B023
    kit.lose_leases()
    kit.drain()
    found = kit.job(job)
    assert (found.state, found.attempt) == ("succeeded", 2)


@pytest.mark.slow
def test_drain_names_the_jobs_that_do_not_end(kit: Kit, tmp_path: Path) -> None:
    kit.app.override(grace=0.1)
    shop().wait_for_ever.enqueue(str(tmp_path / "began"))
    try:
        with pytest.raises(AssertionError, match=r"1 jobs are not finished after 0\.5 s: wait_for_ever"):
            kit.drain(timeout=0.5)
    finally:
        (tmp_path / "began.end").touch()


@pytest.mark.slow
def test_archived_partitions_are_recreated(kit: Kit, sereno_kit: Callable[[Sereno], Kit], tmp_path: Path) -> None:
    kit.app.override(archive_url=f"file://{tmp_path}", archive_kinds=["jobs"])
    for _ in range(2):
        shop().charge.enqueue(7)
        kit.drain()
        kit.travel("40d")
        archiver = kit.app.archive.archiver()
        assert asyncio.run(archiver.move()).days == 1
        sereno_kit(kit.app)
