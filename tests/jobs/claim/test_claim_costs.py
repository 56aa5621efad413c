"""A claim reads a bounded number of rows, however many ready jobs it has to pass over."""

from collections.abc import Iterator

import pytest

from sereno.jobs import transitions
from sereno.jobs.job import PRIORITIES
from sereno.worker import claim_ranges
from sereno.worker.claim_ranges import ClaimRanges
from sereno.worker.floor import Floors
from tests.facts import one
from tests.jobs.job_steps import Connection, add, do, line, session

MANY, WIDTH, ROOM = 20_000, 1000, 10


@pytest.fixture
def connection(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """Treat every index as large and make every range small."""
    monkeypatch.setattr(claim_ranges, "SMALL_INDEX", 0)
    monkeypatch.setattr(claim_ranges, "NARROWEST", WIDTH)
    monkeypatch.setattr(claim_ranges, "WIDEST", WIDTH)
    with line(database_url) as opened:
        opened.execute("alter table sereno.jobs set (autovacuum_enabled = off)")
        yield opened


def read(connection: Connection) -> int:
    """Return how many entries of the index of ready jobs were read so far."""
    connection.execute("select pg_stat_force_next_flush()")
    connection.execute("select 1")
    return int(one(connection, "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'jobs_ready'"))


class Reader:
    """Claims like the claimer of a worker, and records how many index entries each claim read."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.ranges = ClaimRanges(Floors())
        self.ranges.see(do(connection, transitions.ready_index()))
        self.session = session(connection, lease=3600)
        self.costs: list[int] = []

    def claim(self, now: float, *, back: bool) -> list[int]:
        self.ranges.begin(now, back=back)
        before = read(self.connection)
        item = {"queue": "default", "room": ROOM, "floors": self.ranges.steps("default", PRIORITIES)}
        found = do(self.connection, transitions.claim(self.session, ["work"], [item]))
        self.costs.append(read(self.connection) - before)
        if len(found.jobs) < ROOM:
            self.ranges.read_to_the_end("default", PRIORITIES, 0.0)
        self.ranges.learn(now, 0.1, found.ready, found.paused)
        return [job.id for job in found.jobs]


@pytest.mark.parametrize("why", ["paused tenant", "paused task", "unknown task", "pinned snapshot"])
def test_claims_and_look_backs_read_a_bounded_number_of_rows(
    connection: Connection, database_url: str, why: str
) -> None:
    with line(database_url) as pinning, pinning.transaction():
        pinning.execute("set transaction isolation level repeatable read")
        pinning.execute("select count(*) from sereno.jobs")
        add(connection, MANY, "work" if why == "paused tenant" else "other", tenant="big")
        if why.startswith("paused"):
            kind, name = why.split()[1], "big" if why == "paused tenant" else "other"
            connection.execute("insert into sereno.pauses (kind, name, paused_by) values (%s, %s, 'me')", [kind, name])
        if why == "pinned snapshot":
            connection.execute("delete from sereno.jobs")
        reader = Reader(connection)
        (wanted,) = add(connection)
        assert reader.claim(0.0, back=False) == [wanted], "what is new is not behind the others"
        for turn in range(1, MANY // WIDTH + 3):
            assert reader.claim(float(turn), back=False) == []
        for turn in range(100, 100 + MANY // WIDTH + 3):
            assert reader.claim(float(turn), back=True) == []
        assert max(reader.costs) <= 2 * WIDTH + 2 * ROOM
        if why != "pinned snapshot":
            assert sum(reader.costs) >= 2 * MANY, "everything was read in the end"


def test_a_late_commit_far_below_the_floor_is_found_by_the_look_backs_of_one_pass(
    connection: Connection, database_url: str
) -> None:
    with line(database_url) as late, late.transaction():
        (job,) = add(late)
        add(connection, MANY, tenant="big")
        connection.execute("insert into sereno.pauses (kind, name, paused_by) values ('tenant', 'big', 'me')")
        reader = Reader(connection)
        for turn in range(MANY // WIDTH + 3):
            assert reader.claim(float(turn), back=False) == []
    assert reader.claim(100.0, back=False) == []
    found = [id_ for turn in range(MANY // WIDTH + 3) for id_ in reader.claim(101.0 + turn, back=True)]
    assert found == [job]
