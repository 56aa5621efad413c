"""Rates on a real PostgreSQL: each start spends its units, and nothing but time gives them back."""

from sereno.jobs.limits.limit import Rate
from tests.facts import advance
from tests.jobs.job_steps import line
from tests.jobs.limits.lane_steps import Claimer, keys, put, set_limit

HOUR = 3600.0


def test_each_start_spends_its_units(database_url: str) -> None:
    """Claims that fill all free slots make no lane wait, so only the tokens limit the next one."""
    with line(database_url) as connection:
        set_limit(connection, "one", Rate(10, per="1d", burst=10))
        claimer = Claimer(connection)
        put(connection, keys(("one", "", 5)), 4)
        assert [len(claimer.take(free_slots=1)) for _ in range(4)] == [1, 1, 0, 0]


def test_idle_time_saves_no_more_than_a_burst(database_url: str) -> None:
    with line(database_url) as connection:
        set_limit(connection, "one", Rate(1, per="1s", burst=2))
        claimer = Claimer(connection)
        put(connection, keys(("one", "")), 10)
        assert len(claimer.take()) == 2
        advance(connection, HOUR)
        assert len(claimer.take()) == 2


def test_a_clock_that_is_set_back_refills_no_tokens(database_url: str) -> None:
    with line(database_url) as connection:
        set_limit(connection, "one", Rate(1, per="1h", burst=1))
        claimer = Claimer(connection)
        put(connection, keys(("one", "")), 3)
        assert len(claimer.take(free_slots=1)) == 1
        advance(connection, -HOUR)
        assert claimer.take() == []
        # The hour that comes again was paid for already.
        advance(connection, HOUR + 1)
        assert claimer.take() == []
        advance(connection, HOUR)
        assert len(claimer.take()) == 1
