"""Jobs of one order run one after another; a head that was blocked is found again afterwards."""

import pytest

from sereno import Cancel, Dead, Retry
from sereno.jobs import pauses, transitions
from sereno.jobs.limits import store as limits
from sereno.jobs.limits.limit import Limit, Rate
from tests.facts import advance
from tests.jobs.job_steps import Connection, do, line
from tests.jobs.limits.lane_steps import LONGEST_CHECK_INTERVAL, Claimer, keys, limited_job, put, set_limit

# A claim with one free slot, and one with more: they take different paths.
few_and_many_slots = pytest.mark.parametrize("free_slots", [1, 5])


def make_limiters_due(connection: Connection) -> None:
    """Advance the clock until every limiter is due."""
    advance(connection, LONGEST_CHECK_INTERVAL + 1)


@few_and_many_slots
def test_jobs_of_an_order_run_one_after_another_as_enqueued(database_url: str, free_slots: int) -> None:
    with line(database_url) as connection:
        claimer = Claimer(connection)
        made = put(connection, keys(order="a"), 3) + put(connection, keys(order="a"), 1, priority=0)
        for job_id in made:
            claimer.wake()
            got = claimer.claim(free_slots).jobs
            assert [job.id for job in got] == [job_id]
            assert claimer.take(free_slots) == []
            claimer.finish(got)


@pytest.mark.slow
@few_and_many_slots
@pytest.mark.parametrize("ending", [Retry(after=30), Dead("no"), Cancel("no"), None])
def test_later_jobs_of_an_order_wait_only_for_a_retry(database_url: str, free_slots: int, ending: object) -> None:
    with line(database_url) as connection:
        claimer = Claimer(connection)
        first, second = put(connection, keys(order="a"), 2)
        claimer.wake()
        claimer.finish(claimer.claim(free_slots).jobs, ending)
        waits = isinstance(ending, Retry)
        assert claimer.take_all(free_slots) == ([] if waits else [second])
        if waits:
            advance(connection, 31)
            do(connection, transitions.promote())
            assert claimer.take_all(free_slots) == [first]


@pytest.mark.slow
@few_and_many_slots
def test_a_dead_letter_blocks_its_key_until_it_is_deleted(database_url: str, free_slots: int) -> None:
    with line(database_url) as connection:
        claimer = Claimer(connection)
        first, second = put(connection, keys(order="a", blocks=True), 2)
        claimer.wake()
        claimer.finish(claimer.claim(free_slots).jobs, Dead("no"))
        make_limiters_due(connection)
        assert claimer.take_all(free_slots) == []
        other = put(connection, keys(order="b", blocks=True))
        assert claimer.take_all(free_slots) == other
        do(connection, transitions.delete([first]))
        assert claimer.take_all(free_slots) == [second]


@few_and_many_slots
def test_a_dead_letter_that_is_retried_runs_first(database_url: str, free_slots: int) -> None:
    with line(database_url) as connection:
        claimer = Claimer(connection)
        first, second = put(connection, keys(order="a", blocks=True), 2)
        claimer.wake()
        claimer.finish(claimer.claim(free_slots).jobs, Dead("no"))
        assert claimer.take_all(free_slots) == []
        assert do(connection, transitions.requeue([first])) == [first]
        claimer.wake()
        got = claimer.claim(free_slots).jobs
        assert [job.id for job in got] == [first]
        claimer.finish(got)
        assert claimer.take_all(free_slots) == [second]


@few_and_many_slots
def test_a_head_of_a_paused_tenant_is_found_after_resume(database_url: str, free_slots: int) -> None:
    with line(database_url) as connection:
        claimer = Claimer(connection)
        made = put(connection, keys(order="a"), tenant="t")
        do(connection, pauses.pause("tenant", "t", actor="me"))
        assert claimer.take(free_slots) == []
        do(connection, pauses.resume("tenant", "t"))
        make_limiters_due(connection)
        assert claimer.take_all(free_slots) == made


@few_and_many_slots
def test_a_head_that_one_worker_does_not_know_is_found_by_another(database_url: str, free_slots: int) -> None:
    with line(database_url) as connection:
        made = put(connection, keys(order="a"))
        assert Claimer(connection, tasks=["other"]).take(free_slots) == []
        make_limiters_due(connection)
        assert Claimer(connection).take_all(free_slots) == made


@few_and_many_slots
def test_a_head_that_was_locked_for_a_moment_is_found_again(database_url: str, free_slots: int) -> None:
    """An enqueue with the same unique key locks the existing job without changing it."""
    with line(database_url) as connection, line(database_url) as caller:
        claimer = Claimer(connection)
        made = put(connection, keys(order="a"), unique_key="u")
        with caller.transaction():
            do(caller, transitions.enqueue([limited_job(keys(order="a"), unique_key="u")]))
            assert claimer.take(free_slots) == []
        make_limiters_due(connection)
        assert claimer.take_all(free_slots) == made


@few_and_many_slots
def test_a_head_that_gets_another_key_no_longer_blocks(database_url: str, free_slots: int) -> None:
    with line(database_url) as connection:
        claimer = Claimer(connection)
        put(connection, keys(order="a"), unique_key="u", delay=3600)
        behind = put(connection, keys(order="a"))
        assert claimer.take(free_slots) == []
        put(connection, keys(order="b"), unique_key="u", on_conflict="replace", delay=3600)
        make_limiters_due(connection)
        assert claimer.take_all(free_slots) == behind


@few_and_many_slots
@pytest.mark.parametrize("action", ["cancel", "delete"])
def test_a_removed_head_unblocks_the_next_job(database_url: str, free_slots: int, action: str) -> None:
    with line(database_url) as connection:
        claimer = Claimer(connection)
        head = put(connection, keys(order="a"), delay=3600)
        behind = put(connection, keys(order="a"))
        assert claimer.take(free_slots) == []
        do(connection, transitions.cancel(head, "no") if action == "cancel" else transitions.delete(head))
        # A worker that does not know of the lane: the removal itself must wake it.
        assert Claimer(connection).take(free_slots) == behind


@pytest.mark.slow
@few_and_many_slots
def test_two_lanes_of_one_order_with_fair_keys_do_not_block_each_other(database_url: str, free_slots: int) -> None:
    """The head is in the lane with the later turn; the other lane has nothing to give."""
    with line(database_url) as connection:
        claimer = Claimer(connection)
        do(connection, limits.weigh("light", 0.01, "me"))
        # It already had its share: its turn is far behind that of a new lane.
        ahead = put(connection, keys(fair="light"), 2)
        assert claimer.take_all(free_slots) == ahead
        head = put(connection, keys(fair="light", order="a"))
        behind = put(connection, keys(fair="normal", order="a"))
        found: list[int] = []
        for _ in range(10):
            make_limiters_due(connection)
            claimer.wake()
            got = claimer.claim(free_slots).jobs
            found += [job.id for job in got]
            if got:
                claimer.finish(got)
        assert found == head + behind


@pytest.mark.slow
@pytest.mark.parametrize("limit", [Limit(1), Rate(1, per="1h")])
@pytest.mark.parametrize("fair", [None, "f"])
def test_a_queue_limit_reserves_nothing_for_missing_plain_jobs(
    database_url: str, limit: Limit | Rate, fair: str | None
) -> None:
    with line(database_url) as connection:
        set_limit(connection, "default.own", limit, queue="default")
        set_limit(connection, "each", Limit(5))
        claimer = Claimer(connection)
        made = put(connection, keys(("each", ""), fair=fair), priority=9)
        assert claimer.take_all(5) == made
