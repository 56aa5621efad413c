"""In this repository the examples share the PostgreSQL of the tests; elsewhere they use yours, or the embedded one."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.shared_server import shared_server
from tests.warm_process import WarmProcess


@pytest.fixture(scope="session")
def database_of_examples() -> Iterator[str]:
    """One database per test process; the kit gives each test an empty schema in it."""
    programs = os.environ.get("SERENO_TEST_POSTGRES_BIN")
    name = f"examples_{uuid.uuid4().hex[:12]}"
    with (
        shared_server(Path(programs) if programs else None) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        connection.execute(f"create database {name}".encode())
        yield url.replace("/postgres?", f"/{name}?", 1)
        connection.execute(f"drop database {name} with (force)".encode())


@pytest.fixture(autouse=True)
def _warm_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the workers of the kit from a process that has imported sereno already."""
    monkeypatch.setattr("sereno.testing.process.Popen", WarmProcess)


@pytest.fixture(autouse=True)
def _database(database_of_examples: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERENO_DATABASE_URL", database_of_examples)
