"""Lanes that wait: for a changed limit, a locked lane, a paused queue, their turn, and a job that runs elsewhere."""

from sereno.jobs import pauses, transitions
from sereno.jobs.limits import store as limits
from sereno.jobs.limits.limit import Limit
from tests.facts import one
from tests.jobs.job_steps import do, line
from tests.jobs.limits.lane_steps import Claimer, keys, put, set_limit

ONE = keys(("one", ""))


def test_waiting_lanes_notice_a_changed_limit(database_url: str) -> None:
    with line(database_url) as connection:
        set_limit(connection, "one", Limit(0))
        made = put(connection, ONE)
        assert Claimer(connection).take_all() == []
        set_limit(connection, "one", Limit(1))
        # A worker that knows nothing of the lane, and not by the time of its next check.
        assert Claimer(connection).take() == made


def test_a_wake_up_of_a_locked_lane_is_kept(database_url: str) -> None:
    with line(database_url) as connection, line(database_url) as other:
        set_limit(connection, "one", Limit(2))
        claimer = Claimer(connection)
        put(connection, ONE)
        claimer.wake()
        claimer.finish(claimer.claim().jobs)
        assert one(connection, "select has_work from sereno.lanes") is False
        made = put(connection, ONE)
        with other.transaction():
            other.execute("select from sereno.lanes for update")
            claimer.wake()
        assert claimer.take() == made


def test_lanes_of_a_paused_queue_give_nothing(database_url: str) -> None:
    with line(database_url) as connection:
        set_limit(connection, "one", Limit(5))
        claimer = Claimer(connection)
        made = put(connection, ONE, 2)
        do(connection, pauses.pause("queue", "default", actor="me"))
        assert claimer.take_all() == []
        do(connection, pauses.resume("queue", "default"))
        assert claimer.take_all() == made


def test_fair_keys_take_turns_by_weight_over_many_claims(database_url: str) -> None:
    with line(database_url) as connection:
        do(connection, limits.weigh("heavy", 3.0, "me"))
        claimer = Claimer(connection)
        made = {key: put(connection, keys(fair=key), 12) for key in ("light", "heavy")}
        found = [job for _ in range(8) for job in claimer.take(free_slots=1)]
        assert {key: len({*ids} & {*found}) for key, ids in made.items()} == {"light": 2, "heavy": 6}


def test_a_requeued_job_that_runs_elsewhere_holds_its_slot(database_url: str) -> None:
    with line(database_url) as connection:
        set_limit(connection, "one", Limit(1))
        first, second = Claimer(connection), Claimer(connection)
        made = put(connection, ONE)
        first.wake()
        first.finish(first.claim().jobs)
        assert do(connection, transitions.requeue(made)) == made
        assert second.take() == made
        put(connection, ONE)
        assert first.take_all() == [], "the first worker remembers that the job ended"
