"""In the repository the examples share the PostgreSQL of the tests; elsewhere they use yours, or an embedded one."""

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from sereno.database.embedded import EmbeddedPostgres

IN_REPOSITORY = Path(__file__).parents[1].joinpath("tests", "shared_server.py").is_file()
if IN_REPOSITORY:
    from tests.shared_server import shared_server
    from tests.warm_process import WarmProcess


@pytest.fixture(scope="session")
def database_of_examples() -> Iterator[str]:
    """One database per test process; the kit gives each test an empty schema in it."""
    name = f"examples_{uuid.uuid4().hex[:12]}"
    with _server() as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create database {name}".encode())
        yield urlsplit(url)._replace(path=f"/{name}").geturl()
        connection.execute(f"drop database {name} with (force)".encode())


@contextmanager
def _server() -> Iterator[str]:
    """Return the URL of a PostgreSQL. Nothing is written to the database that the URL names."""
    if IN_REPOSITORY:
        programs = os.environ.get("SERENO_TEST_POSTGRES_BIN")
        with shared_server(Path(programs) if programs else None) as url:
            yield url
    elif given := os.environ.get("SERENO_DATABASE_URL") or os.environ.get("DATABASE_URL"):
        yield given
    else:
        with tempfile.TemporaryDirectory(prefix="sereno-examples-") as directory:
            # For root, the server runs as another user.
            Path(directory).chmod(0o755)
            with EmbeddedPostgres(Path(directory), parameters={"fsync": "off"}) as server:
                yield server.url


@pytest.fixture(autouse=True)
def _warm_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the workers of the kit from a process that has imported sereno already."""
    if IN_REPOSITORY:
        monkeypatch.setattr("sereno.testing.process.Popen", WarmProcess)


@pytest.fixture(autouse=True)
def _database(database_of_examples: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERENO_DATABASE_URL", database_of_examples)
