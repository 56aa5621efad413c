"""Fixtures that run the command line in this process, or in a real one for exit codes, pipes and signals."""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner, Result

from sereno.cli.main import main

Command = Callable[..., Result]
Process = Callable[..., subprocess.CompletedProcess[str]]

PROGRAM = "from sereno.cli.main import main; main(prog_name='sereno')"
SOURCES = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def shared_database_url(server_url: str, template: str) -> Iterator[str]:
    """Return the URL of a migrated database for all tests of a module."""
    with database_copy(server_url, template, f"shared_{uuid.uuid4().hex[:12]}") as url:
        yield url


@contextmanager
def database_copy(server_url: str, template: str, name: str) -> Iterator[str]:
    """Return the URL of a copy of a database, and drop it afterwards."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"create database {name} template {template} strategy file_copy".encode())
        yield server_url.replace("/postgres?", f"/{name}?", 1)
        connection.execute(f"drop database {name} with (force)".encode())


@pytest.fixture
def sereno(database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Run `sereno …` on the test's own database, outside any project."""
    monkeypatch.chdir(tmp_path)
    # Commands with an application add the current directory.
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(*arguments: str, **environment: str) -> Result:
        given = {"SERENO_DATABASE_URL": database_url, **environment}
        return CliRunner().invoke(main, [str(word) for word in arguments], prog_name="sereno", env=given)

    return run


@pytest.fixture
def process(database_url: str, tmp_path: Path) -> Process:
    """Run `sereno …` as a real process."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, *map(str, arguments)],
            check=False,
            cwd=tmp_path,
            env=process_environment(SERENO_DATABASE_URL=database_url) | environment,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )

    return run


def process_environment(**more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SERENO_")}
    return inherited | {"PYTHONPATH": str(SOURCES)} | more
