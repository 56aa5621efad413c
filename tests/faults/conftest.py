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

__all__ = ["log", "own_server", "worker"]


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedPostgres, Path]]:
    """A PostgreSQL server of the test, with fsync on, that it may crash."""
    directory = Path(tempfile.mkdtemp(prefix="sereno-storm-"))
    directory.chmod(0o755)
    server = EmbeddedPostgres(directory)
    with server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            migrate(connection)
            connection.execute("create table effects (n bigint)")
        yield server, directory
    shutil.rmtree(directory)
