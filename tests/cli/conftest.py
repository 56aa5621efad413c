"""Fixtures that run the command line in this process, or in a real one for exit codes, pipes and signals."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sereno.cli.main import main
from tests import warm_process

Command = Callable[..., Result]
Process = Callable[..., subprocess.CompletedProcess[str]]

PROGRAM = "from sereno.cli.main import main; main(prog_name='sereno')"
SOURCES = Path(__file__).parents[2] / "src"


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
        command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
        given = process_environment(SERENO_DATABASE_URL=database_url) | environment
        return warm_process.run(command, cwd=tmp_path, env=given, timeout=60)

    return run


def process_environment(**more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SERENO_")}
    return inherited | {"PYTHONPATH": str(SOURCES)} | more
