"""Fixtures: the worker processes of the acceptance tests, and a PostgreSQL server that a test may crash."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from sereno.database.embedded import EmbeddedPostgres
from sereno.database.migrate import migrate
from tests.acceptance.conftest import log, worker
from tests.shared_server import MEMORY

__all__ = ["log", "own_server", "worker"]


@pytest.fixture
def own_server() -> Iterator[tuple[EmbeddedPostgres, Path]]:
    """A PostgreSQL server of the test, with fsync on, that it may crash.

    In memory if possible: a crash of the server, unlike one of the machine, loses nothing that was written to files.
    """
    directory = Path(tempfile.mkdtemp(prefix="sereno-storm-", dir=MEMORY if MEMORY.is_dir() else None))
    directory.chmod(0o755)
    server = EmbeddedPostgres(directory)
    with server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            migrate(connection)
            connection.execute("create table effects (n bigint)")
        yield server, directory
    shutil.rmtree(directory)
