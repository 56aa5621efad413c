"""A long transaction elsewhere keeps dead rows in the index; with a floor, claims do not slow down."""

import json
from collections.abc import Iterator

import pytest

from sereno.database.statement import queries
from sereno.worker.claiming.floor import Floors
from tests.database.plans import nodes
from tests.jobs.job_steps import Connection, add, decided, end, line, session, take, wanted

JOBS = 60_000
BATCH = 500
QUEUE, PRIORITY = "default", 5


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with line(database_url) as opened:
        yield opened


def pages_read(connection: Connection, owner: int, floor: int) -> int:
    """Return how many pages a claim of one batch reads. The claim itself is rolled back."""
    queue = wanted(BATCH, QUEUE) | {"floors": [{"priority": PRIORITY, "floor": floor}]}
    params = {"session": owner, "tasks": ["work"], "queues": json.dumps([queue]), "wakes": 0, "served": ["default"]}
    with connection.transaction(force_rollback=True):
        explain = f"explain (analyze, buffers, format json) {queries('jobs/transitions')['claim']}".encode()
        found = connection.execute(explain, params).fetchone()
    assert found is not None
    (scan,) = (node for node in nodes(found[0][0]["Plan"]) if node.get("Index Name") == "jobs_ready")
    return int(scan["Shared Hit Blocks"] + scan["Shared Read Blocks"])


def drain(connection: Connection, owner: int, floors: Floors, count: int) -> None:
    """Claim and settle like a worker."""
    for _ in range(count // BATCH):
        batch = take(connection, owner, BATCH, floor=floors.of(QUEUE, PRIORITY))
        assert len(batch) == BATCH
        floors.claimed(QUEUE, PRIORITY, [job.ready_seq for job in batch], filled=True)
        end(connection, owner, batch, decided(), keep_history=False)


@pytest.mark.slow
def test_the_cost_of_claims_with_a_floor_is_constant_under_a_pinned_snapshot(
    connection: Connection, database_url: str
) -> None:
    add(connection, JOBS + BATCH)
    owner = session(connection)
    floors = Floors()
    with line(database_url) as pinning, pinning.transaction():
        pinning.execute("set transaction isolation level repeatable read")
        pinning.execute("select count(*) from sereno.jobs")

        drain(connection, owner, floors, BATCH)
        first = pages_read(connection, owner, floors.of(QUEUE, PRIORITY))
        drain(connection, owner, floors, JOBS - BATCH)
        last = pages_read(connection, owner, floors.of(QUEUE, PRIORITY))
        from_zero = pages_read(connection, owner, 0)

    assert last <= 2 * first
    assert from_zero > 10 * last, "a claim without a floor should be expensive here"
