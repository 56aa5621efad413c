"""Claims under limits: lost replies, stalled and dead workers, long transactions."""

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random

import pytest

from sereno import Retry
from sereno.jobs import transitions
from sereno.jobs.attempt import ReleasedAttempt
from sereno.jobs.job import ClaimedJob
from sereno.jobs.limits import lane_claim
from sereno.jobs.limits.limit import Limit, Rate
from sereno.worker import sessions
from tests.facts import TIMEOUT, advance, one, until, until_at_rest
from tests.jobs.job_steps import Connection, add, do, line
from tests.jobs.limits.lane_steps import LONGEST_CHECK_INTERVAL, Claimer, keys, limited_job, put, running, set_limit

ONE = keys(("one", ""))
# A role whose statements wait for an advisory lock when they read a wake-up: after they took their snapshot.
SLOW_READS = """
create role {role};
grant all on schema sereno to {role};
grant all on all tables in schema sereno to {role};
grant all on all sequences in schema sereno to {role};
grant execute on all functions in schema sereno to {role};
create function sereno.waits() returns boolean language plpgsql as
    'begin perform pg_advisory_xact_lock_shared(1); return true; end';
create policy slow on sereno.lane_wakes using (sereno.waits());
alter table sereno.lane_wakes enable row level security;
"""
WAITING = (
    "select count(*) from pg_locks where locktype = 'advisory' and not granted and database = "
    "(select oid from pg_database where datname = current_database())"
)


@contextmanager
def stalled(connection: Connection, claimer: Claimer) -> Iterator[list[int]]:
    """Run a claim that stalls before its commit; yield the result."""
    claimer.wake()
    with connection.transaction(force_rollback=True):
        yield [job.id for job in claimer.claim().jobs]


def make_limiters(claimer: Claimer) -> None:
    """Create the limiters of all lanes."""
    claimer.wake()
    found = claimer.connection.execute("select id from sereno.lanes").fetchall()
    do(claimer.connection, lane_claim.make_limiters([row[0] for row in found], [claimer.queue]))


def test_a_claim_whose_reply_was_lost_holds_its_slots_until_released(database_url: str) -> None:
    with line(database_url) as connection:
        set_limit(connection, "one", Limit(1))
        lossy, other = Claimer(connection), Claimer(connection)
        first, _ = put(connection, ONE, 2)
        assert lossy.take() == [first]
        assert other.take_all() == []
        advance(connection, LONGEST_CHECK_INTERVAL + 1)
        assert other.take_all() == [], "a slot is not freed by time alone"
        assert do(connection, transitions.release_unlisted(lossy.session, [], 5)) == 1
        advance(connection, LONGEST_CHECK_INTERVAL + 1)
        assert len(other.take_all()) == 1
        assert len(running(connection)) == 1


def test_the_slots_of_a_session_that_died_are_free_when_its_jobs_are_rescued(database_url: str) -> None:
    with line(database_url) as connection:
        set_limit(connection, "one", Limit(2))
        dying, other = Claimer(connection), Claimer(connection)
        made = put(connection, ONE, 3)
        assert dying.take() == made[:2]
        assert other.take_all() == []
        do(connection, sessions.finish([dying.session], "dead"))
        assert other.take_all() == [], "its jobs may still run"
        assert do(connection, sessions.rescue(everywhere=True)) == made[:2]
        assert len(other.take_all()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("limit", [Limit(2), Rate(2, per="1h", burst=2)])
def test_a_claim_that_is_rolled_back_changes_no_table(database_url: str, limit: Limit | Rate) -> None:
    tables = ("jobs", "limiters", "lanes", "lane_wakes", "shares", "limits")
    with line(database_url) as connection:
        set_limit(connection, "one", limit)
        claimer = Claimer(connection)
        made = put(connection, keys(("one", ""), fair="f"), 3)
        make_limiters(claimer)

        def contents() -> list[object]:
            return [connection.execute(f"table sereno.{table} order by 1".encode()).fetchall() for table in tables]

        before = contents()
        with stalled(connection, claimer) as got:
            assert len(got) == 2
            assert contents() != before
        assert contents() == before
        assert claimer.take_all() == made[:2]


@pytest.mark.slow
@pytest.mark.parametrize("is_new", [False, True], ids=["existing limiters", "new limiters"])
@pytest.mark.parametrize("limit", [Limit(1), Rate(1, per="1h")])
def test_a_stalled_claim_does_not_block_other_claims(database_url: str, limit: Limit | Rate, is_new: bool) -> None:
    with line(database_url) as first, line(database_url) as second:
        second.execute("set lock_timeout = '2s'")
        set_limit(first, "one", limit)
        set_limit(first, "each", Limit(1))
        stuck, active = Claimer(first), Claimer(second)
        if not is_new:
            put(first, ONE)
            put(first, keys(("each", "b")))
            active.finish(_claimed(active))
            # A due limiter may be read by any claim, also that of the stalled worker; here none is due.
            first.execute("update sereno.limiters set check_at = null, tokens = null")
            make_limiters(stuck)
        put(first, ONE, 2)
        with stalled(first, stuck) as got:
            assert len(got) <= 1
            assert got or is_new
            other = put(second, keys(("each", "b")))
            plain = add(second)
            put(second, ONE)
            assert active.wake() > 0
            assert active.take_all() == other
            assert [job.id for job in active.plain()] == plain
            assert do(second, lane_claim.hand_over([one(second, "select sereno.limiter_of('one', '')")])) == set()
        advance(first, LONGEST_CHECK_INTERVAL + 1)
        assert len(active.take_all()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("held", "new"),
    [
        (ONE, keys(("one", ""), ("each", "a"))),
        (keys(fair="f"), keys(("each", "a"), fair="f")),
        (keys(order="a"), keys(("each", "a"), order="a")),
        (ONE, ONE),
    ],
    ids=["a limit", "a fair key", "an order", "the lane"],
)
def test_a_stalled_claim_does_not_block_wake_ups_of_lanes(
    database_url: str, held: dict[str, object], new: dict[str, object]
) -> None:
    """Lanes that share limiters with the stalled claim are woken, and all lanes behind them."""
    with line(database_url) as first, line(database_url) as second:
        second.execute("set lock_timeout = '2s'")
        set_limit(first, "one", Limit(5))
        set_limit(first, "each", Limit(5))
        stuck, active = Claimer(first), Claimer(second)
        put(first, held)
        make_limiters(stuck)
        with stalled(first, stuck) as got:
            assert len(got) == 1
            put(second, new)
            other = put(second, keys(("each", "b")))
            active.wake()
            assert set(other) <= set(active.take_all())


def _claimed(claimer: Claimer) -> list[ClaimedJob]:
    claimer.wake()
    return claimer.claim().jobs


@pytest.mark.slow
@pytest.mark.parametrize("ending", [ReleasedAttempt("shutdown"), Retry(after=0)])
def test_a_slot_taken_again_by_the_same_job_is_not_free(database_url: str, ending: object) -> None:
    """The first worker still considers the limiter free; another worker has claimed the job again."""
    with line(database_url) as connection:
        set_limit(connection, "one", Limit(1))
        first, second = Claimer(connection), Claimer(connection)
        put(connection, ONE)
        first.finish(_claimed(first), ending)
        do(connection, transitions.promote())
        advance(connection, 1)
        do(connection, transitions.promote())
        assert len(second.take()) == 1
        put(connection, ONE, 5)
        assert first.take_all() == []
        assert second.take_all() == []
        assert len(running(connection)) == 1


def test_a_worker_that_lost_its_job_does_not_free_the_slot_of_the_next_one(database_url: str) -> None:
    with line(database_url) as connection:
        set_limit(connection, "one", Limit(1))
        late, other = Claimer(connection), Claimer(connection)
        put(connection, ONE)
        got = _claimed(late)
        do(connection, transitions.release_unlisted(late.session, [], 0))
        assert len(other.take_all()) == 1
        put(connection, ONE, 5)
        assert late.finish(got) == set(), "the worker no longer holds the job"
        assert late.take_all() == []
        assert len(running(connection)) == 1


def _work(
    url: str, of: list[dict[str, object]], inside: dict[str, int], guard: threading.Lock, ended: list[int]
) -> None:
    rng = Random(threading.get_ident())
    with line(url) as connection:
        claimer = Claimer(connection)
        left = len(of)

        def is_done() -> bool:
            for job in _claimed(claimer):
                row = connection.execute("select keys from sereno.jobs where id = %s", [job.id]).fetchone()
                names = [] if row is None else [f"{name} {key}" for name, key, _ in row[0]["limits"]]
                with guard:
                    for name in names:
                        inside[name] = inside.get(name, 0) + 1
                        assert inside[name] == 1, f"two jobs hold {name}"
                if rng.random() < 0.5:
                    connection.execute("select pg_sleep(0.002)")
                with guard:
                    for name in names:
                        inside[name] -= 1
                    ended.append(job.id)
                claimer.finish([job])
            # All limiters are due at once: this test is about which job starts, not when.
            connection.execute(
                "update sereno.limiters set check_at = sereno.now() where id = any(array("
                "select id from sereno.limiters where check_at > sereno.now() for update skip locked))"
            )
            return len(ended) >= left

        until(is_done, TIMEOUT)


@pytest.mark.parametrize(
    "choices",
    [
        pytest.param([ONE], marks=pytest.mark.slow),
        [keys(("one", ""), ("each", "a")), keys(("each", "a"), ("each2", "b")), keys(("each2", "b"), ("one", ""))],
    ],
)
def test_concurrent_claims_never_put_two_jobs_into_one_slot(
    database_url: str, choices: list[dict[str, object]]
) -> None:
    with line(database_url) as connection:
        for name in ("one", "each", "each2"):
            set_limit(connection, name, Limit(1))
        of = [choices[number % len(choices)] for number in range(60)]
        do(connection, transitions.enqueue([limited_job(each) for each in of]))
        inside: dict[str, int] = {}
        ended: list[int] = []
        failures: list[BaseException] = []
        guard = threading.Lock()

        def work() -> None:
            try:
                _work(database_url, of, inside, guard, ended)
            except BaseException as error:  # noqa: BLE001 - reported below
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(ended) == len(set(ended)) == 60
        assert one(connection, "select count(*) from sereno.jobs") == 0


@pytest.mark.slow
@pytest.mark.parametrize("of", [ONE, keys(("one", ""), fair="f"), keys(fair="f"), keys(order="a")])
def test_a_job_whose_transaction_took_long_is_found(database_url: str, of: dict[str, object]) -> None:
    with line(database_url) as connection, line(database_url) as caller:
        set_limit(connection, "one", Limit(1000))
        claimer = Claimer(connection)
        with caller.transaction():
            (late,) = put(caller, of)
            put(connection, of, 30)
            for _ in range(40):
                if got := _claimed(claimer):
                    claimer.finish(got)
            assert one(connection, "select count(*) from sereno.jobs") == 0
        assert claimer.take_all() == [late]


def _rows_read(connection: Connection) -> int:
    """Return how many rows of jobs and lanes this connection has read and not reported to the statistics yet."""
    return int(
        one(
            connection,
            "select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) from pg_stat_xact_user_tables "
            "where schemaname = 'sereno' and relname in ('jobs', 'lanes')",
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("lanes_in_front", [1, 500])
def test_a_claim_does_not_read_the_exhausted_lanes_in_front(database_url: str, lanes_in_front: int) -> None:
    with line(database_url) as connection:
        set_limit(connection, "one", Limit(1))
        set_limit(connection, "each", Limit(100))
        claimer = Claimer(connection)
        connection.execute(
            "insert into sereno.jobs (task, queue, priority, keys, lane, state, ready_seq) "
            "select 'work', 'default', 0, keys, sereno.lane_of('default', keys), 'ready', nextval('sereno.ready_seq') "
            "from generate_series(1, 2000) as number, lateral (select jsonb_build_object('limits', jsonb_build_array("
            "jsonb_build_array('each', (number %% %s)::text, 1), jsonb_build_array('one', '', 1))) as keys) as made",
            [lanes_in_front],
        )
        while claimer.wake():
            pass
        connection.execute("analyze sereno.jobs, sereno.lanes, sereno.limiters")
        assert len(claimer.take_all()) == 1
        # The lanes in front find their limiter exhausted.
        waiting = "select count(*) from sereno.lanes where waits_for is not null"
        until_at_rest(
            lambda: claimer.take() or one(connection, "select bool_and(waits_for is not null) from sereno.lanes"),
            lambda: one(connection, waiting),
        )
        claimer.freed.clear()
        made = put(connection, keys(("each", "new")), 3, priority=9)
        claimer.wake()
        with connection.transaction():
            before = _rows_read(connection)
            assert sorted(job.id for job in claimer.claim().jobs) == made
            assert _rows_read(connection) - before < 100


def test_a_wake_up_is_not_lost_to_a_claim_that_ends_its_lane_meanwhile(database_url: str) -> None:
    """The claim commits after the statement that opens lanes took its snapshot, and before that locks the lane."""
    role = f"slow_{uuid.uuid4().hex[:12]}"
    with line(database_url) as connection, line(database_url) as slow, line(database_url) as other:
        set_limit(connection, "two", Limit(2))
        claimer = Claimer(connection)
        make_limiters(claimer)
        first = put(connection, keys(("two", "")))
        claimer.wake()
        connection.execute(SLOW_READS.format(role=role).encode())
        try:
            slow.execute(f"set role {role}".encode())
            other.execute("select pg_advisory_lock(1)")
            with ThreadPoolExecutor() as threads:
                with connection.transaction():
                    assert [job.id for job in claimer.claim().jobs] == first
                    second = put(other, keys(("two", "")))
                    opening = threads.submit(do, slow, lane_claim.open_lanes(0))
                    until(
                        lambda: one(other, "select count(*) from pg_locks where locktype = 'advisory' and not granted")
                    )
                other.execute("select pg_advisory_unlock(1)")
                assert opening.result(TIMEOUT)[0] == 1
            assert claimer.take() == second
        finally:
            connection.execute(f"drop owned by {role}; drop role {role}".encode())


def test_a_claim_returns_only_when_limiters_of_its_own_queues_are_due(database_url: str) -> None:
    """Otherwise every worker wakes up for every rate limit of all services, and finds nothing."""
    with line(database_url) as connection:
        set_limit(connection, "slow", Rate(1, "1m", burst=1))
        of_other, mine = Claimer(connection, queue="other"), Claimer(connection)
        put(connection, keys(("slow", "a")), 2, queue="other")
        of_other.wake()
        assert len(of_other.claim().jobs) == 1
        due_in = of_other.claim().next_check
        assert due_in is not None
        assert due_in > 0
        assert mine.claim().next_check is None
