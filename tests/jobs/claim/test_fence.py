"""The fence: no write of a session that does not hold the attempt changes anything."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sereno import Cancel, Dead, LeaseLost, Retry, Snooze
from sereno.jobs.attempt import CrashedAttempt, Ending, ReleasedAttempt
from sereno.jobs.job import ClaimedJob
from sereno.jobs.settlement import keep_step, report_progress, settled_before
from sereno.worker import sessions
from tests.facts import one
from tests.jobs.job_steps import Connection, add, decided, do, end, line, session, settled, take_one

Write = Callable[[Connection, int, ClaimedJob], bool]


def settles(ending: Ending, *, keep_history: bool = True) -> Write:
    def write(connection: Connection, owner: int, job: ClaimedJob) -> bool:
        return bool(end(connection, owner, [job], decided(ending), keep_history=keep_history))

    return write


def keeps_step(connection: Connection, owner: int, job: ClaimedJob) -> bool:
    try:
        do(connection, keep_step(owner, job.id, job.attempt, "step", b"1"))
    except LeaseLost:
        return False
    return True


def reports_progress(connection: Connection, owner: int, job: ClaimedJob) -> bool:
    return do(connection, report_progress(owner, job.id, job.attempt, 0.5, "half"))


WRITES: dict[str, Write] = {
    "succeed": settles(None),
    "forget": settles(None, keep_history=False),
    "bury as dead": settles(Dead("no")),
    "bury as cancelled": settles(Cancel("no")),
    "retry": settles(Retry("again")),
    "snooze": settles(Snooze("1m")),
    "release": settles(ReleasedAttempt("shutdown")),
    "crash": settles(CrashedAttempt("killed")),
    "keep_step": keeps_step,
    "report_progress": reports_progress,
}
SETTLES = {name: write for name, write in WRITES.items() if name not in ("keep_step", "report_progress")}

TABLES = ("jobs", "history", "attempts", "steps", "progress")


def everything(connection: Connection) -> dict[str, list[Any]]:
    """Return the whole state, for comparison."""
    return {
        table: connection.execute(f"select to_jsonb(t) from sereno.{table} as t order by t::text".encode()).fetchall()
        for table in TABLES
    }


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with line(database_url) as opened:
        yield opened


def changes_nothing(connection: Connection, write: Write, owner: int, job: ClaimedJob) -> bool:
    before = everything(connection)
    return not write(connection, owner, job) and everything(connection) == before


def test_a_session_that_does_not_hold_the_attempt_changes_nothing(
    connection: Connection, subtests: pytest.Subtests
) -> None:
    for name, write in WRITES.items():
        with subtests.test(name=name), connection.transaction(force_rollback=True):
            add(connection)
            owner, other = session(connection), session(connection)
            first = take_one(connection, owner)

            later = ClaimedJob(first.id, first.attempt + 1, *list(_values(first))[2:])
            assert changes_nothing(connection, write, other, first), "another session"
            assert changes_nothing(connection, write, owner, later), "another attempt"

            end(connection, owner, [first], decided(ReleasedAttempt("shutdown")))
            assert changes_nothing(connection, write, owner, first), "released"

            second = take_one(connection, owner)
            assert second.attempt == 2
            assert changes_nothing(connection, write, owner, first), "an earlier attempt of the same session"

            do(connection, sessions.finish([owner], "dead"))
            assert do(connection, sessions.rescue()) == [first.id]
            assert changes_nothing(connection, write, owner, second), "rescued"

            third = take_one(connection, other)
            assert changes_nothing(connection, write, owner, second), "held by another session now"
            assert write(connection, other, third), "the session that holds it may write"


@pytest.mark.slow
def test_a_settlement_counts_once(connection: Connection, subtests: pytest.Subtests) -> None:
    for name, settle in SETTLES.items():
        with subtests.test(name=name), connection.transaction(force_rollback=True):
            add(connection)
            owner = session(connection)
            job = take_one(connection, owner)
            assert settle(connection, owner, job)
            for later in WRITES.values():
                assert changes_nothing(connection, later, owner, job)


def test_a_dead_session_settles_only_jobs_it_still_holds(connection: Connection) -> None:
    """A dead session holds its jobs until they are rescued, so a settlement before that is valid."""
    add(connection, 2)
    owner = session(connection)
    first, second = take_one(connection, owner), take_one(connection, owner)
    do(connection, sessions.finish([owner], "dead"))
    assert end(connection, owner, [first], decided()) == {first.id}
    assert do(connection, sessions.rescue()) == [second.id]
    assert end(connection, owner, [second], decided()) == set()


def test_one_lost_job_does_not_fail_the_batch(connection: Connection) -> None:
    ids = add(connection, 3)
    owner = session(connection)
    jobs = [take_one(connection, owner) for _ in ids]
    end(connection, owner, jobs[1:2], decided(ReleasedAttempt("shutdown")))
    assert end(connection, owner, jobs, decided()) == {ids[0], ids[2]}
    assert one(connection, "select state from sereno.jobs") == "ready"


def test_a_settlement_applied_before_a_lost_reply_is_recognised(connection: Connection) -> None:
    add(connection, 3)
    owner = session(connection)
    done, retried, lost = (take_one(connection, owner) for _ in range(3))
    end(connection, owner, [done], decided())
    end(connection, owner, [retried], decided(Retry()))
    do(connection, sessions.finish([owner], "dead"))
    do(connection, sessions.rescue())
    other = session(connection)
    end(connection, other, [take_one(connection, other)], decided())
    batch = [settled(done, decided()), settled(retried, decided(Retry())), settled(lost, decided())]
    assert do(connection, settled_before(owner, batch)) == {done.id, retried.id}


def test_a_step_keeps_the_result_that_was_written_first(connection: Connection) -> None:
    add(connection)
    owner = session(connection)
    job = take_one(connection, owner)
    do(connection, keep_step(owner, job.id, job.attempt, "pay", b"1"))
    do(connection, keep_step(owner, job.id, job.attempt, "pay", b"2"))
    assert one(connection, "select result from sereno.steps") == 1


def _values(job: ClaimedJob) -> Iterator[Any]:
    for name in job.__struct_fields__:
        yield getattr(job, name)
