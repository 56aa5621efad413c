"""Jobs of dead sessions are always rescued, and jobs of live sessions are never touched."""

from collections.abc import Iterator
from threading import Thread

import pytest

from sereno.jobs import transitions
from sereno.worker import sessions
from tests.facts import one, until
from tests.jobs.job_steps import (
    Connection,
    add,
    advance,
    decided,
    do,
    end,
    line,
    row,
    session,
    take,
    take_one,
    tries,
    waits_for_a_lock,
    wanted,
)


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with line(database_url) as opened:
        yield opened


def expire_all(connection: Connection) -> None:
    advance(connection, 31)
    do(connection, sessions.expire())


def test_a_session_with_an_expired_lease_stays_dead(connection: Connection) -> None:
    expired, alive = session(connection), session(connection)
    assert do(connection, sessions.expire()) == []
    advance(connection, 29)
    assert do(connection, sessions.keep([alive], 30)) == {alive}
    assert not do(connection, sessions.due_work()).expired_sessions
    advance(connection, 2)
    assert do(connection, sessions.due_work()).expired_sessions
    assert do(connection, sessions.expire()) == [(expired, "here", 1)]
    assert do(connection, sessions.keep([expired, alive], 30)) == {alive}
    assert do(connection, sessions.report(expired, {}, []))[0] == "dead"
    assert do(connection, sessions.report(alive, {}, []))[0] == "alive"
    assert not do(connection, sessions.due_work()).expired_sessions


def test_jobs_of_dead_sessions_are_rescued_with_one_crash_each(connection: Connection) -> None:
    ids = add(connection, 3)
    for number in (1, 2, 3):
        owner = session(connection)
        assert len(take(connection, owner)) == 3
        expire_all(connection)
        assert do(connection, sessions.due_work()).orphans
        assert sorted(do(connection, sessions.rescue())) == ids
        found = row(connection, ids[0])
        assert (found["state"], found["crashes"], found["attempt"], found["releases"]) == ("ready", 1, number, 0)
    assert tries(connection, ids[0]) == [(1, "crash"), (2, "crash"), (3, "crash")]
    assert one(connection, "select count(distinct reason) from sereno.attempts") == 3, "each reason names its session"


def test_counted_crashes_are_not_reset(connection: Connection) -> None:
    (id_,) = add(connection)
    connection.execute("update sereno.jobs set crashes = 2")
    take(connection, session(connection))
    expire_all(connection)
    do(connection, sessions.rescue())
    assert row(connection, id_)["crashes"] == 2


def test_the_jobs_of_a_live_session_are_never_touched(connection: Connection) -> None:
    add(connection, 2)
    dead, alive = session(connection), session(connection, lease=1e6)
    lost, held = take_one(connection, dead), take_one(connection, alive)
    expire_all(connection)
    advance(connection, 86400)
    assert do(connection, sessions.rescue(everywhere=True)) == [lost.id]
    assert do(connection, sessions.rescue(everywhere=True)) == do(connection, sessions.rescue()) == []
    assert row(connection, held.id)["session_id"] == alive


def test_jobs_left_by_a_closed_session_are_released(connection: Connection) -> None:
    (id_,) = add(connection)
    owner = session(connection)
    take_one(connection, owner)
    do(connection, sessions.finish([owner], "closed"))
    assert do(connection, sessions.due_work()).orphans
    assert do(connection, sessions.rescue()) == [id_]
    found = row(connection, id_)
    assert (found["crashes"], found["releases"], tries(connection, id_)) == (0, 1, [(1, "release")])


def test_a_claim_in_flight_while_its_session_died_is_rescued(connection: Connection, database_url: str) -> None:
    (id_,) = add(connection)
    owner = session(connection)
    with line(database_url) as own, own.transaction():
        assert [job.id for job in take(own, owner)] == [id_]
        expire_all(connection)
        assert do(connection, sessions.rescue()) == [], "the claim has not committed yet"
    assert row(connection, id_)["state"] == "running"
    assert do(connection, sessions.rescue()) == [id_]


def test_a_session_row_deleted_by_hand_does_not_hide_its_jobs(connection: Connection) -> None:
    (id_,) = add(connection)
    take(connection, session(connection))
    connection.execute("delete from sereno.sessions")
    assert do(connection, sessions.rescue()) == []
    assert do(connection, sessions.rescue(everywhere=True)) == [id_]
    assert row(connection, id_)["crashes"] == 1


def test_only_a_rescue_everywhere_finds_jobs_of_a_session_that_died_long_ago(connection: Connection) -> None:
    (id_,) = add(connection)
    take(connection, session(connection))
    expire_all(connection)
    advance(connection, 7200)
    assert not do(connection, sessions.due_work()).orphans
    assert do(connection, sessions.rescue()) == []
    assert do(connection, sessions.rescue(everywhere=True)) == [id_]


@pytest.mark.slow
def test_a_rescue_moves_at_most_a_thousand_jobs_a_call(connection: Connection) -> None:
    add(connection, 2500)
    owner = session(connection)
    while take(connection, owner, 1000):
        pass
    expire_all(connection)
    assert [len(do(connection, sessions.rescue())) for _ in range(4)] == [1000, 1000, 500, 0]


def test_a_session_whose_heartbeat_is_being_written_is_not_declared_dead(
    connection: Connection, database_url: str
) -> None:
    owner = session(connection)
    advance(connection, 31)
    with line(database_url) as own, own.transaction():
        assert do(own, sessions.keep([owner], 30)) == {owner}
        assert do(connection, sessions.expire()) == []
    assert do(connection, sessions.expire()) == []


def test_jobs_unknown_to_their_session_are_released_after_a_lost_reply(connection: Connection) -> None:
    add(connection, 3)
    owner, other = session(connection), session(connection)
    held, lost = take(connection, owner, 2)
    others = take_one(connection, other)
    assert do(connection, transitions.release_unlisted(owner, [held.id], 5.0)) == 0, "claimed a moment ago"
    advance(connection, 6)
    assert do(connection, transitions.release_unlisted(owner, [held.id], 5.0)) == 1
    found = row(connection, lost.id)
    assert (found["state"], found["releases"], found["attempt"], tries(connection, lost.id)) == ("ready", 1, 1, [])
    assert row(connection, held.id)["session_id"] == owner
    assert row(connection, others.id)["session_id"] == other
    assert end(connection, owner, [lost], decided()) == set()


def test_a_restarted_worker_gets_the_highest_floors_that_others_published(connection: Connection) -> None:
    first, second = session(connection), session(connection)
    do(connection, sessions.report(first, {"default:5": 10, "fast:0": 7}, []))
    do(connection, sessions.report(second, {"default:5": 30}, []))

    def fresh() -> dict[str, int]:
        registered = sessions.register(host="h", pid=1, version="0", queues={"default": 1}, tasks=["work"], lease=30)
        return do(connection, registered)[1]

    assert fresh() == {"default:5": 30, "fast:0": 7}
    advance(connection, 61)
    assert fresh() == {}, "too old to be trusted"


def test_a_report_returns_the_held_jobs_to_cancel(connection: Connection) -> None:
    add(connection, 3)
    owner, other = session(connection), session(connection)
    unchanged, cancelled, others = take_one(connection, owner), take_one(connection, owner), take_one(connection, other)
    do(connection, transitions.cancel([cancelled.id, others.id], "operator"))
    held = [unchanged.id, cancelled.id, others.id]
    assert do(connection, sessions.report(owner, {}, held)) == ("alive", [cancelled.id])


def test_a_duty_is_taken_by_one_worker_and_again_when_it_is_due(connection: Connection) -> None:
    def taken() -> set[str]:
        return do(connection, sessions.take_duties({"sweep": 60, "daily": 86_400}))

    assert [taken(), taken()] == [{"sweep", "daily"}, set()]
    advance(connection, 59)
    assert not taken()
    advance(connection, 1)
    assert [taken(), taken()] == [{"sweep"}, set()]


def test_ended_sessions_and_expired_keys_are_deleted_later(connection: Connection) -> None:
    add(connection, unique_key="a", unique_for="1h")
    add(connection, unique_key="b", unique_for="forever")
    ended, alive = session(connection), session(connection)
    do(connection, sessions.finish([ended], "closed"))
    do(connection, sessions.forget_ended())
    assert one(connection, "select count(*) from sereno.sessions") == 2
    advance(connection, 86400 * 8)
    do(connection, sessions.forget_ended())
    assert one(connection, "select array_agg(id) from sereno.sessions") == [alive]
    assert one(connection, "select array_agg(unique_key) from sereno.unique_keys") == ["b"]


def test_a_rescue_does_not_wait_for_a_settlement_in_progress(connection: Connection, database_url: str) -> None:
    add(connection, 2)
    owner = session(connection)
    first, second = take(connection, owner)
    do(connection, sessions.finish([owner], "dead"))
    with line(database_url) as own, own.transaction():
        end(own, owner, [first], decided())
        assert do(connection, sessions.rescue()) == [second.id]
    assert do(connection, sessions.rescue()) == []


def test_a_late_settlement_waits_for_the_rescue_and_is_fenced(connection: Connection, database_url: str) -> None:
    add(connection)
    owner = session(connection)
    job = take_one(connection, owner)
    do(connection, sessions.finish([owner], "dead"))
    applied: list[set[int]] = []

    def settle() -> None:
        with line(database_url) as own:
            applied.append(end(own, owner, [job], decided()))

    with line(database_url) as rescuer:
        with rescuer.transaction():
            assert do(rescuer, sessions.rescue()) == [job.id]
            thread = Thread(target=settle)
            thread.start()
            until(lambda: waits_for_a_lock(connection))
        thread.join()
    assert applied == [set()]
    assert do(connection, transitions.claim(session(connection), ["work"], [wanted(1)])).jobs[0].attempt == 2


def test_a_rescue_with_an_old_snapshot_leaves_the_job_with_its_new_session(
    connection: Connection, database_url: str
) -> None:
    """Between the snapshot of a rescue and its locks, another one was faster and a live session has the job."""
    (number,) = add(connection)
    owner = session(connection)
    take_one(connection, owner)
    do(connection, sessions.finish([owner], "dead"))
    # In one session, the clock waits for a lock: its statement has a snapshot by then, and no row.
    connection.execute(
        "alter function sereno.now() rename to real_now; "
        "create function sereno.now() returns timestamptz language plpgsql volatile as $$ begin "
        "if current_setting('application_name') = 'slow' then perform pg_advisory_xact_lock(1); end if; "
        "return sereno.real_now(); end $$"
    )
    rescued: list[list[int]] = []

    def rescue() -> None:
        with line(database_url) as slow:
            slow.execute("set application_name = 'slow'")
            rescued.append(do(slow, sessions.rescue()))

    connection.execute("select pg_advisory_lock(1)")
    thread = Thread(target=rescue)
    thread.start()
    until(lambda: waits_for_a_lock(connection))
    assert do(connection, sessions.rescue()) == [number]
    new_owner = session(connection)
    assert take_one(connection, new_owner).attempt == 2
    connection.execute("select pg_advisory_unlock(1)")
    thread.join()
    assert rescued == [[]]
    assert row(connection, number)["session_id"] == new_owner
