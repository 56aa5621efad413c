"""`sereno verify` reports chunks that are missing, misplaced or left behind."""

import json
from typing import Any

import pytest

from sereno.monitoring.verify import verify
from tests.manual_worker import ManualWorker
from tests.monitoring.verify_steps import LEASE, broken_inside, undone


def write(manual: ManualWorker, job: int, attempt: int, number: int, *values: Any) -> None:
    manual.connection.execute(
        "insert into sereno.job_chunks (job_id, attempt, number, chunks) values (%s, %s, %s, %s::jsonb)",
        [job, attempt, number, json.dumps(values)],
    )


@pytest.fixture
def job(manual: ManualWorker) -> int:
    """A running job at attempt 1 with three chunks in two batches."""
    session = manual.worker()
    made = manual.enqueue()
    manual.claim(session)
    manual.connection.execute("insert into sereno.job_streams (job_id, attempt) values (%s, 1)", [made])
    write(manual, made, 1, 2, "a", "b")
    write(manual, made, 1, 3, "c")
    return made


def test_chunks_in_order_violate_nothing(manual: ManualWorker, job: int) -> None:
    checked = manual.app.database.run(verify(lease=LEASE))
    assert job
    assert [result.name for result in checked if not result.holds] == []


@pytest.mark.slow
def test_missing_chunks_are_reported(manual: ManualWorker, job: int, subtests: pytest.Subtests) -> None:
    for change in (
        "delete from sereno.job_chunks where number = 2",
        "update sereno.job_chunks set number = 4 where number = 3",
        """update sereno.job_chunks set chunks = '["c", "d"]' where number = 3""",
    ):
        with subtests.test(change=change), undone(manual.connection):
            manual.connection.execute(change.encode())
            assert broken_inside(manual.connection) == {"chunks_in_order": [job]}


@pytest.mark.slow
def test_chunks_of_another_attempt_are_reported(manual: ManualWorker, job: int, subtests: pytest.Subtests) -> None:
    for change in (
        "delete from sereno.job_streams",
        "update sereno.job_streams set attempt = 2",
        "update sereno.job_chunks set attempt = 2; update sereno.job_streams set attempt = 2",
    ):
        with subtests.test(change=change), undone(manual.connection):
            manual.connection.execute(change.encode())
            broken = broken_inside(manual.connection)
            broken.pop("chunks_in_order", None)
            assert broken == {"chunks_of_attempts": [job]}
