"""Isolated processes are forked from a server that has imported the application, where that is safe."""

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import psycopg
import pytest

from sereno import Sereno
from sereno.jobs.job import ClaimedJob
from sereno.worker.fork_server import control_sockets
from sereno.worker.isolation import pool as isolation
from tests.facts import auntil, one, state
from tests.worker import threaded_tasks
from tests.worker.isolation import isolated_tasks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a fork server")


@pytest.fixture
def isolated(app: Sereno) -> Sereno:
    isolated_tasks.adopt(app)
    return app


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def run_job(app: Sereno, connection: psycopg.Connection, path: Path) -> int:
    """Run a job that writes its pid to a file; return the pid."""
    (job,) = await app.aenqueue_many([isolated_tasks.writes_its_pid.job(str(path))])
    await auntil(lambda: state(connection, job.id) == "succeeded")
    return int(path.read_text())  # noqa: ASYNC240 - a few bytes


@pytest.mark.slow
async def test_a_process_is_forked_from_the_server_and_ends_with_the_worker(
    isolated: Sereno, connection: psycopg.Connection, tmp_path: Path
) -> None:
    async with isolated.working():
        process = await run_job(isolated, connection, tmp_path / "number")
        server = parent_of(process)
        assert server != os.getpid()
        assert parent_of(server) == os.getpid()
    assert is_gone(process)
    assert is_gone(server)


@pytest.mark.slow
async def test_idle_processes_and_their_fork_server_end(
    isolated: Sereno, connection: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with isolated.working():
        first = await run_job(isolated, connection, tmp_path / "first")
        server = parent_of(first)
        monkeypatch.setattr(isolation, "IDLE_SECONDS", 0.0)
        await auntil(lambda: is_gone(first))
        assert not is_gone(server)
        monkeypatch.setattr(isolation, "SERVER_IDLE_SECONDS", 0.0)
        await auntil(lambda: is_gone(server))
        assert await run_job(isolated, connection, tmp_path / "second") != first


@pytest.mark.slow
async def test_jobs_run_in_fresh_processes_after_the_fork_server_died(
    isolated: Sereno, connection: psycopg.Connection, tmp_path: Path
) -> None:
    async with isolated.working():
        first = await run_job(isolated, connection, tmp_path / "first")
        os.kill(parent_of(first), signal.SIGKILL)
        await auntil(lambda: is_gone(first))
        second = await run_job(isolated, connection, tmp_path / "second")
        assert parent_of(second) == os.getpid()
    assert one(connection, "select max(crashes) + max(failures) from sereno.history") == 0


@pytest.mark.slow
async def test_an_application_that_starts_threads_is_not_forked(
    app: Sereno, connection: psycopg.Connection, tmp_path: Path
) -> None:
    for definition in threaded_tasks.app.registry:
        app.registry.add(definition)
    path = tmp_path / "parent"
    (job,) = await app.aenqueue_many([threaded_tasks.writes_its_parent.job(str(path))])
    async with app.working():
        await auntil(lambda: state(connection, job.id) == "succeeded")
    assert int(path.read_text()) == os.getpid()


def test_a_fork_server_ends_silently_when_its_worker_ends_before_it_has_read_all_messages() -> None:
    """The kernel then reports a reset connection: the worker failed to start, or was killed."""
    ours, theirs = control_sockets()
    program = "import socket, sys; from sereno.worker.fork_server import serve_forks; "
    program += "serve_forks(socket.socket(fileno=int(sys.argv[1])))"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(theirs.fileno())], pass_fds=[theirs.fileno()], stderr=subprocess.PIPE
    ) as server:
        theirs.close()
        select.select([ours], [], [])
        ours.close()
        _, errors = server.communicate()
    assert (server.returncode, errors) == (0, b"")


@pytest.mark.slow
def test_an_isolated_process_ends_silently_when_its_worker_ends_before_it_has_read_the_reply(app: Sereno) -> None:
    ours, theirs = socket.socketpair()
    settings = isolation.ProcessSettings(app.url, msgspec.to_builtins(app.settings), sys.path, writes_lines=False)
    job = ClaimedJob(1, 1, "work", "default", 5, 1, None, msgspec.Raw(b"{}"), 0.0, 0.0)
    request = isolation.JobRequest("not_a_module", "work", None, job, 1)
    command = [*isolation.COMMAND, str(theirs.fileno()), str(os.getpid())]
    with subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE) as process:
        theirs.close()
        for message in (settings, request):
            ours.sendall(msgspec.json.encode(message) + b"\n")
        select.select([ours], [], [])
        ours.close()
        _, errors = process.communicate()
    assert (process.returncode, errors) == (0, b"")
