"""Jobs that wait for other jobs, and groups: on the store, without a worker."""

from threading import Thread

import psycopg
import pytest

from sereno import Cancel, Dead, Retry, Sereno, Snooze
from sereno.errors import InvalidArguments
from sereno.jobs import group_store, transitions
from sereno.jobs.attempt import SUCCEEDED, Settlement
from sereno.jobs.group_store import EnqueuedGroup, NewGroup
from sereno.jobs.job import OnDead
from sereno.jobs.settlement import check_links
from tests.facts import advance, one, state, until
from tests.jobs.job_steps import Connection, add, decided, do, end, line, new, session, take

DEAD = decided(Dead("no"))
TASKS = ("work", "inner", "outer")
CANCELLED = decided(Cancel("not wanted"))


def after(connection: Connection, *jobs: int, on_dead: OnDead = "wait") -> int:
    (made,) = add(connection, after=list(jobs), on_dead=on_dead)
    return made


def run_all(connection: Connection, outcome: Settlement = SUCCEEDED, count: int = 100) -> list[int]:
    owner = session(connection, tasks=TASKS)
    claimed = take(connection, owner, count, tasks=TASKS)
    if claimed:
        end(connection, owner, claimed, outcome)
    return [job.id for job in claimed]


def states(connection: Connection, *jobs: int) -> list[str | None]:
    return [state(connection, job) for job in jobs]


def test_a_job_waits_until_its_predecessors_have_succeeded(connection: Connection) -> None:
    first, second = add(connection, 2)
    last = after(connection, first, second)
    assert state(connection, last) == "waiting"
    assert run_all(connection, count=1) == [first]
    assert state(connection, last) == "waiting"
    assert run_all(connection) == [second]
    assert state(connection, last) == "ready"
    assert run_all(connection) == [last]
    assert one(connection, "select count(*) from sereno.dependencies") == 0


def test_a_chain_runs_in_order(connection: Connection) -> None:
    (job,) = add(connection)
    chain = [job]
    for _ in range(5):
        chain.append(after(connection, chain[-1]))
    ran: list[int] = []
    while more := run_all(connection):
        ran += more
    assert ran == chain


def test_a_retry_of_a_predecessor_changes_nothing(connection: Connection) -> None:
    (first,) = add(connection)
    last = after(connection, first)
    run_all(connection, decided(Retry("later", after=0)))
    assert states(connection, first, last) == ["ready", "waiting"]
    assert run_all(connection) == [first]
    assert state(connection, last) == "ready"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outcome", "on_dead", "expected"),
    [
        (DEAD, "wait", "waiting"),
        (DEAD, "continue", "ready"),
        (DEAD, "cancel", "cancelled"),
        (CANCELLED, "wait", "cancelled"),
        (CANCELLED, "continue", "ready"),
        (CANCELLED, "cancel", "cancelled"),
    ],
)
def test_the_end_of_a_predecessor_decides(
    connection: Connection, outcome: Settlement, on_dead: OnDead, expected: str
) -> None:
    (first,) = add(connection)
    last = after(connection, first, on_dead=on_dead)
    run_all(connection, outcome)
    assert state(connection, last) == expected
    if expected == "cancelled":
        words = "is dead" if outcome is DEAD else "was cancelled"
        reason = one(connection, "select reason from sereno.history where id = %s", last)
        assert reason == f"job {first}, which it waits for, {words}"


def test_a_retried_dead_letter_continues_what_waits_for_it(connection: Connection) -> None:
    (first,) = add(connection)
    last = after(connection, first)
    run_all(connection, DEAD)
    assert do(connection, transitions.requeue([first])) == [first]
    assert run_all(connection) == [first]
    assert state(connection, last) == "ready"


def test_a_job_after_a_finished_one(connection: Connection) -> None:
    done, dead = add(connection, 2)
    owner = session(connection)
    one_, two = take(connection, owner, 2)
    end(connection, owner, [one_], SUCCEEDED)
    end(connection, owner, [two], DEAD)
    assert state(connection, after(connection, done)) == "ready"
    waits = after(connection, dead)
    assert states(connection, waits, after(connection, dead, on_dead="continue")) == ["waiting", "ready"]
    stops = after(connection, dead, on_dead="cancel")
    assert do(connection, check_links())
    assert states(connection, waits, stops) == ["waiting", "cancelled"]
    assert not do(connection, check_links())


def test_a_job_after_a_running_one_is_continued_by_a_check(connection: Connection) -> None:
    (first,) = add(connection)
    owner = session(connection)
    claimed = take(connection, owner)
    last = after(connection, first)
    do(connection, check_links())
    end(connection, owner, claimed, SUCCEEDED)
    assert state(connection, last) == "waiting"
    do(connection, check_links())
    assert state(connection, last) == "ready"


def test_a_cancel_goes_down_a_chain(connection: Connection) -> None:
    (first,) = add(connection)
    second = after(connection, first)
    third = after(connection, second)
    kept = after(connection, second, on_dead="continue")
    assert do(connection, transitions.cancel([first], "not wanted")) == ([first], [])
    assert states(connection, second, third, kept) == ["cancelled", "cancelled", "ready"]


def test_a_deleted_predecessor_cancels_what_waits_for_it(connection: Connection) -> None:
    first, dead = add(connection, 2)
    last, of_dead = after(connection, first), after(connection, dead)
    assert do(connection, transitions.delete([first])) == [first]
    assert state(connection, last) == "cancelled"
    run_all(connection, DEAD)
    assert do(connection, transitions.delete([dead])) == [dead]
    do(connection, check_links())
    assert state(connection, of_dead) == "cancelled"


def test_a_running_predecessor_that_leaves_no_history_has_succeeded(connection: Connection) -> None:
    """Its settlement does not know of the job that was enqueued meanwhile, and leaves no row that a check finds."""
    (first,) = add(connection)
    owner = session(connection)
    claimed = take(connection, owner)
    last = after(connection, first)
    end(connection, owner, claimed, SUCCEEDED, keep_history=False)
    assert state(connection, first) is None
    do(connection, check_links())
    assert state(connection, last) == "ready"


def test_a_deleted_predecessor_is_known_to_a_transaction_that_was_open(
    connection: Connection, database_url: str
) -> None:
    waiting, dead = add(connection, 2)
    owner = session(connection)
    runs, dies = take(connection, owner, 2)
    end(connection, owner, [dies], DEAD)
    with line(database_url) as other, other.transaction():
        # A running job is not locked by the transaction, so that it can be settled and deleted meanwhile.
        last, of_dead = after(other, waiting), after(other, dead)
        end(connection, owner, [runs], decided(Snooze(60)))
        assert do(connection, transitions.delete([waiting, dead])) == [waiting, dead]
    do(connection, check_links())
    assert states(connection, last, of_dead) == ["cancelled", "cancelled"]
    advance(connection, 8 * 86400)
    assert one(connection, "select count(*) from sereno.deleted_jobs") == 2
    assert not do(connection, group_store.forget_deleted())
    assert one(connection, "select count(*) from sereno.deleted_jobs") == 0


def test_a_waiting_job_is_cancelled_and_requeued(connection: Connection) -> None:
    (first,) = add(connection)
    last = after(connection, first)
    do(connection, transitions.cancel([last], "not wanted"))
    do(connection, transitions.requeue([last]))
    assert state(connection, last) == "ready"
    assert run_all(connection) == [first, last]
    assert states(connection, first, last) == ["succeeded", "succeeded"]


def test_unknown_predecessors_and_invalid_options_are_refused(app: Sereno, connection: Connection) -> None:
    with pytest.raises(InvalidArguments, match=r"after: job 4711 does not exist\. Its transaction is not committed"):
        after(connection, 4711)

    @app.task
    def work() -> None: ...

    with pytest.raises(InvalidArguments, match="after is a list of jobs"):
        work.using(after=7)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="on_dead is"):
        work.using(after=[7], on_dead="ignore")  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="exclude each other"):
        work.using(after=[7], unique_key="k")


def test_a_job_waits_by_sql_too(connection: Connection) -> None:
    (first,) = add(connection)
    last = one(connection, "select sereno.enqueue('work', after => array[%s::bigint], on_dead => 'cancel')", first)
    assert state(connection, last) == "waiting"
    run_all(connection, DEAD)
    assert state(connection, last) == "cancelled"


def test_a_settlement_without_a_lease_continues_nothing(connection: Connection) -> None:
    (first,) = add(connection)
    last = after(connection, first)
    claimed = take(connection, session(connection))
    assert end(connection, session(connection), claimed, SUCCEEDED) == set()
    assert states(connection, first, last) == ["running", "waiting"]


def test_a_predecessor_of_an_open_transaction_is_refused(connection: Connection, database_url: str) -> None:
    with line(database_url) as other, other.transaction():
        (unseen,) = add(other)
        with pytest.raises(InvalidArguments, match=f"job {unseen} does not exist"):
            after(connection, unseen)


def test_an_open_transaction_that_waits_for_a_job_delays_no_settlement(
    connection: Connection, database_url: str
) -> None:
    first, second = add(connection, 2)
    waiting = after(connection, first)
    owner = session(connection)
    running = take(connection, owner, 1)
    with line(database_url) as other, other.transaction():
        after(other, first, second, waiting)
        connection.execute("set lock_timeout = '5s'")
        end(connection, owner, running, SUCCEEDED)
        assert state(connection, waiting) == "ready"
        assert [job.id for job in take(connection, owner)] == [waiting]


def test_a_dependency_that_two_transactions_see_counts_once(connection: Connection, database_url: str) -> None:
    first, second = add(connection, 2)
    owner = session(connection)
    running = take(connection, owner, 2)
    last = after(connection, first, second)
    end(connection, owner, running[:1], SUCCEEDED)
    blocked = "select count(*) from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
    with line(database_url) as other, psycopg.connect(database_url, autocommit=True) as watcher:
        with connection.transaction():
            do(connection, check_links())
            check = Thread(target=do, args=(other, check_links()))
            check.start()
            until(lambda: one(watcher, blocked, other.info.backend_pid) == 1)
        check.join()
    assert one(connection, "select pending from sereno.jobs where id = %s", last) == 1


# Groups


def group(connection: Connection, count: int, on_dead: OnDead = "wait") -> EnqueuedGroup:
    with connection.transaction():
        return do(connection, group_store.enqueue_group(NewGroup([new() for _ in range(count)], new(), on_dead)))


@pytest.mark.slow
def test_the_job_after_a_group_runs_once_when_all_have_succeeded(connection: Connection) -> None:
    made = group(connection, 3000)
    assert made.then is not None
    assert made.total == 3000
    owner = session(connection)
    while (left := one(connection, "select sum(remaining) from sereno.group_parts")) > 0:
        assert state(connection, made.then.id) == "waiting"
        end(connection, owner, take(connection, owner, min(700, int(left))), SUCCEEDED)
    assert state(connection, made.then.id) == "ready"
    assert run_all(connection) == [made.then.id]
    found = do(connection, group_store.find_group(made.id))
    assert (found.total, found.remaining, found.then_state) == (3000, 0, "succeeded")


def test_settlements_of_different_parts_of_a_group_do_not_wait_for_each_other(
    connection: Connection, database_url: str
) -> None:
    group(connection, 3000)
    owner = session(connection)
    claimed = take(connection, owner, 3000)
    with line(database_url) as other:
        other.execute("set lock_timeout = '5s'")
        with connection.transaction():
            end(connection, owner, claimed[:1], SUCCEEDED)
            assert end(other, owner, claimed[-1:], SUCCEEDED) == {claimed[-1].id}
    assert one(connection, "select sum(remaining) from sereno.group_parts") == 2998


def test_a_group_without_jobs_is_done_at_once(connection: Connection) -> None:
    made = group(connection, 0)
    assert made.then is not None
    assert run_all(connection) == [made.then.id]


@pytest.mark.parametrize(("on_dead", "expected"), [("wait", "waiting"), ("continue", "ready"), ("cancel", "cancelled")])
def test_a_dead_job_of_a_group_decides(connection: Connection, on_dead: OnDead, expected: str) -> None:
    made = group(connection, 3, on_dead)
    assert made.then is not None
    owner = session(connection)
    first, second, third = take(connection, owner, 3)
    end(connection, owner, [first, second], SUCCEEDED)
    end(connection, owner, [third], DEAD)
    assert state(connection, made.then.id) == expected


def test_a_dead_job_cancels_the_rest_of_its_group(connection: Connection) -> None:
    made = group(connection, 5, "cancel")
    run_all(connection, DEAD, count=1)
    with connection.transaction():
        assert do(connection, group_store.cancel_members())
    assert not do(connection, group_store.cancel_members())
    counts = connection.execute("select state, count(*) from sereno.history group by 1 order by 1").fetchall()
    assert counts == [("cancelled", 5), ("dead", 1)]
    assert not one(connection, "select cancelling from sereno.groups where id = %s", made.id)


def test_a_retried_job_counts_once_for_its_group(connection: Connection) -> None:
    made = group(connection, 2)
    assert made.then is not None
    (done,) = run_all(connection, count=1)
    do(connection, transitions.requeue([done]))
    (dead,) = run_all(connection, DEAD, count=1)
    assert run_all(connection) == [done]
    assert state(connection, made.then.id) == "waiting"
    do(connection, transitions.requeue([dead]))
    assert run_all(connection) == [dead]
    assert state(connection, made.then.id) == "ready"


def test_a_group_inside_a_group_counts_when_its_last_job_has_ended(connection: Connection) -> None:
    inner = NewGroup([new(), new()], new("inner"))
    flat = NewGroup([new()])
    with connection.transaction():
        made = do(connection, group_store.enqueue_group(NewGroup([new(), inner, flat], new("outer"))))
    assert made.then is not None
    assert len(run_all(connection)) == 4
    assert state(connection, made.then.id) == "waiting"
    assert len(run_all(connection)) == 1
    assert run_all(connection) == [made.then.id]


def test_the_deleted_dead_job_of_a_group_cancels_what_follows(connection: Connection) -> None:
    made = group(connection, 2)
    assert made.then is not None
    dead, _ = run_all(connection, DEAD)
    do(connection, transitions.delete([dead]))
    do(connection, check_links())
    assert state(connection, made.then.id) == "cancelled"


def test_a_job_of_a_group_continues_what_waits_for_it_alone(connection: Connection) -> None:
    with connection.transaction():
        made = do(connection, group_store.enqueue_group(NewGroup([new(), new(), new()], new("outer"))))
    assert made.then is not None
    first = int(one(connection, "select min(id) from sereno.jobs where group_id is not null"))
    alone = after(connection, first)
    assert run_all(connection, count=1) == [first]
    assert states(connection, alone, made.then.id) == ["ready", "waiting"]
    assert do(connection, group_store.find_group(made.id)).remaining == 2


def test_jobs_of_two_groups_that_end_together_are_counted_apart(connection: Connection) -> None:
    with connection.transaction():
        made = [
            do(connection, group_store.enqueue_group(NewGroup([new() for _ in range(size)], new("outer"))))
            for size in (1, 3)
        ]
    small, large = (group.then.id for group in made if group.then is not None)
    assert len(run_all(connection, count=3)) == 3
    assert states(connection, small, large) == ["ready", "waiting"]
    assert [do(connection, group_store.find_group(group.id)).remaining for group in made] == [0, 1]
