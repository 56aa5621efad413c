"""A slow bulk operation frees its slot between batches, still ends, and can be stopped at once."""

from typing import Any

import psycopg
import pytest

from sereno import Sereno
from sereno.bulk import operations as bulk
from sereno.jobs import bulk as store
from sereno.jobs.filters import JobFilter
from sereno.jobs.rows import BulkOperation
from tests.facts import advance, auntil, one, state

# Jobs a second: one job per batch, and ten seconds between batches.
SLOW_RATE = 0.1
WAITS_FOR_ITS_NEXT_BATCH = "select state = 'scheduled' from sereno.jobs where task = %s"


@pytest.fixture
def ids(app: Sereno) -> list[int]:
    """Return the ids of three jobs that the operation matches."""

    @app.task(queue="elsewhere")
    def matching(number: int) -> None: ...

    return [matching.enqueue(number).id for number in range(3)]


@pytest.fixture
def work(app: Sereno) -> Any:
    @app.task
    def work() -> None: ...

    return work


def _begin(app: Sereno, ids: list[int]) -> int:
    return app.database.run(bulk.begin("job.cancel", JobFilter(ids=ids), rate=SLOW_RATE, actor="ann")).id


def _show(app: Sereno, number: int) -> BulkOperation:
    found = app.database.run(bulk.show(number))
    assert found is not None
    return found


@pytest.mark.slow
async def test_a_slow_operation_frees_its_slot_between_batches(
    app: Sereno, ids: list[int], work: Any, connection: psycopg.Connection
) -> None:
    number = _begin(app, ids)
    async with app.working({"default": 1}):
        for done in (1, 2):
            await auntil(lambda: _show(app, number).done >= done)  # noqa: B023 - awaited here
            other = work.enqueue().id
            await auntil(lambda: state(connection, other) == "succeeded")  # noqa: B023 - awaited here
            seen = _show(app, number)
            assert (seen.state, seen.done, seen.waits_for) == ("running", done, None)
            await auntil(lambda: one(connection, WAITS_FOR_ITS_NEXT_BATCH, store.TASK))
            advance(connection, 1 / SLOW_RATE)
            # The poll would also find it; this notification is faster.
            work.enqueue()
        await auntil(lambda: _show(app, number).is_over)
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs where task = %s", store.TASK) == 0)
    ended = _show(app, number)
    assert (ended.state, ended.done, ended.left_alone, ended.error) == ("done", 3, 0, None)
    assert {state(connection, each) for each in ids} == {"cancelled"}


async def test_an_operation_that_waits_for_its_next_batch_is_stopped_at_once(
    app: Sereno, ids: list[int], work: Any, connection: psycopg.Connection
) -> None:
    number = _begin(app, ids)
    async with app.working({"default": 1}):
        await auntil(lambda: one(connection, WAITS_FOR_ITS_NEXT_BATCH, store.TASK))
        assert _show(app, number).done == 1
        stopped = app.database.run(bulk.stop(number, actor="bob"))
        assert (stopped.state, stopped.done, stopped.stop_requested_by) == ("stopped", 1, "bob")
        # Its job runs once more and changes nothing.
        advance(connection, 1 / SLOW_RATE)
        work.enqueue()
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs where task = %s", store.TASK) == 0)
    assert sorted(str(state(connection, each)) for each in ids) == ["cancelled", "ready", "ready"]
    assert (_show(app, number).state, _show(app, number).done) == ("stopped", 1)
