"""Jobs from a generator: written while they are generated, all or none."""

from collections.abc import Iterator

import psycopg
import pytest

from sereno import DuplicateJob, InvalidArguments, Sereno
from sereno.jobs.enqueue_stream import CHUNK
from sereno.jobs.job import NewJob
from tests.facts import one

MANY = CHUNK * 3 + 1


def test_ids_of_a_generator_are_returned_in_the_order_of_the_jobs(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work(number: int) -> None: ...

    made = app.enqueue_many(work.job(number) for number in range(MANY))

    found = connection.execute("select id, (args ->> 'number')::integer from sereno.jobs").fetchall()
    stored: dict[int, int] = dict(found)
    assert [stored[job.id] for job in made] == list(range(MANY))
    assert one(connection, "select count(distinct xmin::text) from sereno.jobs") == 1


async def test_a_generator_is_written_in_async_code(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work(number: int) -> None: ...

    made = await app.aenqueue_many(work.job(number) for number in range(MANY))

    assert len({job.id for job in made}) == MANY == one(connection, "select count(*) from sereno.jobs")
    await app.aclose()


def test_a_refused_job_at_the_end_rolls_back_all_before_it(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work(number: int) -> None: ...

    def jobs() -> Iterator[NewJob]:
        yield from (work.job(number) for number in range(MANY))
        yield work.job("seven")  # type: ignore[arg-type]  # the point of the test

    with pytest.raises(InvalidArguments):
        app.enqueue_many(jobs())
    assert one(connection, "select count(*) from sereno.jobs") == 0
    assert work.enqueue(1).created, "the connection is usable for the next call"


@pytest.mark.slow
def test_a_conflict_that_raises_rolls_back_all(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work(number: int) -> None: ...

    work.using(unique_key="taken").enqueue(0)

    def jobs() -> Iterator[NewJob]:
        yield work.using(unique_key="taken", on_conflict="raise").job(1)
        yield from (work.job(number) for number in range(MANY))

    with pytest.raises(DuplicateJob):
        app.enqueue_many(jobs())
    assert one(connection, "select count(*) from sereno.jobs") == 1


def test_a_generator_is_written_in_the_callers_transaction(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work(number: int) -> None: ...

    with connection.transaction(force_rollback=True):
        assert len(app.enqueue_many((work.job(number) for number in range(10)), connection)) == 10
    assert one(connection, "select count(*) from sereno.jobs") == 0


def test_an_empty_generator_writes_nothing(app: Sereno) -> None:
    assert app.enqueue_many(iter([])) == []
