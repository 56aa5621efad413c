"""`jobs_v1` and `attempts_v1` show what the operations show, for jobs in every state."""

from dataclasses import fields
from typing import Any

import pytest
from psycopg.rows import dict_row

from sereno.error_text import describe
from sereno.jobs import operations as jobs
from sereno.jobs.attempt import Settlement
from sereno.jobs.lifecycle import STATES
from sereno.jobs.queries.rows import AttemptRow, JobLine, JobRow
from sereno.worker import sessions
from tests.manual_worker import ManualWorker

RETRY = Settlement("retry", delay=3600, reason="tried again", error=describe(OSError("connection reset")), failed=1)
AGAIN = Settlement("retry", reason="tried again", error=describe(OSError("busy")), failed=1)
SUCCESS = Settlement("succeeded", result=b'{"rows": 7}')
# Columns of the view that a row of the operations does not have, and the reverse.
IN_THE_VIEW_ONLY = {"schedule_id", "stands_for"}
NOT_IN_THE_VIEW = {"traceback", "ready_seq", "after", "on_dead", "after_group"}
# A live job has these in its attempts only; a list and the view show those of the last attempt that has ended.
OF_THE_LAST_ATTEMPT = {"reason", "error_type", "error_message"}


def _attempt(manual: ManualWorker, settlement: Settlement | None, **options: Any) -> int:
    """Enqueue a job and attempt it; without a settlement it keeps running."""
    job_id = manual.enqueue(queue="own", **options)
    _again(manual, settlement)
    return job_id


def _again(manual: ManualWorker, settlement: Settlement | None) -> int:
    worker = manual.worker(queues={"own": 1})
    (job,) = manual.claim(worker, queue="own")
    if settlement is not None:
        manual.settle(worker, job, settlement)
    return worker


def _make_jobs(manual: ManualWorker) -> None:
    """Bring jobs into every state, on all ways that leave different columns filled."""
    _attempt(manual, SUCCESS, tags=["a", "b"], tenant="r42", priority=2, trace="t1")
    _attempt(manual, RETRY, unique_key="k", tenant="r42")
    _attempt(manual, AGAIN)
    _again(manual, None)
    _attempt(manual, AGAIN)
    _again(manual, SUCCESS)
    manual.dead()
    manual.app.jobs.retry(manual.dead("gone"))
    manual.app.jobs.cancel(manual.enqueue(delay="1h"), reason="ordered twice")
    manual.enqueue(delay="1h", expires_at=manual.run_at(manual.enqueue()))
    manual.enqueue(after=[manual.enqueue()])
    manual.enqueue(queue="own")
    lost = _again(manual, None)
    manual.app.database.run(sessions.finish([lost], "dead"))
    assert len(manual.app.database.run(sessions.rescue())) == 1


@pytest.mark.slow
def test_a_job_is_the_same_in_the_view_and_in_the_operations(manual: ManualWorker) -> None:
    _make_jobs(manual)
    seen = _rows(manual, "select * from sereno.jobs_v1 order by id desc")
    assert {row["state"] for row in seen} == set(STATES)
    lines = manual.app.database.run(jobs.list_jobs(limit=100)).items
    assert [{field.name: row[field.name] for field in fields(JobLine)} for row in seen] == [
        {field.name: getattr(line, field.name) for field in fields(JobLine)} for line in lines
    ]
    names = {field.name for field in fields(JobRow)} - NOT_IN_THE_VIEW
    assert names | IN_THE_VIEW_ONLY == set(seen[0])
    for row in seen:
        shown = manual.app.database.run(jobs.show(row["id"])).job
        compared = names - (OF_THE_LAST_ATTEMPT if shown.finished_at is None else set())
        assert {name: row[name] for name in compared} == {name: getattr(shown, name) for name in compared}


def test_every_attempt_is_the_same_in_the_view_and_in_the_operations(manual: ManualWorker) -> None:
    _make_jobs(manual)
    names = [field.name for field in fields(AttemptRow) if field.name != "traceback"]
    found: dict[int, list[dict[str, Any]]] = {}
    for row in _rows(manual, "select * from sereno.attempts_v1 order by job_id, number"):
        found.setdefault(row.pop("job_id"), []).append(row)
    assert {row["outcome"] for rows in found.values() for row in rows} >= {
        *("running", "retry", "crash", "dead", "succeeded")
    }
    for line in manual.app.database.run(jobs.list_jobs(limit=100)).items:
        shown = manual.app.database.run(jobs.show(line.id)).attempts
        assert found.get(line.id, []) == [{name: getattr(attempt, name) for name in names} for attempt in shown]


def _rows(manual: ManualWorker, query: str) -> list[dict[str, Any]]:
    with manual.connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query.encode()).fetchall()
