"""Claims by SQL and claims of lanes read a bounded number of rows, with any number of jobs to skip."""

from collections.abc import Callable, Iterator

import pytest

from sereno.jobs import pauses
from sereno.jobs.limits import lane_claim
from sereno.jobs.limits.limit import Limit
from tests.facts import advance, one
from tests.jobs.job_steps import Connection, add, do, line
from tests.jobs.limits.lane_steps import Claimer, keys, put, set_limit
from tests.jobs.public_sql.sql_worker import SqlWorker

MANY, FLOOR, BACK, LANES = 4000, 100, 400, 200
REASONS = [
    "tenant",
    pytest.param("task", marks=pytest.mark.slow),
    pytest.param("unknown task", marks=pytest.mark.slow),
]


@pytest.fixture
def connection(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """Make every bound on rows small."""
    monkeypatch.setattr(lane_claim, "MOST_ROWS", LANES)
    monkeypatch.setattr(lane_claim, "FEWEST_ROWS", 10)
    with line(database_url) as opened:
        opened.execute("alter table sereno.jobs set (autovacuum_enabled = off)")
        opened.execute(
            "create or replace function sereno.most_read(part text) returns integer language sql immutable as "
            f"$$ select case part when 'back' then {BACK} when 'floor' then {FLOOR} else {LANES} end $$".encode()
        )
        yield opened


def pause(connection: Connection, reason: str) -> None:
    if reason != "unknown task":
        do(connection, pauses.pause("tenant" if reason == "tenant" else "task", "big", actor="me"))


def fill(connection: Connection, reason: str, of: dict[str, object] | None = None) -> None:
    """Create many jobs that cannot be claimed."""
    options = {"tenant": "big"} if reason == "tenant" else {"task": "big"}
    put(connection, of, MANY, **options)


def count_reads(connection: Connection, index: str, action: Callable[[], list[int]], costs: list[int]) -> list[int]:
    """Return the result of the action; add the number of index entries that it read to the costs."""

    def read() -> int:
        connection.execute("select pg_stat_force_next_flush()")
        connection.execute("select 1")
        return int(one(connection, "select idx_tup_read from pg_stat_user_indexes where indexrelname = %s", index))

    before = read()
    found = action()
    costs.append(read() - before)
    return found


def tasks(reason: str) -> list[str]:
    return ["work"] if reason == "unknown task" else ["work", "big"]


@pytest.mark.slow
@pytest.mark.parametrize("queue_limit", [False, True])
@pytest.mark.parametrize("reason", REASONS)
def test_a_claim_by_sql_reads_a_bounded_number_of_rows(connection: Connection, reason: str, queue_limit: bool) -> None:
    if queue_limit:
        set_limit(connection, "whole", Limit(100), queue="default")
    fill(connection, reason)
    (behind,) = add(connection)
    pause(connection, reason)
    worker = SqlWorker(connection, tasks=tasks(reason), lease="1 hour")
    costs: list[int] = []

    def claim() -> list[int]:
        return count_reads(connection, "jobs_ready", lambda: [job.id for job in worker.claim()], costs)

    found = claim()
    (new,) = add(connection)
    found += claim()
    assert new in found, "a new job does not wait behind the others"
    for _ in range(2 * MANY // BACK):
        advance(connection, 31)
        found += claim()
    assert sorted(found) == [behind, new]
    # A queue with a limit of its own is read again after its limiters were created.
    assert max(costs) <= (4 if queue_limit else 2) * (2 * FLOOR + BACK) + 100
    assert sum(costs) >= 2 * MANY, "everything is read repeatedly"


@pytest.mark.slow
def test_a_job_whose_transaction_took_long_is_found_below_the_floor(connection: Connection, database_url: str) -> None:
    with line(database_url) as late, late.transaction():
        (job,) = add(late)
        fill(connection, "tenant")
        pause(connection, "tenant")
        worker = SqlWorker(connection, lease="1 hour")
        for _ in range(MANY // BACK // 2):
            advance(connection, 31)
            assert worker.claim() == []
    found: list[int] = []
    for _ in range(2 * MANY // BACK):
        advance(connection, 31)
        found += [each.id for each in worker.claim()]
    assert found == [job]


def test_a_worker_by_sql_starts_from_the_beginning_after_a_pause(connection: Connection) -> None:
    fill(connection, "tenant")
    pause(connection, "tenant")
    worker = SqlWorker(connection, lease="1 hour")
    assert worker.claim() == []
    assert one(connection, "select passed_over is not null from sereno.sessions")
    do(connection, pauses.resume("tenant", "big"))
    first = one(connection, "select array_agg(id order by id) from (select id from sereno.jobs order by id limit 10) j")
    assert [job.id for job in worker.claim(10)] == first
    assert one(connection, "select passed_over is null from sereno.sessions")


def lane_claims(connection: Connection, reason: str, by_sql: bool) -> Callable[[], list[int]]:
    if by_sql:
        worker = SqlWorker(connection, tasks=tasks(reason), lease="1 hour")
        return lambda: [job.id for job in worker.claim()]
    claimer = Claimer(connection, tasks=tasks(reason))
    return claimer.take


@pytest.mark.slow
@pytest.mark.parametrize("by_sql", [False, True])
@pytest.mark.parametrize("of", [keys(("each", "a")), keys(("each", "a"), fair="f")])
@pytest.mark.parametrize("reason", REASONS)
def test_a_job_of_a_lane_behind_many_skipped_ones_is_claimed(
    connection: Connection, reason: str, of: dict[str, object], by_sql: bool
) -> None:
    set_limit(connection, "each", Limit(100))
    fill(connection, reason, of)
    (behind,) = put(connection, of)
    pause(connection, reason)
    while do(connection, lane_claim.open_lanes(0))[0]:
        pass
    connection.execute("analyze sereno.jobs, sereno.lanes")
    claim = lane_claims(connection, reason, by_sql)
    costs: list[int] = []
    found: list[int] = []
    for _ in range(MANY // LANES + 5):
        found += count_reads(connection, "jobs_lane", claim, costs)
    assert found == [behind]
    scans = 5 if by_sql else 1
    assert max(costs) <= scans * (2 * LANES + 100)


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["resume", "time"])
def test_skipped_jobs_of_a_lane_are_read_again(connection: Connection, ends: str) -> None:
    """After a resume, and after a periodic wake-up, while other jobs of the lane wait."""
    of = keys(("each", "a"))
    set_limit(connection, "each", Limit(100))
    fill(connection, "tenant", of)
    put(connection, of, 500)
    pause(connection, "tenant")
    claimer = Claimer(connection)
    found: list[int] = []
    while len(found) < 20:
        found += claimer.take()
    assert one(connection, "select floor_seq > %s from sereno.lanes", MANY)
    if ends == "resume":
        do(connection, pauses.resume("tenant", "big"))
    else:
        connection.execute("delete from sereno.lane_wakes; update sereno.jobs set tenant = null where tenant = 'big'")
        connection.execute("delete from sereno.lane_wakes")
        assert do(connection, lane_claim.reread()) == 1
    first = one(connection, "select min(id) from sereno.jobs where state = 'ready'")
    assert first in claimer.take()


def test_a_lane_that_was_read_to_its_end_is_read_from_the_beginning_again(connection: Connection) -> None:
    of = keys(("each", "a"))
    set_limit(connection, "each", Limit(100))
    (paused,) = put(connection, of, tenant="big")
    put(connection, of, 20)
    do(connection, pauses.pause("tenant", "big", actor="me"))
    claimer = Claimer(connection)
    assert paused not in claimer.take_all()
    connection.execute("delete from sereno.pauses")
    connection.execute("delete from sereno.lane_wakes")
    assert claimer.take_all() == [paused]


@pytest.mark.slow
@pytest.mark.parametrize("by_sql", [False, True])
def test_a_skipped_job_is_claimed_after_its_pause_while_others_wait(connection: Connection, by_sql: bool) -> None:
    of = keys(("each", "a"))
    set_limit(connection, "each", Limit(1000))
    (paused,) = put(connection, of, tenant="big")
    put(connection, of, 200)
    do(connection, pauses.pause("tenant", "big", actor="me"))
    claim = lane_claims(connection, "tenant", by_sql)
    while not one(connection, "select coalesce(max(floor_seq), 0) > 20 from sereno.lanes"):
        assert paused not in claim()
    do(connection, pauses.resume("tenant", "big"))
    assert paused in claim()
    assert one(connection, "select count(*) from sereno.jobs where state = 'ready'") > 0, "there are other jobs"
