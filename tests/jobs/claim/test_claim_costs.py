"""A claim reads a bounded number of rows, with any number of ready jobs to skip."""

from collections.abc import Iterator

import pytest

from sereno.jobs import transitions
from sereno.jobs.job import PRIORITIES
from sereno.worker.claiming import claim_ranges
from sereno.worker.claiming.claim_ranges import ClaimRanges
from sereno.worker.claiming.floor import Floors
from tests.facts import one
from tests.jobs.job_steps import Connection, add, do, line, session

pytestmark = pytest.mark.slow

MANY, WIDTH, SLOTS = 20_000, 1000, 10


@pytest.fixture
def connection(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """Treat every index as large and make every range small."""
    monkeypatch.setattr(claim_ranges, "SMALL_INDEX", 0)
    monkeypatch.setattr(claim_ranges, "NARROWEST", WIDTH)
    monkeypatch.setattr(claim_ranges, "WIDEST", WIDTH)
    with line(database_url) as opened:
        opened.execute("alter table sereno.jobs set (autovacuum_enabled = off)")
        yield opened


def entries_read(connection: Connection) -> int:
    """Return how many entries of the index of ready jobs were read so far."""
    connection.execute("select pg_stat_force_next_flush()")
    connection.execute("select 1")
    return int(one(connection, "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'jobs_ready'"))


class CountingClaimer:
    """Claims like the claimer of a worker, and records how many index entries each claim read."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.ranges = ClaimRanges(Floors())
        self.ranges.see(do(connection, transitions.ready_index()))
        self.session = session(connection, lease=3600)
        self.costs: list[int] = []

    def claim(self, now: float, *, back: bool) -> list[int]:
        self.ranges.begin(now, back=back)
        before = entries_read(self.connection)
        item = {"queue": "default", "slots": SLOTS, "floors": self.ranges.steps("default", PRIORITIES)}
        found = do(self.connection, transitions.claim(self.session, ["work"], [item]))
        self.costs.append(entries_read(self.connection) - before)
        if len(found.jobs) < SLOTS:
            self.ranges.read_to_the_end("default", PRIORITIES, 0.0)
        self.ranges.learn(now, 0.1, found.ready, found.paused)
        return [job.id for job in found.jobs]


@pytest.mark.parametrize("reason", ["paused tenant", "paused task", "unknown task", "pinned snapshot"])
def test_claims_and_look_backs_read_a_bounded_number_of_rows(
    connection: Connection, database_url: str, reason: str
) -> None:
    with line(database_url) as pinning, pinning.transaction():
        pinning.execute("set transaction isolation level repeatable read")
        pinning.execute("select count(*) from sereno.jobs")
        add(connection, MANY, "work" if reason == "paused tenant" else "other", tenant="big")
        if reason.startswith("paused"):
            kind, name = reason.split()[1], "big" if reason == "paused tenant" else "other"
            connection.execute("insert into sereno.pauses (kind, name, paused_by) values (%s, %s, 'me')", [kind, name])
        if reason == "pinned snapshot":
            connection.execute("delete from sereno.jobs")
        claimer = CountingClaimer(connection)
        (wanted,) = add(connection)
        assert claimer.claim(0.0, back=False) == [wanted], "a new job does not wait behind the others"
        for number in range(1, MANY // WIDTH + 3):
            assert claimer.claim(float(number), back=False) == []
        for number in range(100, 100 + MANY // WIDTH + 3):
            assert claimer.claim(float(number), back=True) == []
        assert max(claimer.costs) <= 2 * WIDTH + 2 * SLOTS
        if reason != "pinned snapshot":
            assert sum(claimer.costs) >= 2 * MANY, "everything was read in the end"


def test_a_late_commit_far_below_the_floor_is_found_by_the_look_backs_of_one_pass(
    connection: Connection, database_url: str
) -> None:
    with line(database_url) as late, late.transaction():
        (job,) = add(late)
        add(connection, MANY, tenant="big")
        connection.execute("insert into sereno.pauses (kind, name, paused_by) values ('tenant', 'big', 'me')")
        claimer = CountingClaimer(connection)
        for number in range(MANY // WIDTH + 3):
            assert claimer.claim(float(number), back=False) == []
    assert claimer.claim(100.0, back=False) == []
    found = [id_ for number in range(MANY // WIDTH + 3) for id_ in claimer.claim(101.0 + number, back=True)]
    assert found == [job]
