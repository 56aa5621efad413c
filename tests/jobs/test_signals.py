"""Signals in the store: who receives which, which jobs are woken, and when a wait ends."""

from collections.abc import Iterator

import psycopg
import pytest

from sereno.jobs import signals, transitions
from sereno.jobs.attempt import Cancel, Dead, ReleasedAttempt
from sereno.jobs.job import ClaimedJob
from sereno.jobs.settlement import settle
from sereno.worker.steps import AwaitSignal
from tests.facts import one
from tests.jobs.job_steps import Connection, add, decided, do, line, row, session, settled, take_one
from tests.roles import made

NAME = "paid:42"


@pytest.fixture
def other(database_url: str) -> Iterator[Connection]:
    """A second connection."""
    with line(database_url) as connection:
        yield connection


def receive(connection: Connection, owner: int, job: ClaimedJob, **options: str) -> signals.ReceivedSignals:
    return do(connection, signals.receive(owner, job.id, job.attempt, NAME, timeout=600.0, **options))  # type: ignore[arg-type]  # which


def settle_waiting(connection: Connection, owner: int, job: ClaimedJob, got: signals.ReceivedSignals) -> None:
    waiting = AwaitSignal(until=got.until)
    waiting.signal = NAME
    with connection.transaction():
        item = settled(job, decided(waiting), side_rows=True)
        assert do(connection, settle("reschedule", owner, [item])) == {job.id}


def waiting_job(connection: Connection) -> tuple[int, ClaimedJob]:
    """Return a session, and its job, which waits and was checked."""
    add(connection)
    owner = session(connection)
    job = take_one(connection, owner)
    settle_waiting(connection, owner, job, receive(connection, owner, job))
    assert do(connection, signals.wake_waiting()) == (0, False)
    return owner, job


def state(connection: Connection, job: ClaimedJob) -> str:
    return str(row(connection, job.id)["state"])


def test_a_job_receives_signals_of_its_tenant_since_it_was_created(connection: Connection) -> None:
    do(connection, signals.send(NAME, b"0", "a"))
    add(connection, tenant="a")
    for value, tenant in ((b"1", None), (b"2", "b"), (b"3", "a"), (b"4", "a")):
        do(connection, signals.send(NAME, value, tenant))
    owner = session(connection)
    job = take_one(connection, owner)
    got = {which: receive(connection, owner, job, which=which).values for which in ("first", "latest", "all")}
    assert got == {"first": [3], "latest": [4], "all": [3, 4]}


def test_a_signal_wakes_every_job_that_waits_for_it(connection: Connection) -> None:
    (_, job), (_, too) = waiting_job(connection), waiting_job(connection)
    assert (state(connection, job), row(connection, job.id)["snoozes"]) == ("scheduled", 1)
    do(connection, signals.send("another", b"7"))
    assert state(connection, job) == "scheduled"
    do(connection, signals.send(NAME, b"7"))
    assert {state(connection, each) for each in (job, too)} == {"ready"}
    assert one(connection, "select count(*) from sereno.jobs where run_at <= sereno.now() and ready_seq > 0") == 2


def test_the_first_call_decides_when_a_wait_times_out(connection: Connection) -> None:
    owner, job = waiting_job(connection)
    until = one(connection, "select until from sereno.signal_waits")
    assert row(connection, job.id)["run_at"] == until
    connection.execute("update sereno.jobs set run_at = sereno.now()")
    do(connection, transitions.promote())
    again = take_one(connection, owner)
    assert receive(connection, owner, again).until == until


def test_a_signal_before_the_settlement_wakes_the_job_at_once(connection: Connection) -> None:
    add(connection)
    owner = session(connection)
    job = take_one(connection, owner)
    got = receive(connection, owner, job)
    do(connection, signals.send(NAME, b"7"))
    settle_waiting(connection, owner, job, got)
    assert state(connection, job) == "ready"


def test_a_signal_that_commits_before_the_wait_is_found_by_the_check(connection: Connection, other: Connection) -> None:
    add(connection)
    owner = session(connection)
    job = take_one(connection, owner)
    got = receive(connection, owner, job)
    with connection.transaction():
        settle_waiting(connection, owner, job, got)
        do(other, signals.send(NAME, b"7"))
        do(other, signals.wake_waiting())
    assert state(connection, job) == "scheduled"
    assert do(connection, signals.wake_waiting()) == (1, False)
    assert state(connection, job) == "ready"


def test_a_signal_with_an_old_snapshot_is_found_by_the_check(database_url: str, connection: Connection) -> None:
    with psycopg.connect(database_url) as sender:
        sender.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        sender.execute("select from sereno.signal_waits")
        _, job = waiting_job(connection)
        do(sender, signals.send(NAME, b"7"))
        sender.commit()
    assert state(connection, job) == "scheduled"
    assert do(connection, signals.wake_waiting()) == (1, False)
    assert state(connection, job) == "ready"


def test_a_locked_job_is_woken_by_a_later_check(connection: Connection, other: Connection) -> None:
    _, job = waiting_job(connection)
    other.execute("set lock_timeout = '1s'")
    with connection.transaction():
        connection.execute("select from sereno.jobs for update")
        do(other, signals.send(NAME, b"7"))
        assert do(other, signals.wake_waiting()) == (0, False)
    assert state(connection, job) == "scheduled"
    assert do(connection, signals.wake_waiting()) == (1, False)
    assert state(connection, job) == "ready"


def test_a_signal_does_not_wake_a_job_that_failed_since(connection: Connection) -> None:
    _, job = waiting_job(connection)
    connection.execute("update sereno.jobs set attempt = attempt + 1")
    do(connection, signals.send(NAME, b"7"))
    connection.execute("update sereno.signal_waits set is_checked = false")
    assert do(connection, signals.wake_waiting()) == (0, False)
    assert state(connection, job) == "scheduled"
    assert one(connection, "select count(*) from sereno.signal_waits where not is_checked") == 0


def test_more_jobs_than_a_page_are_woken_page_by_page(connection: Connection) -> None:
    jobs = [waiting_job(connection)[1] for _ in range(3)]
    connection.execute("insert into sereno.signals (name) values (%s)", [NAME])
    assert do(connection, signals.wake_waiting(1)) == (1, True)
    assert do(connection, signals.wake_waiting(1)) == (1, True)
    assert do(connection, signals.wake_waiting(1))[0] == 1
    assert {state(connection, job) for job in jobs} == {"ready"}
    do(connection, signals.wake_waiting(1))
    assert one(connection, "select count(*) from sereno.signals where not is_checked") == 0


@pytest.mark.slow
def test_waits_end_with_their_job(connection: Connection, subtests: pytest.Subtests) -> None:
    for verb in ("cancel", "delete", "settle_jobs", "stopped", "dead", "cancelled", "succeeded"):
        with subtests.test(verb=verb):
            owner, job = waiting_job(connection)
            if verb == "cancel":
                do(connection, transitions.cancel([job.id], "enough"))
            elif verb == "delete":
                do(connection, transitions.delete([job.id]))
            else:
                connection.execute("update sereno.jobs set run_at = sereno.now()")
                do(connection, transitions.promote())
                _end(connection, owner, take_one(connection, owner), verb)
            assert one(connection, "select count(*) from sereno.signal_waits where job_id = %s", job.id) == 0


def _end(connection: Connection, owner: int, job: ClaimedJob, verb: str) -> None:
    if verb == "settle_jobs":
        connection.execute("update sereno.sessions set opened_by = sereno.caller(), lease = 30 where id = %s", [owner])
        outcome = f'[{{"id": {job.id}, "attempt": {job.attempt}, "outcome": "succeeded"}}]'
        assert one(connection, "select settled from sereno.settle_jobs(%s, %s::text::jsonb)", owner, outcome)
        return
    if verb == "stopped":
        do(connection, transitions.cancel([job.id], "enough"))
        # A released job has no `side_rows`: the statement itself deletes them.
        item = settled(job, decided(ReleasedAttempt("shutdown")))
    else:
        ending = {"dead": Dead("closed"), "cancelled": Cancel("enough"), "succeeded": None}[verb]
        item = settled(job, decided(ending), side_rows=True)
    assert do(connection, settle(item.way, owner, [item])) == {job.id}


def test_a_name_or_tenant_out_of_bounds_is_refused_from_sql(connection: Connection, subtests: pytest.Subtests) -> None:
    for arguments in ("''", "null", "repeat('x', 201)", "'paid', tenant => ''"):
        with subtests.test(arguments=arguments), pytest.raises(psycopg.errors.InvalidParameterValue, match="signal"):
            connection.execute(f"select sereno.signal({arguments})".encode())


def test_a_check_without_signals_and_waits_reads_empty_indexes(connection: Connection) -> None:
    """Also with a million waits: those that were checked are not in the index."""
    connection.execute(
        "insert into sereno.signal_waits (job_id, name, since, until, attempt) "
        "select n, 'paid:' || n, now(), now(), 1 from generate_series(1, 20000) n"
    )
    connection.execute("analyze sereno.signal_waits")
    plan = "\n".join(
        text for (text,) in connection.execute("explain select from sereno.signal_waits where not is_checked limit 1")
    )
    assert "signal_waits_unchecked" in plan


@pytest.mark.slow
def test_the_roles_of_producer_and_worker_suffice(connection: Connection, database_url: str) -> None:
    with made(connection, database_url) as roles:
        with line(roles.url("worker")) as worker:
            _, job = waiting_job(worker)
        with line(roles.url("producer")) as producer:
            producer.execute("select sereno.signal(%s, '7')", [NAME])
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                producer.execute("select value from sereno.signals")
        assert state(connection, job) == "ready"
