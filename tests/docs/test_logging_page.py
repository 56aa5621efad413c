"""The configurations of docs/recipes/logging.md: a real worker writes the fields of the job in every line."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.docs.pages import ROOT, only
from tests.docs.test_docs import TIMEOUT, environment
from tests.facts import one, until
from tests.warm_process import WarmProcess

PAGE = ROOT / "docs" / "recipes" / "logging.md"
# What the block does not show: a sync handler, and an error of the engine beside the lines of the application.
MORE = """
from {module} import app, log

@app.task(retry=0)
def weigh(order: int) -> None:
    log.info(f"weighing {{order}}")
    raise OSError("no scales")
"""
TEXT = re.compile(
    r"INFO job=(?P<job_id>\S+) task=(?P<task>\S+) tenant=(?P<tenant>\S+) trace=(?P<trace_id>\S+) (?P<event>.+)"
)


def as_text(line: str) -> dict[str, Any] | None:
    found = TEXT.fullmatch(line)
    return None if found is None else found.groupdict()


def as_json(line: str) -> dict[str, Any] | None:
    found: dict[str, Any] = json.loads(line)
    return found if "timestamp" in found else None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "read", "engine"),
    [
        ("stdlib_log", as_text, "ERROR job=3 task=weigh tenant=r42 trace=t-1 "),
        ("structlog_log", as_json, '"event": "job.dead"'),
        ("loguru_log", as_text, '"event": "job.dead"'),
    ],
)
def test_every_line_has_the_fields_of_its_job(
    module: str,
    read: Callable[[str], dict[str, Any] | None],
    engine: str,
    database_url: str,
    connection: psycopg.Connection,
    tmp_path: Path,
) -> None:
    (tmp_path / f"{module}.py").write_text(only(PAGE, "python", name=f"{module}.py"))
    (tmp_path / "more.py").write_text(MORE.format(module=module))
    worker = WarmProcess(
        [sys.executable, "-m", "sereno", "worker", "more.py:app"],
        cwd=tmp_path,
        env=environment(database_url),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    ids = {}
    try:
        until(lambda: one(connection, "select count(*) from sereno.sessions where state = 'alive'") == 1, TIMEOUT)
        for task in ("ship", "pack", "weigh"):
            query = "select sereno.enqueue(%s, '{\"order\": 7}', tenant => 'r42', trace => 't-1')"
            ids[task] = str(one(connection, query, task))
        until(lambda: one(connection, "select count(*) from sereno.history") == len(ids), TIMEOUT)
        worker.terminate()
        output = worker.communicate(timeout=TIMEOUT)[0]
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()
    lines = [found for line in output.splitlines() if (found := read(line)) is not None]
    of_jobs = {line["event"]: line for line in lines if line["event"].endswith(" 7")}
    assert {event: line["task"] for event, line in of_jobs.items()} == {
        "shipping 7": "ship",
        "label of 7": "ship",
        "packing 7": "pack",
        "weighing 7": "weigh",
    }, output
    for line in of_jobs.values():
        assert (str(line["job_id"]), line["tenant"], line["trace_id"]) == (ids[line["task"]], "r42", "t-1")
    # The line of the engine about the failure is written once: by the application's handler, or by sereno's own.
    assert len([line for line in output.splitlines() if engine in line and "weigh: dead" in line]) == 1, output
