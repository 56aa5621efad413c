"""Jobs that leave PostgreSQL for a carrier and come back: each operation alone, and its fences."""

import msgspec
import psycopg
import pytest

from sereno.carriers import store
from sereno.carriers.message import decode
from sereno.jobs.job import ClaimedJob
from sereno.jobs.settlement import check_links
from tests.carriers.carrier_steps import FIRST_ID, row
from tests.facts import advance, one, state
from tests.jobs.job_steps import Connection, add, decided, do, end, line, session, take, take_one


def test_a_carried_job_is_stored_by_one_session(connection: Connection) -> None:
    first, second = session(connection), session(connection)
    assert do(connection, store.store(first, [row(FIRST_ID)])) == {FIRST_ID}
    assert do(connection, store.store(first, [row(FIRST_ID)])) == {FIRST_ID}, "its reply may have been lost"
    assert do(connection, store.store(second, [row(FIRST_ID), row(FIRST_ID + 1)])) == {FIRST_ID + 1}
    assert one(connection, "select count(*) from sereno.jobs where session_id = %s", first) == 1


def test_a_settled_job_is_not_stored_again(connection: Connection) -> None:
    first, second = session(connection), session(connection)
    do(connection, store.store(first, [row(FIRST_ID)]))
    job = stored_job(connection, first)
    assert end(connection, first, [job], decided()) == {FIRST_ID}
    assert do(connection, store.store(second, [row(FIRST_ID)])) == set()
    assert do(connection, store.stored([FIRST_ID, FIRST_ID + 1])) == {FIRST_ID}
    assert one(connection, "select count(*) from sereno.jobs") == 0


def stored_job(connection: Connection, owner: int) -> ClaimedJob:
    """Return the stored job as the worker has it."""
    extra = add(connection)
    job = take_one(connection, owner)
    connection.execute("delete from sereno.jobs where id = %s", extra)
    return msgspec.structs.replace(job, id=FIRST_ID)


def test_a_message_cannot_touch_a_job_that_is_in_postgresql(connection: Connection) -> None:
    owner = session(connection)
    (job_id,) = add(connection)
    assert do(connection, store.store(owner, [row(job_id), row(FIRST_ID)])) == {FIRST_ID}
    assert one(connection, "select state from sereno.jobs where id = %s", job_id) == "ready"


def test_an_undecodable_message_is_stored_once_and_another_one_at_its_position_too(connection: Connection) -> None:
    """A carrier that has lost its disks begins with the same positions again."""
    owner = session(connection)
    for body in (b"one", b"one", b"two"):
        do(connection, store.park(owner, "default", 1, body, "it is not a batch"))
    stored = connection.execute("select args ->> 'message' from sereno.history order by id").fetchall()
    assert stored == [("b25l",), ("dHdv",)]


def test_a_fence_outlives_its_message_by_minutes(connection: Connection) -> None:
    owner = session(connection)
    do(connection, store.store(owner, [row(FIRST_ID, position=5), row(FIRST_ID + 1, position=9)]))
    do(connection, store.forget_stored("default", 5))
    assert do(connection, store.stored([FIRST_ID])) == {FIRST_ID}
    advance(connection, store.KEEP_STORED + 1)
    do(connection, store.forget_stored("default", 5))
    assert do(connection, store.stored([FIRST_ID, FIRST_ID + 1])) == {FIRST_ID + 1}


def test_a_fence_outlives_a_message_that_may_be_published_again(connection: Connection) -> None:
    owner = session(connection)
    (job_id,) = add(connection)
    take(connection, owner)
    batch, _ = do(connection, store.carry(owner, "default", [job_id]))
    assert batch is not None
    # Its acknowledgement was lost, and the job has run.
    do(connection, store.store(owner, [row(job_id, position=5)]))
    advance(connection, store.KEEP_STORED + 1)
    do(connection, store.forget_stored("default", 5))
    assert do(connection, store.stored([job_id])) == {job_id}

    do(connection, store.published(batch, 9, is_repeated=True))
    for position, left in ((8, {job_id}), (9, set())):
        do(connection, store.forget_stored("default", position))
        assert do(connection, store.stored([job_id])) == left
        do(connection, store.forget_stored("default", position))
    assert one(connection, "select count(*) from sereno.repeated_messages") == 0


def test_a_message_that_another_worker_has_published_counts_as_repeated(connection: Connection) -> None:
    owner = session(connection)
    (job_id,) = add(connection)
    take(connection, owner)
    batch, _ = do(connection, store.carry(owner, "default", [job_id]))
    assert batch is not None
    do(connection, store.published(batch, 5, is_repeated=False))
    assert one(connection, "select count(*) from sereno.repeated_messages") == 0
    do(connection, store.published(batch, 6, is_repeated=False))
    assert one(connection, "select position from sereno.repeated_messages") == 6


def test_jobs_move_into_one_message(connection: Connection) -> None:
    owner = session(connection)
    plain = add(connection, 2, tenant="a", tags=("x",))
    (unique,) = add(connection, unique_key="one")
    take(connection, owner)
    batch, kept = do(connection, store.carry(owner, "default", [*plain, unique]))
    assert batch is not None
    assert kept == {unique}
    decoded = decode(batch.body)
    assert decoded.ids == plain
    assert decoded.more is not None
    assert {(fields.tenant, tuple(fields.tags or ())) for fields in decoded.more} == {("a", ("x",))}
    assert one(connection, "select count(*) from sereno.jobs") == 1
    assert do(connection, store.carry(owner, "default", plain)) == (None, set()), "after a lost reply they are gone"


def test_a_job_that_came_home_is_not_carried_while_its_message_may_return(connection: Connection) -> None:
    first, second = session(connection), session(connection)
    (job_id,) = add(connection)
    take(connection, first)
    batch, _ = do(connection, store.carry(first, "default", [job_id]))
    assert batch is not None
    do(connection, store.published(batch, 7, is_repeated=False))
    do(connection, store.store(second, [row(job_id)]))
    assert do(connection, store.carry(second, "default", [job_id])) == (None, {job_id})


def test_a_claimed_job_that_others_wait_for_is_not_carried(connection: Connection) -> None:
    first, second = add(connection, 2)
    owner = session(connection)
    take(connection, owner)
    (last,) = add(connection, after=[first])
    batch, here = do(connection, store.carry(owner, "default", [first, second]))
    assert here == {first}
    assert batch is not None
    assert (state(connection, second), state(connection, last)) == (None, "waiting")


def test_a_job_that_waits_for_a_carried_one_does_not_run_before_it(connection: Connection, database_url: str) -> None:
    """The dependency was not committed when the job was carried, so that nothing tells when it has ended."""
    (first,) = add(connection)
    owner = session(connection)
    take(connection, owner)
    with line(database_url) as other, other.transaction():
        (last,) = add(other, after=[first])
        batch, _ = do(connection, store.carry(owner, "default", [first]))
        assert batch is not None
    connection.execute(
        "insert into sereno.carrier_states (queue, kind, address, direct, reported_at) "
        "values ('default', 'jetstream', '', false, sereno.now())"
    )
    do(connection, check_links())
    assert state(connection, last) == "cancelled"


def test_messages_of_dead_sessions_are_taken_over(connection: Connection) -> None:
    dead, alive, other = session(connection), session(connection), session(connection)
    for owner in (dead, alive):
        (job_id,) = add(connection)
        take(connection, owner)
        do(connection, store.carry(owner, "default", [job_id]))
    connection.execute("update sereno.sessions set state = 'dead', ended_at = sereno.now() where id = %s", [dead])
    (taken,) = do(connection, store.take_batches(other, ["default"]))
    assert one(connection, "select session_id from sereno.relay_batches where id = %s", taken.id) == other
    assert len(do(connection, store.take_batches(alive, ["default"]))) == 1, "its own one"


def test_two_workers_do_not_wait_for_each_other_to_take_over(connection: Connection, database_url: str) -> None:
    dead, other = session(connection), session(connection)
    (job_id,) = add(connection)
    take(connection, dead)
    do(connection, store.carry(dead, "default", [job_id]))
    connection.execute("update sereno.sessions set state = 'dead', ended_at = sereno.now() where id = %s", [dead])
    with psycopg.connect(database_url) as busy:
        busy.execute("select from sereno.relay_batches for update")
        connection.execute("set statement_timeout = '5s'")
        assert do(connection, store.take_batches(other, ["default"])) == []


def test_a_share_of_zero_keeps_jobs_of_a_worker_that_has_read_another(connection: Connection) -> None:
    owner = session(connection)
    ids = add(connection, 2)
    take(connection, owner)
    do(connection, store.set_share("default", 0))
    assert do(connection, store.carry(owner, "default", ids)) == (None, set(ids))


def test_messages_that_were_not_published_come_back(connection: Connection) -> None:
    owner = session(connection)
    ids = add(connection, 2, tenant="a", tags=("x", "y"), priority=3)
    take(connection, owner)
    batch, _ = do(connection, store.carry(owner, "default", ids))
    assert batch is not None
    assert do(connection, store.return_batches("default", batch.id + 1)) == 0
    assert do(connection, store.return_batches("default")) == 2
    found = connection.execute("select id, priority, tenant, tags, state from sereno.jobs order by id").fetchall()
    assert found == [(job_id, 3, "a", ["x", "y"], "ready") for job_id in ids]


@pytest.mark.parametrize("share", [0, 30, 100])
def test_a_share_is_read_as_it_was_set(connection: Connection, share: int) -> None:
    do(connection, store.set_share("clicks", 50))
    do(connection, store.set_share("clicks", share))
    assert do(connection, store.shares()) == {"clicks": share}
