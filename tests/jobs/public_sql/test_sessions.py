"""Sessions by SQL: opened, renewed by heartbeats, closed; and maintenance without a Python worker."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from sereno.jobs import transitions
from sereno.worker import sessions
from tests.facts import advance, one
from tests.jobs.job_steps import Connection, add, do, past, row, session, take, tries
from tests.jobs.public_sql.sql_worker import SqlWorker


def test_a_session_is_listed_for_operators(connection: Connection) -> None:
    worker = SqlWorker(connection, queues=["a", "b"], tasks=["x", "y"], host="here", pid=7, slots=3, version="node 22")
    found = connection.execute("select * from sereno.sessions").fetchone()
    assert found is not None
    names = [column.name for column in connection.execute("select * from sereno.sessions").description or ()]
    seen = dict(zip(names, found, strict=True))
    assert (seen["id"], seen["state"], seen["idle"], seen["host"], seen["pid"]) == (
        worker.session,
        "alive",
        False,
        "here",
        7,
    )
    assert (seen["version"], seen["queues"], seen["tasks"]) == ("node 22", {"a": 3, "b": 3}, ["x", "y"])
    assert seen["lease_until"] - seen["started_at"] == timedelta(seconds=30)
    assert do(connection, sessions.keep([worker.session], 30)) == {worker.session}


INVALID_SESSIONS: tuple[dict[str, Any], ...] = (
    {"queues": []},
    {"queues": ["a", None]},
    {"queues": [""]},
    {"queues": ["a" * 501]},
    {"tasks": []},
    {"tasks": [None]},
    {"tasks": [""]},
    {"tasks": ["work", "sereno.fan_out"]},
    {"slots": 0},
    {"slots": None},
    {"lease": "0 seconds"},
    {"lease": "2 hours"},
    {"lease": "-1 second"},
    {"host": ""},
    {"version": "v" * 501},
)


def test_an_invalid_session_is_refused(connection: Connection, subtests: pytest.Subtests) -> None:
    for given in INVALID_SESSIONS:
        with subtests.test(given=given):
            with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
                SqlWorker(connection, **given)
            assert refused.value.diag.message_hint
            assert one(connection, "select count(*) from sereno.sessions") == 0


def test_only_queues_and_tasks_are_required(connection: Connection) -> None:
    connection.execute("select sereno.open_session(array['default'], array['work'])")
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        connection.execute("select sereno.open_session(null, null)")


def test_closing_releases_held_jobs_without_a_failure(connection: Connection) -> None:
    first, second, third = add(connection, 3)
    worker = SqlWorker(connection)
    job, *_ = worker.claim(2)
    worker.end([job])
    assert worker.close() == 1
    found = row(connection, second)
    assert (found["state"], found["failures"], found["crashes"], found["releases"]) == ("ready", 0, 0, 1)
    assert worker.close() == 0
    assert not worker.beat().alive
    assert [job.id for job in SqlWorker(connection).claim()] == [third, second]
    assert one(connection, "select state from sereno.sessions where id = %s", worker.session) == "closed"
    assert past(connection, first)["state"] == "succeeded"


@pytest.mark.parametrize("listens", [True, False])
def test_a_listening_session_is_notified_of_new_jobs(connection: Connection, database_url: str, listens: bool) -> None:
    SqlWorker(connection, listens=listens)
    with psycopg.connect(database_url, autocommit=True) as listener:
        listener.execute('listen "sereno.ready"')
        connection.execute("select sereno.enqueue('work')")
        # Earlier notifications arrive before this one.
        connection.execute("""select pg_notify('sereno.ready', 'end')""")
        notified = [notice.payload for notice in listener.notifies(timeout=10, stop_after=1 + listens)]
    assert notified == ["default", "end"][1 - listens :]


def test_a_heartbeat_keeps_the_lease(connection: Connection) -> None:
    worker = SqlWorker(connection)
    for _ in range(3):
        connection.execute(
            "insert into sereno.clock (ahead) values ('20 s') "
            "on conflict (one_row) do update set ahead = clock.ahead + '20 s'"
        )
        beat = worker.beat()
        assert beat.alive
        assert beat.lease_until == one(connection, "select lease_until from sereno.sessions")
    assert worker.claim() == []


def test_a_heartbeat_does_not_revive_a_dead_session(connection: Connection) -> None:
    (id_,) = add(connection)
    worker = SqlWorker(connection)
    worker.claim()
    do(connection, sessions.finish([worker.session], "dead"))
    assert worker.beat([id_])[::2] == (False, [])
    assert worker.beat([id_]).lost == [id_]
    connection.execute("delete from sereno.sessions")
    assert worker.beat([id_]).alive is False


def test_a_heartbeat_returns_cancelled_and_lost_jobs(connection: Connection) -> None:
    add(connection, 3)
    worker = SqlWorker(connection)
    first, second, third = worker.claim()
    do(connection, transitions.cancel([first.id], "operator"))
    worker.end([second], "release")
    beat = worker.beat([first.id, second.id, third.id])
    assert (beat.cancel, beat.lost) == ([first.id], [second.id])
    assert worker.beat().cancel == []


def test_a_claim_whose_reply_was_lost_is_released_by_a_heartbeat(connection: Connection) -> None:
    add(connection, 3)
    worker = SqlWorker(connection, lease="30 seconds")
    known, *lost = worker.claim()
    assert worker.beat([known.id]).lost == []
    assert one(connection, "select count(*) from sereno.jobs where state = 'running'") == 3, (
        "the reply of the claim may be on its way"
    )
    advance(connection, 11)
    worker.beat()
    assert one(connection, "select count(*) from sereno.jobs where state = 'running'") == 3, (
        "a heartbeat without a list releases nothing"
    )
    worker.beat([known.id])
    assert [row(connection, job.id)["state"] for job in lost] == ["ready", "ready"]
    assert row(connection, known.id)["state"] == "running"
    assert (row(connection, lost[0].id)["releases"], tries(connection, lost[0].id)) == (1, [])


def test_maintenance_works_without_a_python_worker(connection: Connection) -> None:
    """Dead sessions are found, their jobs are rescued, and scheduled jobs are promoted."""
    (id_,) = add(connection)
    later = add(connection, delay=40)
    expired = SqlWorker(connection)
    assert [job.id for job in expired.claim()] == [id_]
    worker = SqlWorker(connection, lease="1 hour")
    connection.execute("insert into sereno.clock (ahead) values ('41 seconds')")
    assert worker.beat([]).alive
    assert one(connection, "select state from sereno.sessions where id = %s", expired.session) == "dead"
    assert tries(connection, id_) == [(1, "crash")]
    assert sorted((job.id, job.attempt, job.crashes) for job in worker.claim()) == [(id_, 2, 1), (later[0], 1, 0)]


def test_a_failing_side_task_of_a_heartbeat_does_not_lose_the_lease(connection: Connection) -> None:
    add(connection)
    worker = SqlWorker(connection)
    worker.end(worker.claim())
    before = one(connection, "select lease_until from sereno.sessions")
    warned: list[str] = []
    connection.add_notice_handler(lambda notice: warned.append(str(notice.message_primary)))
    connection.execute("alter table sereno.minutes rename to away")
    beat = worker.beat([])
    assert beat.alive
    assert beat.lease_until > before
    assert len(warned) == 1
    assert "the maintenance of this heartbeat failed" in warned[0]
    connection.execute("alter table sereno.away rename to minutes")
    worker.beat([])
    assert one(connection, "select sum(succeeded) from sereno.minutes") == 1


def test_an_sql_worker_takes_over_the_job_of_a_dead_python_session(connection: Connection) -> None:
    (id_,) = add(connection)
    python_session, sql_worker = session(connection), SqlWorker(connection)
    (job,) = take(connection, python_session)
    assert sql_worker.claim() == []
    do(connection, sessions.finish([python_session], "dead"))
    assert sql_worker.beat([]).alive
    (again,) = sql_worker.claim()
    assert (again.id, again.attempt) == (id_, job.attempt + 1)
    assert do(connection, sessions.rescue(everywhere=True)) == []
    assert sql_worker.end([again]) == [True]
