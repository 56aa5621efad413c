"""Claims under limits by SQL keep the same guarantees as those of the Python worker, alone and together."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from sereno.jobs.attempt import Ending
from sereno.jobs.limits.lane_claim import LaneClaim
from tests.jobs.job_steps import Connection, decided, line
from tests.jobs.limits.lane_steps import Claimer
from tests.jobs.limits.test_lane_model import Lanes
from tests.jobs.public_sql.sql_worker import SqlWorker, outcome


class SqlClaimer(Claimer):
    """Uses the SQL functions in place of the worker's statements; has no state."""

    def __init__(self, connection: Connection, *, queue: str = "default", **_: Any) -> None:
        self.worker = SqlWorker(connection, queues=[queue], lease="1 hour")
        self.connection, self.queue, self.session = connection, queue, self.worker.session
        self.freed: dict[int, set[int]] = {}

    def plain(self, free_slots: int = 10) -> list[Any]:
        rows = self.worker.query(
            "select id, attempt from sereno.claim_plain(%s, %s, %s, %s, '{}', false)",
            [self.session, [self.queue], ["work"], free_slots],
        )
        return [ClaimedBySql(*row) for row in rows]

    def wake(self) -> int:
        return 0

    def claim(self, free_slots: int = 10, *, now: int | None = None, turned: bool = False) -> LaneClaim:  # noqa: ARG002 - chosen at random by the function
        most = free_slots if now is None else min(free_slots, now)
        jobs: list[Any] = [ClaimedBySql(job.id, job.attempt) for job in self.worker.claim(most)] if most else []
        return LaneClaim(
            jobs=jobs,
            missed=set(),
            more=set(),
            is_contended=False,
            blocking=set(),
            after={},
            elsewhere=set(),
            lacks_limiters=None,
            next_check=None,
        )

    def finish(self, claimed: Sequence[Any], ending: Any = None) -> set[int]:
        found = self.worker.settle(*(outcome(job, **as_outcome(ending)) for job in claimed))
        return {each.id for each in found if each.settled}

    def left(self, ids: Any, succeeded: Any = ()) -> None:
        pass


class ClaimedBySql:
    """A job claimed by SQL, with the fields that the model reads."""

    def __init__(self, job_id: int, attempt: int) -> None:
        self.id = job_id
        self.attempt = attempt


def as_outcome(ending: Ending) -> dict[str, Any]:
    """Return an outcome as a worker in another language would send it."""
    decision = decided(ending)
    fields: dict[str, Any] = {"name": decision.outcome}
    if decision.outcome in ("retry", "snooze"):
        fields["delay"] = decision.delay
    return fields


class SqlLanes(Lanes):
    """The first worker, which may stall in the middle of a claim, is a Python worker; the others use SQL."""

    def __init__(self) -> None:
        for connection in (self.connection, *self.lines):
            # A claim starts with random jobs; the seed makes that repeatable.
            connection.execute("select setseed(0.5)")
        super().__init__()

    def start(self, connection: Connection, queue: str) -> Claimer:
        made: Claimer = (
            super().start(connection, queue) if connection is self.lines[0] else SqlClaimer(connection, queue=queue)
        )
        self.alive.add(made.session)
        return made


@pytest.mark.slow
@pytest.mark.parametrize(
    "examples",
    [
        8,
        pytest.param(25, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
        pytest.param(1500, marks=[pytest.mark.storm, pytest.mark.timeout(3600)]),
    ],
)
def test_limits_hold_and_no_job_is_forgotten_by_sql_workers(database_url: str, examples: int) -> None:
    with ExitStack() as stack:
        SqlLanes.connection = stack.enter_context(line(database_url))
        SqlLanes.lines = (stack.enter_context(line(database_url)), stack.enter_context(line(database_url)))
        for opened in (SqlLanes.connection, *SqlLanes.lines):
            opened.execute("set lock_timeout = '5s'")
        run_state_machine_as_test(
            SqlLanes,
            settings=settings(
                max_examples=examples,
                stateful_step_count=40,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
