"""A database that is given to the next test has the state of a new one."""

from collections.abc import Callable, Iterator

import psycopg
import pytest

from sereno import Sereno
from tests.databases import DatabasePool
from tests.facts import advance, one

CHANGES = (
    "create table public.effects (n bigint)",
    "drop function sereno.enqueue_keyed",
    "alter table sereno.jobs add column extra int",
    "grant select on sereno.jobs to public",
    "grant usage on schema sereno to public",
    "create index on sereno.jobs (queue, id)",
    "alter table sereno.jobs disable trigger all",
    "do $$ begin execute format('alter database %I set work_mem = ''8MB''', current_database()); end $$",
    "truncate sereno.jobs",
    "analyze sereno.jobs",
    "delete from sereno.migrations where number = 1",
    "update sereno.migrations set checksum = ''",
    "insert into sereno.logs (at, level, event, message) select now(), 'info', '', '' from generate_series(1, 6000)",
)


@pytest.fixture
def pool(server_url: str) -> Iterator[DatabasePool]:
    opened = DatabasePool(server_url)
    yield opened
    opened.close()


@pytest.mark.slow
def test_rows_sequences_and_the_clock_are_reset(pool: DatabasePool, template_of_today: Callable[[], str]) -> None:
    for _ in range(3):
        database = pool.take(template_of_today())
        app = Sereno(database.url)

        @app.task(name="greet")
        def greet(name: str) -> None:
            """Never runs here."""

        with psycopg.connect(database.url, autocommit=True) as connection:
            assert greet.enqueue("Ada").id == 1
            assert one(connection, "select count(*) from sereno.jobs") == 1
            assert one(connection, "select sum(n_tup_ins + n_tup_del + n_dead_tup) from pg_stat_user_tables") == 0
            assert one(connection, "select abs(extract(epoch from sereno.now() - now())) < 1")
            advance(connection, 3600)
        app.close()
        pool.give_back(database)
        assert pool.take(template_of_today()) is database
        pool.give_back(database)


@pytest.mark.slow
def test_a_changed_database_is_not_used_again(
    pool: DatabasePool, template_of_today: Callable[[], str], subtests: pytest.Subtests
) -> None:
    for change in CHANGES:
        with subtests.test(change=change):
            database = pool.take(template_of_today())
            with psycopg.connect(database.url, autocommit=True) as connection:
                connection.execute(change.encode())
            pool.give_back(database)
            assert pool.take(template_of_today()) is not database


def test_a_connection_that_is_left_open_is_closed(pool: DatabasePool, template_of_today: Callable[[], str]) -> None:
    database = pool.take(template_of_today())
    left = psycopg.connect(database.url)
    left.execute("select 1")
    pool.give_back(database)
    with pytest.raises(psycopg.OperationalError):
        left.execute("select 1")
