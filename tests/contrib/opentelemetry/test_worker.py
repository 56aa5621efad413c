"""What a real worker sends, also from the process of an isolated task."""

import json
import signal
from pathlib import Path

import psycopg
import pytest
from opentelemetry.trace import Tracer

from tests.acceptance.conftest import WorkerProcess
from tests.contrib.opentelemetry import traced_app
from tests.contrib.opentelemetry.conftest import only
from tests.contrib.opentelemetry.otlp_receiver import OtlpReceiver, values
from tests.facts import one, until


@pytest.mark.slow
def test_a_worker_that_stops_has_sent_everything(
    database_url: str, connection: psycopg.Connection, receiver: OtlpReceiver, tracer: Tracer, tmp_path: Path
) -> None:
    app = traced_app.app
    app.override(database_url=database_url)
    app.database.forget_url()
    for task in (traced_app.together, traced_app.alone):
        task.enqueue()
    app.close()
    worker = WorkerProcess(
        database_url,
        tmp_path / "log",
        app="tests.contrib.opentelemetry.traced_app:app",
        TRACED_APP_RECEIVER=receiver.url(""),
    )
    try:
        until(lambda: one(connection, "select count(*) from sereno.history") == 2)
        worker.signal(signal.SIGTERM)
        assert worker.process.wait(30) == 0
    finally:
        worker.process.kill()
    lines = [json.loads(line) for line in worker.log_text().splitlines() if line.startswith("{")]
    for task in (traced_app.together, traced_app.alone):
        sent = only(receiver.named(f"enqueue {task.name}"))
        processed = only(receiver.named(f"process {task.name}"))
        assert processed.parent_span_id == sent.span_id
        (record,) = [each for each in receiver.records if each.body.string_value == task.name]
        assert (record.trace_id, record.span_id) == (processed.trace_id, processed.span_id)
        (line,) = [each for each in lines if each["msg"] == task.name]
        assert (line["trace_id"], line["span_id"]) == (processed.trace_id.hex(), processed.span_id.hex())
    ran = {values(point)["sereno.task"]: point.count for point in receiver.points("messaging.process.duration")}
    assert ran == {task.name: 1 for task in (traced_app.together, traced_app.alone)}
