"""A sweep of lanes and limiters deletes only unused ones, and reads each row a bounded number of times."""

import psycopg
import pytest

from sereno.jobs.limits import store as limits
from sereno.jobs.limits.limit import Limit, Rate
from tests.facts import advance, one
from tests.jobs.job_steps import do, line
from tests.jobs.limits.lane_steps import Claimer, keys, put, set_limit

KEYS, PAGE = 2000, 500


def fill(connection: psycopg.Connection) -> None:
    """Create equal numbers of keys in use and keys unused for two hours; their ids may be negative."""
    connection.execute("insert into sereno.limits (name, kind, slots) values ('l', 'slots', 2)")
    for half, age in ((0, "10 minutes"), (1, "2 hours")):
        ids = f"i * 2 + {half} - {KEYS}"
        connection.execute(
            f"insert into sereno.limiters (id, limit_name, key, used_at) "
            f"select {ids}, 'l', 'k' || i, sereno.now() - interval '{age}' "
            f"from generate_series(1, {KEYS}) as i".encode()
        )
        connection.execute(
            f"insert into sereno.lanes (id, queue, keys, limiters, units, band, turn, has_work, served_at) "
            f"select {ids}, 'q', '{{}}', array[i], '{{1}}', 5, i, false, sereno.now() - interval '{age}' "
            f"from generate_series(1, {KEYS}) as i".encode()
        )


@pytest.mark.slow
@pytest.mark.parametrize("table", ["lanes", "limiters"])
def test_a_sweep_reads_each_row_a_bounded_number_of_times(
    database_url: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP", PAGE)
    sweep = {"lanes": limits.sweep_lanes, "limiters": limits.sweep_limiters}[table]
    read = "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relid = %s::regclass"
    with line(database_url) as connection:
        fill(connection)
        with connection.transaction():
            place: int | None = limits.FIRST
            pages = 0
            while place is not None:
                place = do(connection, sweep(place))
                pages += 1
            assert one(connection, f"select count(*) from sereno.{table}") == KEYS
            examined = one(connection, read, f"sereno.{table}") - KEYS
        assert pages == 2 * KEYS / PAGE + 1
        # Each row is read with its page; idle ones again when they are locked and deleted.
        assert examined <= 2 * KEYS + 2 * KEYS + PAGE


@pytest.mark.parametrize("limit", [Limit(2), Rate(2, per="10d", burst=2)])
def test_a_sweep_frees_no_slot_and_no_token(database_url: str, limit: Limit | Rate) -> None:
    """Claims that fill all free slots make no lane wait: only what they took keeps the limiter in use."""
    with line(database_url) as connection:
        set_limit(connection, "one", limit)
        claimer = Claimer(connection)
        put(connection, keys(("one", "")), 2)
        assert [len(claimer.take(free_slots=1)) for _ in range(2)] == [1, 1]
        assert one(connection, "select check_at is null from sereno.limiters")
        advance(connection, 7200)
        do(connection, limits.sweep_limiters())
        put(connection, keys(("one", "")))
        assert claimer.take_all() == []
