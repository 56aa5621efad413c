"""`sereno run --nats`: one command to a carried queue."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sereno.carriers.project_server import ServerRecord
from tests.cli.conftest import Command, process_environment
from tests.facts import TIMEOUT, one, until
from tests.warm_process import WarmProcess

SHOP = """
from sereno import JetStream, Sereno

app = Sereno()
app.queue("clicks", carrier=JetStream("nats://elsewhere:4222", replicas=3), direct=True)


@app.task(queue="clicks")
async def click(number: int) -> None: ...


@app.task(queue="views")
async def view(number: int) -> None: ...
"""

Start = Callable[..., tuple["subprocess.Popen[str]", list[str]]]


@pytest.fixture
def start(database_url: str, tmp_path: Path) -> Iterator[Start]:
    """Start `sereno run` and return it with its first lines, up to the address of the dashboard."""
    (tmp_path / "shop.py").write_text(SHOP)
    running: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> tuple["subprocess.Popen[str]", list[str]]:
        process = WarmProcess(
            [sys.executable, "-m", "sereno", "run", "shop:app", "--port", "0", *arguments],
            cwd=tmp_path,
            env=process_environment(SERENO_DATABASE_URL=database_url),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )
        running.append(process)
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or "http://" not in lines[-1]:
            line = process.stdout.readline()
            assert line, lines
            lines.append(line.rstrip("\n"))
        return process, lines

    yield run
    for each in running:
        each.kill()
        each.communicate()
    if (tmp_path / ".sereno/nats/server.json").exists():
        _end(recorded(tmp_path).process)


def _end(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


def recorded(directory: Path) -> ServerRecord:
    return ServerRecord(**json.loads((directory / ".sereno/nats/server.json").read_text()))


def listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def state(connection: psycopg.Connection[Any], queue: str) -> Any:
    query = "select address, direct, reached_at is not null from sereno.carrier_states where queue = %s"
    return connection.execute(query, [queue]).fetchone()


@pytest.mark.slow
def test_declared_queues_are_carried_by_a_server_of_the_project(
    start: Start, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    process, lines = start("--nats")
    port = recorded(tmp_path).port
    assert lines[0] == f"NATS JetStream runs at nats://127.0.0.1:{port}; its files are in .sereno/nats."
    assert lines[1] == "It carries the queue clicks (instead of elsewhere:4222). For other processes:"
    exported = lines[2].partition("SERENO_CARRIERS=")[2].strip("'")
    assert json.loads(exported) == {"clicks": f"jetstream://127.0.0.1:{port}?direct=true"}
    until(lambda: state(connection, "clicks") == (f"127.0.0.1:{port}", True, True))
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT) == 0
    assert not listens(port)


@pytest.mark.slow
def test_a_named_queue_is_carried_and_its_jobs_run(
    start: Start, connection: psycopg.Connection[Any], tmp_path: Path, sereno: Command
) -> None:
    process, lines = start("--carry", "views")
    port = recorded(tmp_path).port
    assert lines[1] == "It carries the queue views. For other processes:"
    until(lambda: state(connection, "views") is not None)
    enqueued = sereno("job", "enqueue", "view", '{"number": 1}', "-a", str(tmp_path / "shop.py"))
    assert enqueued.exit_code == 0, enqueued.stderr
    until(lambda: one(connection, "select count(*) from sereno.history where task = 'view'") == 1)

    # The server outlives a crash; the next start uses it, and stops it at the end.
    server = recorded(tmp_path).process
    process.kill()
    process.wait(TIMEOUT)
    assert listens(port)
    again, lines = start("--carry", "views")
    assert f"nats://127.0.0.1:{port};" in lines[0]
    assert recorded(tmp_path).process == server
    again.send_signal(signal.SIGTERM)
    assert again.wait(TIMEOUT) == 0
    until(lambda: not listens(port))


def test_an_application_without_carried_queues_is_refused(sereno: Command, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("from sereno import Sereno\n\napp = Sereno()\n")
    result = sereno("run", "plain:app", "--nats")
    assert result.exit_code == 3
    assert "name one of its queues: --nats --carry clicks" in result.stderr
