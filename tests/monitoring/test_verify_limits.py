"""Each invariant of limits is violated once and reported; a real run violates none."""

import asyncio
from typing import Any

import psycopg
import pytest

from sereno import Limit, Rate, Sereno
from sereno.database.driver import drive
from sereno.error_text import describe
from sereno.jobs import operations as jobs
from sereno.jobs.attempt import Settlement
from sereno.jobs.filters import JobFilter
from tests.facts import advance, auntil, one
from tests.jobs.limits.lane_steps import Claimer, keys, put, set_limit
from tests.monitoring.verify_steps import broken, broken_inside, undone

Connection = psycopg.Connection[Any]


@pytest.fixture
def claimer(connection: Connection) -> Claimer:
    return Claimer(connection)


def _limit(connection: Connection, name: str, limit: Limit | Rate, queue: str | None = None) -> None:
    """Create a limit that has existed for long."""
    set_limit(connection, name, limit, queue)
    connection.execute("update sereno.limits set changed_at = changed_at - interval '1 hour'")


def _run_by_force(connection: Connection, claimer: Claimer, job_id: int) -> None:
    """Claim as a faulty worker would."""
    connection.execute(
        "update sereno.jobs set state = 'running', session_id = %s, attempt = attempt + 1, claimed_at = sereno.now(), "
        "ready_seq = null where id = %s",
        [claimer.session, job_id],
    )


@pytest.mark.slow
def test_limits_in_use_violate_nothing(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    _limit(connection, "slots", Limit(2))
    _limit(connection, "rate", Rate(5))
    _limit(connection, "queue", Limit(5), queue="default")
    for n in range(5):
        put(connection, keys(("slots", f"k{n % 2}"), ("rate", ""), fair=f"t{n % 3}"), 2)
        put(connection, keys(order=f"o{n % 2}", blocks=True))
    put(connection, None, 3)
    put(connection, keys(("unknown", "")), delay="1h")
    assert broken(app, None) == {}
    endings = [
        Settlement("retry", error=describe(OSError("x"))),
        Settlement("dead", reason="failed", error=describe(OSError("x")), failed=1),
    ]
    ended = 0
    for _ in range(4):
        claimer.wake()
        claimed = claimer.claim(5).jobs
        assert broken(app, None) == {}
        for job, ending in zip(claimed, endings, strict=False):
            claimer.finish([job], ending)
            ended += 1
            assert broken(app, None) == {}
        advance(connection, 60)
    assert ended > 2


@pytest.mark.slow
@pytest.mark.parametrize("of_queue", [False, True])
def test_more_running_jobs_than_slots_are_reported(
    app: Sereno, connection: Connection, claimer: Claimer, of_queue: bool
) -> None:
    _limit(connection, "l", Limit(2), queue="default" if of_queue else None)
    ids = put(connection, None if of_queue else keys(("l", "k")), 3)
    assert claimer.take() == ids[:2]
    assert broken(app) == {}
    _run_by_force(connection, claimer, ids[2])
    assert broken(app) == {"limits_respected": [ids[0]], "slots_counted": [ids[2]]}
    # Another key is another limiter.
    connection.execute("update sereno.limiters set held = held || %s::bigint", [ids[2]])
    assert broken(app) == {"limits_respected": [ids[0]]}


def test_jobs_that_share_a_slot_count_once(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    _limit(connection, "l", Limit(2))
    first, second, third = put(connection, keys(("l", "k")), 3)
    assert claimer.take() == [first, second]
    _run_by_force(connection, claimer, third)
    connection.execute("update sereno.limiters set held = %s", [[first, -1, second, third]])
    assert broken(app) == {}
    connection.execute("update sereno.limiters set held = %s", [[-1, first, -2, second, third]])
    assert broken(app) == {"limits_respected": [first]}


@pytest.mark.slow
def test_a_slot_shared_by_two_workers_is_reported(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    _limit(connection, "l", Limit(1))
    first, second = put(connection, keys(("l", "k")), 2)
    assert claimer.take() == [first]
    _run_by_force(connection, claimer, second)
    connection.execute("update sereno.limiters set held = %s", [[-1, first, second]])
    assert broken(app) == {}
    _run_by_force(connection, Claimer(connection), second)
    assert broken(app) == {"limits_respected": [first]}


@pytest.mark.slow
def test_a_lowered_limit_is_tolerated(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    _limit(connection, "l", Limit(3))
    ids = put(connection, keys(("l", "k")), 3)
    assert claimer.take() == ids
    advance(connection, 60)
    set_limit(connection, "l", Limit(1))
    assert broken(app) == {}
    advance(connection, 60)
    connection.execute("update sereno.jobs set claimed_at = sereno.now()")
    assert broken(app) == {"limits_respected": [ids[0]]}


@pytest.mark.slow
@pytest.mark.parametrize("what", ["limit", "order", "queue"])
def test_an_uncounted_running_job_is_reported(
    connection: Connection, claimer: Claimer, what: str, subtests: pytest.Subtests
) -> None:
    _limit(connection, "l", Limit(2), queue="default" if what == "queue" else None)
    of = {"limit": keys(("l", "k")), "order": keys(order="k"), "queue": None}[what]
    (job,) = put(connection, of)
    assert claimer.take() == [job]
    for change in ("update sereno.limiters set held = '{}'", "delete from sereno.limiters"):
        with subtests.test(change=change), undone(connection):
            connection.execute(change)
            assert broken_inside(connection) == {"slots_counted": [job]}


def test_a_limit_created_after_the_claim_is_tolerated(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    (job,) = put(connection, keys(fair="t1"))
    assert claimer.take() == [job]
    advance(connection, 60)
    set_limit(connection, "l", Limit(1), queue="default")
    assert broken(app) == {}


@pytest.mark.slow
@pytest.mark.parametrize("what", ["limit", "order"])
def test_a_slot_held_by_a_job_without_that_limit_is_reported(
    app: Sereno, connection: Connection, claimer: Claimer, what: str
) -> None:
    _limit(connection, "l", Limit(2))
    first, second = [
        *put(connection, keys(("l", "a")) if what == "limit" else keys(order="a")),
        *put(connection, keys(fair="t1")),
    ]
    assert claimer.take() == [first, second]
    connection.execute("update sereno.limiters set held = held || %s::bigint", [second])
    assert broken(app) == {"slots_not_leaked": [second]}


def test_a_slot_of_an_ended_job_is_free(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    _limit(connection, "l", Limit(2))
    put(connection, keys(("l", "a")))
    claimer.wake()
    claimer.finish(claimer.claim().jobs)
    assert one(connection, "select cardinality(held) from sereno.limiters") == 1
    assert broken(app) == {}


@pytest.mark.slow
def test_a_ready_job_unknown_to_its_lane_is_reported(
    connection: Connection, claimer: Claimer, subtests: pytest.Subtests
) -> None:
    put(connection, keys(fair="t2"), 2)
    (job,) = put(connection, keys(fair="t1"))
    claimer.wake()
    for change in (
        "update sereno.lanes set has_work = false where fair = 't1'",
        "delete from sereno.lanes where fair = 't1'",
    ):
        with subtests.test(change=change), undone(connection):
            connection.execute(change)
            assert broken_inside(connection) == {}
            advance(connection, 6)
            assert broken_inside(connection) == {"lanes_awake": [job]}
            connection.execute("update sereno.jobs set ready_seq = ready_seq where id = %s", [job])
            assert broken_inside(connection) == {}


@pytest.mark.slow
def test_a_waiting_lane_without_a_planned_check_is_reported(
    app: Sereno, connection: Connection, claimer: Claimer
) -> None:
    _limit(connection, "l", Limit(1))
    _, second = put(connection, keys(("l", "k")), 2)
    claimer.take()
    claimer.take()
    assert one(connection, "select waits_for is not null from sereno.lanes")
    assert broken(app) == {}
    connection.execute("update sereno.limiters set check_at = null")
    assert broken(app) == {"waits_are_checked": [second]}


def test_a_waiting_head_of_an_order_without_a_planned_check_is_reported(
    app: Sereno, connection: Connection, claimer: Claimer
) -> None:
    head, _ = put(connection, keys(order="k"), 2)
    claimer.wake()
    connection.execute("update sereno.lanes set waits_for = order_id")
    assert broken(app) == {"waits_are_checked": [head]}
    _run_by_force(connection, claimer, head)
    assert "waits_are_checked" not in broken(app)


def test_two_running_jobs_of_an_order_are_reported(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    head, second = put(connection, keys(order="k"), 2)
    assert claimer.take() == [head]
    _run_by_force(connection, claimer, second)
    connection.execute("update sereno.limiters set held = held || %s::bigint", [second])
    assert broken(app) == {"order_respected": [second]}


@pytest.mark.slow
@pytest.mark.parametrize("tried", [True, False])
def test_a_job_running_before_the_head_of_its_order_is_reported(
    app: Sereno, connection: Connection, claimer: Claimer, tried: bool
) -> None:
    (head,) = put(connection, keys(order="k"), delay="0" if tried else "10m")
    (second,) = put(connection, keys(order="k"))
    if tried:
        claimer.wake()
        claimer.finish(claimer.claim().jobs, Settlement("retry", delay=600.0, error=describe(OSError("x"))))
    assert one(connection, "select state from sereno.jobs where id = %s", head) == "scheduled"
    assert claimer.take() == []
    assert broken(app) == {}
    advance(connection, 60)
    _run_by_force(connection, claimer, second)
    assert broken(app)["order_respected"] == [second]


@pytest.mark.slow
def test_a_retried_dead_job_is_not_an_overtaken_head(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    head, second = put(connection, keys(order="k"), 2)
    claimer.wake()
    claimer.finish(claimer.claim().jobs, Settlement("dead", reason="failed", error=describe(OSError("x")), failed=1))
    assert claimer.take_all() == [second]
    drive(jobs.retry(JobFilter(ids=[head])), app.database.run)
    assert claimer.take_all() == []
    assert broken(app) == {}


@pytest.mark.slow
async def test_a_run_under_limits_violates_no_invariant(app: Sereno, connection: Connection) -> None:
    app.queue("default", concurrency=Limit(6))
    failed: set[int] = set()

    @app.task(concurrency=Limit(2, key="{tenant}"), fair_key="{tenant}", retry=3)
    async def sync(n: int) -> None:
        await asyncio.sleep(0.002)
        if n % 7 == 0 and n not in failed:
            failed.add(n)
            raise OSError("the first time")

    @app.task(rate=Rate(500))
    async def call() -> None: ...

    @app.task(order_key="{account}", retry=0)
    async def book(account: str, n: int) -> None:
        await asyncio.sleep(0.001)
        if n % 9 == 0:
            raise OSError("this one dies")

    @app.task
    async def plain() -> None: ...

    made = [sync.using(tenant=f"t{n % 5}").job(n) for n in range(100)]
    made += [call.job() for _ in range(50)]
    made += [book.job(f"a{n % 4}", n) for n in range(60)]
    made += [plain.job() for _ in range(40)]
    async with app.working({"default": 8}), app.working({"default": 8}):
        await app.aenqueue_many(made)
        # As if the limits had always been there: then nothing is excused.
        connection.execute("update sereno.limits set changed_at = changed_at - interval '1 hour'")
        checks = 0
        while one(connection, "select count(*) from sereno.jobs where state <> 'scheduled'"):
            assert await asyncio.to_thread(broken, app, None) == {}
            checks += 1
        advance(connection, 3600)
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs") == 0)
    assert checks > 1
    assert broken(app, None) == {}
