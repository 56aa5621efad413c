"""Fixtures that run the command line in this process, or in a real one for exit codes, pipes and signals."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sereno.cli.main import main

Command = Callable[..., Result]
Process = Callable[..., subprocess.CompletedProcess[str]]

PROGRAM = "from sereno.cli.main import main; main(prog_name='sereno')"
SOURCES = Path(__file__).parents[2] / "src"


@pytest.fixture
def sereno(database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Run `sereno …` on the test's own database, outside any project."""
    monkeypatch.chdir(tmp_path)

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
