"""The page of a running job shows its newest chunks, as text."""

import psycopg

from tests.server.api.jobs.stream_client import RunningJob
from tests.server.web.html_reader import Read
from tests.server.web.jobs.job_rows import HOSTILE


def test_the_newest_chunks_of_a_running_job_are_shown(read: Read, connection: psycopg.Connection) -> None:
    job = RunningJob.start(connection, tenant="ann")
    job.emit(*[f"old {number}" for number in range(10)])
    job.emit(*[f"line {number}" for number in range(46)], HOSTILE, {"price": 7}, "x" * 60_000, "ask ana@example.lv")
    shown = read("jobs", job=str(job.id)).text
    assert 'id="job-chunks"' in shown
    assert "line 45" in shown
    assert "old 9" not in shown, "only the last fifty"
    assert "&lt;img src=x" in shown
    assert "<img src=x" not in shown
    assert "x" * 2_000 in shown
    assert "x" * 2_001 not in shown
    assert "ana@example.lv" not in shown
    assert "line 45" not in read("jobs", "viewer", "bob", job=str(job.id)).text
    job.end()
    assert "job-chunks" not in read("jobs", job=str(job.id)).text
