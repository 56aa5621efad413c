"""The dairy in an empty schema, with a login of its own for the procedures."""

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest
from psycopg import sql

from sereno import Job, NewJob, Sereno
from sereno.monitoring.verify import verify
from sereno.testing.kit import Kit
from sereno.testing.process import WorkerProcess
from sereno.testing.test_support import JobState
from triggers.app import app, call
from triggers.install import install

RunSql = Callable[..., list[tuple[Any, ...]]]

# Seconds; processes start slowly on a busy machine.
PATIENCE = 90.0


@pytest.fixture
def login() -> str:
    """A name per test: roles are shared by all databases of a server."""
    return f"triggers_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def kit(sereno_kit: Callable[[Sereno], Kit], login: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    kit = sereno_kit(app)
    with psycopg.connect(app.url, autocommit=True) as connection:
        connection.execute("drop schema if exists triggers cascade")
        monkeypatch.setenv("TRIGGERS_LOGIN", login)
        address = asyncio.run(install(app))
        app.override(procedure_url=address)
        # Commands and workers that a test starts use the same.
        monkeypatch.setenv("SERENO_PROCEDURE_URL", address)
        yield kit
        for words in ("drop owned by {}", "drop role {}"):
            connection.execute(sql.SQL(words).format(sql.Identifier(login)))


@pytest.fixture
def run_sql(kit: Kit) -> Iterator[RunSql]:
    """Return a function that runs SQL; `sereno.` is replaced by the schema of the test."""
    with psycopg.connect(app.url, autocommit=True) as connection:

        def query_rows(query: str, *values: Any) -> list[tuple[Any, ...]]:
            text = query.replace("sereno.", f"{app.settings.schema}.")
            found = connection.execute(text.encode(), values or None)
            return found.fetchall() if found.description else []

        yield query_rows


@pytest.fixture
def assert_verified(kit: Kit) -> Callable[[], None]:
    """Return a function that checks that `sereno verify` finds nothing."""

    def well() -> None:
        broken = [result for result in app.database.run(verify(lease=app.settings.lease)) if not result.holds]
        assert broken == []

    return well


def job_of(procedure: str, concurrency_key: str = "norte", /, **params: Any) -> NewJob:
    """Return the job of a trigger that calls this procedure, with the defaults of retries and backoff."""
    job: NewJob = call.job("triggers", procedure, concurrency_key, params)
    return job


def enqueue(procedure: str, concurrency_key: str = "norte", /, **params: Any) -> Job[None]:
    """Enqueue a call, without a trigger."""
    job: Job[None] = call.enqueue("triggers", procedure, concurrency_key, params)
    return job


def jobs_of(kit: Kit, procedure: str, *, state: str | None = None) -> list[JobState]:
    """Return the jobs that call this procedure, in the order of their creation."""
    return [job for job in kit.jobs(call, state=state) if job.args["procedure"] == procedure]


def real_worker(kit: Kit) -> AbstractContextManager[WorkerProcess]:
    """Run `sereno worker`; all its processes are ended afterwards."""
    return kit.crash_worker("triggers.app:app")


def command(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run `sereno …` on the database and schema of the test."""
    environment = {**os.environ, "SERENO_DATABASE_URL": app.url, "SERENO_SCHEMA": app.settings.schema}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    line = [sys.executable, "-m", "sereno", *words]
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
