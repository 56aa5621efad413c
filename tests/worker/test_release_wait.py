"""A job that this code cannot decode is left for a worker of another release, as long as there is one."""

from collections.abc import Iterator

import psycopg
import pytest

from sereno import Sereno
from sereno.jobs import transitions
from sereno.jobs.attempt import Dead, Settlement
from sereno.jobs.queries.why import why
from sereno.worker import sessions
from sereno.worker.release_wait import LEFT, LONGEST_WAIT, RESTART, SHORTEST_WAIT, decision
from tests.facts import advance, auntil, one, state
from tests.jobs.job_steps import do, tries

UNDECODABLE = "select sereno.enqueue('work', '{\"n\": \"text\"}')"
GRACE = 600.0


@pytest.fixture
def released(database_url: str) -> Iterator[Sereno]:
    """Return an application of release b with a task."""
    app = Sereno(database_url, release="b", release_grace=GRACE, poll=0.1)

    @app.task
    async def work(n: int) -> None: ...

    yield app
    app.close()


def other_worker(connection: psycopg.Connection, release: str | None, tasks: tuple[str, ...] = ("work",)) -> int:
    """Return the session of another worker, which claims nothing."""
    made, _ = do(
        connection,
        sessions.register(
            host="here", pid=1, version="0", queues={"default": 1}, tasks=tasks, lease=86400.0, release=release
        ),
    )
    return made


async def becomes(app: Sereno, connection: psycopg.Connection, job: int, expected: str) -> None:
    async with app.working():
        await auntil(lambda: state(connection, job) == expected)


def test_the_wait_grows_with_the_age_and_ends_with_the_grace() -> None:
    waits = []
    for age in (0.0, 2.0, 8.0, 40.0, 400.0, GRACE - 0.5):
        found = decision(["a"], age, GRACE, "undecodable")
        assert isinstance(found, Settlement)
        assert found.outcome == "release"
        waits.append(found.delay)
    assert waits == [SHORTEST_WAIT, SHORTEST_WAIT, 2.0, 10.0, LONGEST_WAIT, SHORTEST_WAIT]
    assert isinstance(decision(["a"], GRACE, GRACE, "undecodable"), Dead)
    assert isinstance(decision([], 0.0, GRACE, "undecodable"), Dead)


@pytest.mark.slow
async def test_it_is_left_for_another_release_without_a_failure(
    released: Sereno, connection: psycopg.Connection
) -> None:
    other_worker(connection, "a")
    job = one(connection, UNDECODABLE)
    await becomes(released, connection, job, "scheduled")
    row = connection.execute("select failures, releases, run_at > sereno.now() from sereno.jobs").fetchone()
    assert row == (0, 1, True)
    assert tries(connection, job) == [(1, "release")]
    assert f"Attempt 1 released it: {LEFT} (a): undecodable arguments" in " ".join(do(connection, why(job)))


@pytest.mark.slow
async def test_after_the_grace_it_is_a_dead_letter_and_a_retry_waits_again(
    released: Sereno, connection: psycopg.Connection
) -> None:
    other_worker(connection, "a")
    job = one(connection, UNDECODABLE)
    await becomes(released, connection, job, "scheduled")
    advance(connection, GRACE)
    await becomes(released, connection, job, "dead")
    assert str(one(connection, "select reason from sereno.history")).startswith("undecodable arguments: ")
    do(connection, transitions.requeue([job]))
    await becomes(released, connection, job, "scheduled")


@pytest.mark.slow
@pytest.mark.parametrize("others", [(), ("b",), ("b", "b")])
async def test_without_another_release_it_is_dead_at_once(
    released: Sereno, connection: psycopg.Connection, others: tuple[str, ...]
) -> None:
    for release in others:
        other_worker(connection, release)
    job = one(connection, UNDECODABLE)
    await becomes(released, connection, job, "dead")
    assert one(connection, "select attempt from sereno.history") == 1


async def test_a_worker_without_the_task_and_one_that_ended_earlier_do_not_count(
    released: Sereno, connection: psycopg.Connection
) -> None:
    other_worker(connection, "a", tasks=("other",))
    do(connection, sessions.finish([other_worker(connection, "a")], "closed"))
    advance(connection, RESTART + 1)
    job = one(connection, UNDECODABLE)
    await becomes(released, connection, job, "dead")


async def test_a_worker_that_may_be_restarting_counts(released: Sereno, connection: psycopg.Connection) -> None:
    do(connection, sessions.finish([other_worker(connection, "a")], "closed"))
    job = one(connection, UNDECODABLE)
    await becomes(released, connection, job, "scheduled")


async def test_without_the_setting_it_is_dead_at_once(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def work(n: int) -> None: ...

    other_worker(connection, "a")
    job = one(connection, UNDECODABLE)
    await becomes(app, connection, job, "dead")


@pytest.mark.slow
async def test_jobs_of_a_batch_and_of_sync_tasks_are_left_too(
    database_url: str, connection: psycopg.Connection
) -> None:
    app = Sereno(database_url, release="b", poll=0.1)

    @app.task
    def plain(n: int) -> None: ...

    @app.task(batch=2)
    async def many(items: list[int]) -> None: ...

    other_worker(connection, "a", tasks=("plain", "many"))
    jobs = [
        one(connection, "select sereno.enqueue('plain', '{\"n\": \"text\"}')"),
        one(connection, "select sereno.enqueue('many', '{\"item\": \"text\"}')"),
    ]
    many.enqueue(1)
    async with app.working():
        await auntil(lambda: [state(connection, job) for job in jobs] == ["scheduled", "scheduled"])
        await auntil(lambda: one(connection, "select count(*) from sereno.history where state = 'succeeded'") == 1)
    app.close()
