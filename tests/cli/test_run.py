"""`sereno run`: worker, scheduler and server as one service, or some of them."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.cli.conftest import Command, process_environment
from tests.facts import TIMEOUT, one, until
from tests.plain_http import NO_CERTIFICATES
from tests.warm_process import WarmProcess

SHOP = """
from sereno import Every, Sereno

app = Sereno()


@app.schedule(Every("1s"))
@app.task
async def greet() -> None: ...
"""

Start = Callable[..., "Running"]


class Running:
    """A process that has printed its first line: its URL, or that it runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.output = process.stdout.readline()
        found = re.search(r"http://[^/]*:\d+/", self.output)
        self.url = found[0] if found else None

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT)


@pytest.fixture
def start(database_url: str, tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "shop.py").write_text(SHOP)
    running: list[Running] = []

    def run(*arguments: str, **environment: str) -> Running:
        process = WarmProcess(
            [sys.executable, "-m", "sereno", "run", "shop:app", "--port", "0", *arguments],
            cwd=tmp_path,
            env=process_environment(SERENO_DATABASE_URL=database_url) | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )
        running.append(Running(process))
        return running[-1]

    yield run
    for each in running:
        each.process.kill()
        each.process.communicate()


def finished(connection: psycopg.Connection[Any]) -> int:
    return int(one(connection, "select count(*) from sereno.history where state = 'succeeded'"))


def leads(connection: psycopg.Connection[Any]) -> bool:
    return one(connection, "select exists (select from sereno.leases where until > sereno.now())") is True


@pytest.mark.slow
def test_one_service_fires_schedules_runs_jobs_serves_and_stops_in_order(
    start: Start, connection: psycopg.Connection[Any]
) -> None:
    running = start()
    assert running.url is not None
    until(lambda: finished(connection) >= 2)
    assert httpx.get(f"{running.url}api/v1/me", timeout=TIMEOUT, verify=NO_CERTIFICATES).json()["role"] == "admin"
    assert running.end() == 0
    assert one(connection, "select count(*) from sereno.sessions where state = 'alive'") == 0
    others = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    until(lambda: one(connection, others) == 0)


@pytest.mark.slow
def test_a_setting_selects_only_the_server(start: Start, connection: psycopg.Connection[Any]) -> None:
    running = start(SERENO_ROLES="server")
    assert running.url is not None
    assert httpx.get(f"{running.url}api/v1/me", timeout=TIMEOUT, verify=NO_CERTIFICATES).status_code == 200
    assert one(connection, "select count(*) from sereno.sessions") == 0
    assert not leads(connection)
    assert running.end() == 0


@pytest.mark.slow
def test_a_role_selects_only_the_scheduler(start: Start, connection: psycopg.Connection[Any]) -> None:
    running = start("--role", "scheduler")
    assert running.url is None
    until(lambda: leads(connection))
    assert one(connection, "select count(*) from sereno.sessions") == 0
    assert running.end() == 0


@pytest.mark.slow
def test_a_role_selects_only_the_worker(start: Start, connection: psycopg.Connection[Any]) -> None:
    running = start("--role", "worker")
    until(lambda: one(connection, "select count(*) from sereno.sessions where state = 'alive'") == 1)
    assert not leads(connection)
    assert running.end() == 0


def test_an_unknown_role_and_a_missing_application_are_refused(sereno: Command) -> None:
    missing = sereno("run")
    assert missing.exit_code == 3
    assert "SERENO_APP" in missing.stderr
    refused = sereno("run", "shop:app", "--role", "cook")
    assert refused.exit_code == 2
    assert "cook" in refused.stderr


def test_the_application_is_found_by_argument_environment_and_project(
    sereno: Command, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.sereno]\napp = "elsewhere:app"\n')
    for command in ("run", "worker"):
        with subtests.test(command=command):
            assert "no module named 'elsewhere'" in sereno(command).stderr
            assert "no module named 'given'" in sereno(command, "given:app", SERENO_APP="set:app").stderr
            assert "no module named 'set'" in sereno(command, SERENO_APP="set:app").stderr
