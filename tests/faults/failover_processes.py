"""Real processes of sereno on replicated servers, and the journal of what was enqueued."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg

from tests.acceptance.conftest import ROOT
from tests.warm_process import WarmProcess, run


class Processes:
    """Real processes of sereno with one address of all servers."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url = url
        self._directory = directory
        self._started: list[tuple[WarmProcess, Path]] = []

    def start(self, *words: str, **environment: str) -> WarmProcess:
        output = self._directory / f"{len(self._started)}.output"
        with output.open("wb") as file:
            process = WarmProcess(
                [sys.executable, "-m", *words],
                cwd=ROOT,
                env={**os.environ, **self.environment, **environment},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self._started.append((process, output))
        return process

    @property
    def environment(self) -> dict[str, str]:
        return {
            "SERENO_DATABASE_URL": self._url,
            "SERENO_LOG_FORMAT": "json",
            "SERENO_LEASE": "15",
            "SERENO_HEARTBEAT": "1",
            "TEST_LOG": str(self._directory / "handlers.log"),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }

    def text(self, process: WarmProcess) -> str:
        return next(output for started, output in self._started if started is process).read_text()

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of the CLI to its end."""
        return run(
            [sys.executable, "-m", "sereno", *words], timeout=60, cwd=ROOT, env={**os.environ, **self.environment}
        )

    def assert_running(self) -> None:
        assert [self.text(process) for process, _ in self._started if process.poll() is not None] == []

    def stop(self) -> None:
        for process, _ in self._started:
            if process.poll() is None:
                process.terminate()
        for process, output in self._started:
            process.wait(timeout=60)
            sys.stdout.write(output.read_text())


class Journal:
    """What the enqueuing processes have written down themselves."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def numbers(self, word: str) -> list[int]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [int(line.split()[1]) for line in lines if line.split()[0] == word]

    def grows(self, by: int = 20) -> Callable[[], bool]:
        before = len(self.numbers("accepted"))
        return lambda: len(self.numbers("accepted")) >= before + by


def assert_journal_holds(journal: Journal, connection: psycopg.Connection) -> None:
    """Every accepted job has succeeded and has its effect once; one with an unknown result at most once."""
    accepted, unknown = set(journal.numbers("accepted")), set(journal.numbers("unknown"))
    effects = connection.execute("select n, count(*) from effects group by n").fetchall()
    done = connection.execute("select (args ->> 'n')::bigint, state from sereno.history where task = 'effect'")
    states: dict[int, str] = dict(done.fetchall())
    assert {n for n, count in effects if count != 1} == set()
    assert accepted - {n for n, _ in effects} == set()
    assert {n for n, _ in effects} <= accepted | unknown
    assert {n for n in accepted if states.get(n) != "succeeded"} == set()
