"""Migrations: applied once each, by any number of processes, in any schema, without blocking other clients."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import psycopg
import pytest

from sereno import DatabaseUnavailable, SchemaError, Sereno
from sereno.database import migrate as migrating
from sereno.database.migrate import Migration, check, migrate, migrations, pending
from sereno.database.statement import run
from sereno.jobs.settlement import settle
from sereno.jobs.transitions import claim
from sereno.worker.sessions import register
from tests.facts import one, until
from tests.jobs.job_steps import add, decided, settled, waits_for_a_lock, wanted


@pytest.fixture
def empty(empty_database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(empty_database_url, autocommit=True) as opened:
        yield opened


def test_an_empty_database_gets_every_migration_once(empty: psycopg.Connection) -> None:
    assert migrate(empty) == migrations()
    assert migrate(empty) == []
    assert one(empty, "select array_agg(number order by number) from sereno.migrations") == [
        migration.number for migration in migrations()
    ]
    check(empty)


def test_numbers_are_in_order_without_gaps() -> None:
    assert [migration.number for migration in migrations()] == list(range(1, len(migrations()) + 1))


@pytest.mark.slow
def test_concurrent_processes_apply_each_migration_once(empty_database_url: str) -> None:
    barrier = Barrier(4)

    def call(_: int) -> list[int]:
        with psycopg.connect(empty_database_url, autocommit=True) as own:
            barrier.wait()
            return [migration.number for migration in migrate(own)]

    with ThreadPoolExecutor(4) as threads:
        applied = [number for numbers in threads.map(call, range(4)) for number in numbers]
    assert sorted(applied) == [migration.number for migration in migrations()]


@pytest.mark.slow
def test_an_application_migrates_its_own_schema(empty_database_url: str) -> None:
    app = Sereno(empty_database_url, schema="other_app")
    with pytest.raises(SchemaError, match="no schema 'other_app'"):
        app.check_schema()
    assert app.migrate() == migrations()
    app.check_schema()
    app.close()


@pytest.mark.slow
def test_two_schemas_in_one_database_share_nothing(connection: psycopg.Connection, database_url: str) -> None:
    other = Sereno(database_url, schema="other_app")
    other.migrate()

    @other.task
    def work() -> None: ...

    add(connection)
    plain, keyed = other.enqueue_many([work.job(), work.using(unique_key="k").job()])
    connection.execute("select other_app.enqueue('work')")
    assert one(connection, "select count(*) from sereno.jobs") == 1
    assert one(connection, "select count(*) from other_app.jobs") == 3

    # Nothing in the other schema depends on this one.
    connection.execute("drop schema sereno cascade")
    registration = register(host="h", pid=1, version="0", queues={"default": 1}, tasks=["work"], lease=30)
    owner, _ = run(connection, registration, "other_app")
    held = run(connection, claim(owner, ["work"], [wanted(10)]), "other_app").jobs
    assert {plain.id, keyed.id} < {job.id for job in held}
    applied = run(connection, settle("succeed", owner, [settled(job, decided()) for job in held]), "other_app")
    assert applied == {job.id for job in held}
    assert work.using(unique_key="k").enqueue().created
    assert one(connection, "select count(*) from other_app.history") == 3
    connection.execute("select other_app.make_history_partition('2101-01-01')")
    other.close()


@pytest.mark.slow
def test_functions_of_another_schema_never_reference_this_one(empty: psycopg.Connection) -> None:
    migrate(empty, "other_app")
    references = (
        "select count(*) from pg_proc where pronamespace = 'other_app'::regnamespace and prosrc ~ '\\msereno\\.'"
    )
    assert one(empty, references) == 0


def test_an_edited_migration_is_refused(connection: psycopg.Connection) -> None:
    connection.execute("update sereno.migrations set checksum = 'edited' where number = 2")
    for act in (pending, migrate, check):
        with pytest.raises(SchemaError, match="0002_schedules differs"):
            act(connection)


def test_a_missing_and_an_older_schema_have_different_errors(
    connection: psycopg.Connection, empty: psycopg.Connection
) -> None:
    with pytest.raises(SchemaError, match=r"has no schema 'sereno'.*sereno migrate"):
        check(empty)
    connection.execute("delete from sereno.migrations where number = (select max(number) from sereno.migrations)")
    with pytest.raises(SchemaError, match=r"1 migration\(s\) behind.*sereno migrate"):
        check(connection)


def test_a_newer_schema_is_accepted(connection: psycopg.Connection) -> None:
    connection.execute("insert into sereno.migrations (number, name, checksum) values (9999, 'from_tomorrow', 'x')")
    check(connection)


MORE = Migration(9998, "more", "alter table sereno.jobs add column extra integer;\n")


def test_a_held_lock_is_retried_without_blocking_others(
    connection: psycopg.Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = migrations()
    monkeypatch.setattr(migrating, "migrations", lambda: [*known, MORE])
    monkeypatch.setattr(migrating, "LOCK_TIMEOUT", "100ms")

    def call() -> list[Migration]:
        with psycopg.connect(database_url, autocommit=True) as own:
            return migrate(own)

    with psycopg.connect(database_url) as reader, ThreadPoolExecutor(1) as threads:
        reader.execute("select count(*) from sereno.jobs")
        future = threads.submit(call)
        until(lambda: waits_for_a_lock(connection))
        add(connection, 1)
        assert not future.done()
        reader.rollback()
        assert future.result() == [MORE]
    assert one(connection, "select count(extra) from sereno.jobs") == 0


@pytest.mark.slow
def test_a_lock_that_is_never_released_ends_in_an_error(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = migrations()
    monkeypatch.setattr(migrating, "migrations", lambda: [*known, MORE])
    monkeypatch.setattr(migrating, "LOCK_TIMEOUT", "10ms")
    monkeypatch.setattr(migrating, "TRIES", 2)
    with psycopg.connect(database_url) as reader, psycopg.connect(database_url, autocommit=True) as own:
        reader.execute("select count(*) from sereno.jobs")
        with pytest.raises(DatabaseUnavailable, match=r"0*9998_more got no lock in 2 tries"):
            migrate(own)
