"""When a session dies, its jobs get a crash counted, become suspects, or are released unchanged."""

from collections.abc import Callable, Iterator

import pytest

from sereno.worker import sessions
from tests.facts import one
from tests.jobs.job_steps import Connection, add, do, line, past, row, session, take, tries
from tests.jobs.public_sql.sql_worker import SqlWorker

Rescue = Callable[[Connection], object]
RESCUES: dict[str, Rescue] = {
    "by a worker in Python": lambda connection: do(connection, sessions.rescue()),
    "by a heartbeat in SQL": lambda connection: connection.execute("select sereno.release_lost_jobs()").fetchall(),
}


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with line(database_url) as opened:
        yield opened


@pytest.fixture(params=RESCUES)
def rescue(request: pytest.FixtureRequest) -> Rescue:
    return RESCUES[request.param]


def die(connection: Connection, owner: int, rescue: Rescue) -> None:
    do(connection, sessions.finish([owner], "dead"))
    rescue(connection)


def counts(connection: Connection, job_id: int) -> tuple[object, ...]:
    found = row(connection, job_id)
    return found["state"], found["crashes"], found["releases"]


def test_a_crash_is_counted_for_a_suspect_that_ran_alone_when_its_session_dies(
    connection: Connection, rescue: Rescue
) -> None:
    (id_,) = add(connection)
    for crashes in (1, 2, 3):
        owner = session(connection)
        (job,) = take(connection, owner)
        if job.crashes:
            assert do(connection, sessions.announce(owner, {job.id: job.attempt}))
        die(connection, owner, rescue)
        assert counts(connection, id_) == ("ready", crashes, 0)
    assert tries(connection, id_) == [(1, "crash"), (2, "crash"), (3, "crash")]
    reasons = connection.execute("select reason like '%% while it ran alone' from sereno.attempts order by number")
    assert [ran_alone for (ran_alone,) in reasons] == [False, True, True]


def test_no_crash_is_counted_for_a_suspect_that_had_not_started(connection: Connection, rescue: Rescue) -> None:
    began, waits, announced_before = add(connection, 3)
    connection.execute("update sereno.jobs set crashes = 1")
    owner = session(connection)
    attempts = {job.id: job.attempt for job in take(connection, owner)}
    suspects = {began: attempts[began], announced_before: attempts[announced_before] - 1}
    do(connection, sessions.announce(owner, suspects))
    do(connection, sessions.report(owner, {}, list(attempts), [waits]))
    die(connection, owner, rescue)
    assert counts(connection, began) == ("ready", 2, 0)
    assert counts(connection, waits) == ("ready", 1, 1)
    assert counts(connection, announced_before) == ("ready", 1, 0), "that was another attempt"


def test_jobs_that_were_only_claimed_ahead_are_no_suspects(connection: Connection, rescue: Rescue) -> None:
    began, waits = add(connection, 2)
    owner = session(connection)
    take(connection, owner)
    do(connection, sessions.report(owner, {}, [began, waits], [waits]))
    die(connection, owner, rescue)
    assert counts(connection, began) == ("ready", 1, 0)
    assert counts(connection, waits) == ("ready", 0, 1)
    assert tries(connection, waits) == [(1, "release")]
    assert one(connection, "select reason from sereno.attempts where job_id = %s", waits) == (
        f"its worker session {owner} died before it began"
    )


def test_a_job_whose_sessions_die_twice_before_it_starts_is_a_suspect(connection: Connection, rescue: Rescue) -> None:
    """It may have started since the last report of its session; else a job that kills at once would never stop."""
    (id_,) = add(connection)
    for crashes in (0, 1):
        owner = session(connection)
        take(connection, owner)
        do(connection, sessions.report(owner, {}, [id_], [id_]))
        die(connection, owner, rescue)
        assert row(connection, id_)["crashes"] == crashes


def test_an_ended_session_announces_nothing(connection: Connection) -> None:
    owner = session(connection)
    do(connection, sessions.finish([owner], "dead"))
    assert not do(connection, sessions.announce(owner, {1: 1}))


def test_a_crash_is_counted_for_the_only_suspect_of_a_worker_in_another_language(
    connection: Connection, rescue: Rescue
) -> None:
    """It announces nothing: a suspect that was its only job gets a crash counted."""
    (id_,) = add(connection)
    for crashes in (1, 2, 3):
        worker = SqlWorker(connection)
        (job,) = worker.claim()
        assert (job.id, job.crashes) == (id_, crashes - 1)
        die(connection, worker.session, rescue)
        assert counts(connection, id_) == ("ready", crashes, 0)
    assert SqlWorker(connection).claim() == [], "it is not claimed again"
    found = past(connection, id_)
    assert (found["state"], found["crashes"]) == ("dead", 3)
    assert found["reason"] == "crash loop: its worker died while it ran alone, 3 times"


def test_jobs_that_run_together_in_another_language_get_one_crash_for_several_deaths(
    connection: Connection, rescue: Rescue
) -> None:
    ids = add(connection, 2)
    for _ in range(4):
        worker = SqlWorker(connection)
        assert len(worker.claim(2)) == 2
        die(connection, worker.session, rescue)
    assert [counts(connection, id_) for id_ in ids] == [("ready", 1, 0)] * 2
