"""The shell worker of the examples as a real process: beside a Python worker, stopped, killed, and lost."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from sereno.database.embedded.programs import wheel_bin_dir
from sereno.database.statement import run
from sereno.jobs import transitions
from tests.acceptance.conftest import ROOT, WorkerProcess, alive_sessions, assert_sound, lines
from tests.docs.pages import blocks
from tests.facts import one, state, until

EXAMPLE = ROOT / "examples" / "worker_in_another_language"
pytestmark = pytest.mark.quick

BIN = Path(os.environ.get("SERENO_TEST_POSTGRES_BIN") or wheel_bin_dir())

# The first two are tasks of tests.acceptance.jobs too; the others exist only for the shell worker.
TASKS = {
    "quick": """n=$(cat | tr -dc 0-9); echo "quick $n $SERENO_ATTEMPT shell" >>"$TEST_LOG" """,
    "slow": """n=$(cat | tr -dc 0-9); echo "start $n $SERENO_ATTEMPT $$" >>"$TEST_LOG"
while ! [ -e "$TEST_LOG.go" ]; do sleep 0.02; done
echo "end $n $SERENO_ATTEMPT $$" >>"$TEST_LOG" """,
    "fails": """echo "attempt $SERENO_ATTEMPT: 'no' \\"luck\\" \\\\ $HOME; drop table x" >&2
printf '\\377' >&2; exit 3""",
    "refuses": """echo "no such account" >&2; exit 65""",
    "sleepy": "exit 75",
    "dies": "kill -9 $$",
}


class ShellWorker:
    """`worker.sh`, started as in the documentation."""

    def __init__(self, url: str, log: Path, tasks: Path, *, lease: int = 3) -> None:
        self.output = log.with_suffix(f".{len(list(log.parent.glob('*.shell')))}.shell")
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                ["/bin/sh", str(EXAMPLE / "worker.sh"), str(tasks), "default"],
                env={
                    **os.environ,
                    "DATABASE_URL": url,
                    "PSQL": str(BIN / "psql"),
                    "LEASE": str(lease),
                    "POLL": "0.1",
                    "TEST_LOG": str(log),
                },
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        until(lambda: "session " in self.log_text() or self.process.poll() is not None)

    def log_text(self) -> str:
        return self.output.read_text(errors="replace")

    def end(self) -> int:
        """Send TERM to this process only, and return its exit code."""
        self.process.terminate()
        return self.process.wait(timeout=60)

    def kill(self) -> None:
        """Kill all its processes at once, as a power failure does."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=60)


@pytest.fixture
def shell(database_url: str, log: Path, tmp_path: Path) -> Iterator[Callable[..., ShellWorker]]:
    """Return a function that starts workers; those that are left are killed afterwards."""
    started: list[ShellWorker] = []

    def start(*names: str, **options: int) -> ShellWorker:
        tasks = tmp_path / f"tasks_{len(started)}"
        tasks.mkdir()
        for name in names:
            program = tasks / name
            program.write_text(f"#!/bin/sh\n{TASKS[name]}\n")
            program.chmod(0o755)
        worker = ShellWorker(database_url, log, tasks, **options)
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.kill()
        sys.stdout.write(worker.log_text())


Shell = Callable[..., ShellWorker]


def enqueue(connection: psycopg.Connection, task: str, count: int = 1) -> list[int]:
    made = connection.execute(
        "select sereno.enqueue(%s, jsonb_build_object('n', n)) from generate_series(1, %s) as n", [task, count]
    )
    return [row[0] for row in made]


def done(connection: psycopg.Connection) -> int:
    return int(one(connection, "select count(*) from sereno.history where state = 'succeeded'"))


def test_each_exit_code_has_its_outcome(shell: Shell, connection: psycopg.Connection) -> None:
    worker = shell("quick", "fails", "refuses", "sleepy", "dies")
    quick, fails, refuses, sleepy, dies = (
        enqueue(connection, name)[0] for name in ("quick", "fails", "refuses", "sleepy", "dies")
    )
    until(lambda: one(connection, "select count(*) from sereno.jobs where state in ('ready', 'running')") == 0)
    assert (state(connection, quick), state(connection, refuses)) == ("succeeded", "dead")
    assert one(connection, "select error_message from sereno.history_dead") == "no such account"
    outcomes: dict[int, str] = dict(connection.execute("select job_id, outcome from sereno.attempts").fetchall())
    assert outcomes == {fails: "retry", sleepy: "snooze", dies: "crash"}
    message = one(connection, "select error_message from sereno.attempts where job_id = %s", fails)
    assert message == f"attempt 1: 'no' \"luck\" \\ {os.environ['HOME']}; drop table x"
    assert worker.end() == 0


def test_retries_follow_the_backoff_and_the_last_one_is_dead(shell: Shell, connection: psycopg.Connection) -> None:
    (job,) = enqueue(connection, "fails")
    connection.execute("update sereno.jobs set failures = 9")
    shell("fails")
    until(lambda: state(connection, job) == "scheduled")
    connection.execute("update sereno.jobs set run_at = sereno.now()")
    until(lambda: state(connection, job) == "dead")
    assert one(connection, "select reason from sereno.history_dead") == "failed 11 times"


@pytest.mark.slow
def test_term_lets_the_shell_worker_finish_its_job_and_exit_with_zero(
    shell: Shell, connection: psycopg.Connection, log: Path
) -> None:
    worker = shell("slow")
    first, second = enqueue(connection, "slow", 2)
    until(lambda: lines(log, "start"))
    worker.process.terminate()
    # Longer than the lease: it is renewed while the job runs.
    until(lambda: one(connection, "select seen_at > started_at + interval '4 s' from sereno.sessions"))
    Path(f"{log}.go").touch()
    assert worker.process.wait(timeout=60) == 0
    assert (state(connection, first), state(connection, second)) == ("succeeded", "ready")
    assert "closed, given back: 0" in worker.log_text()
    assert alive_sessions(connection) == 0


def test_a_cancelled_program_is_stopped(shell: Shell, connection: psycopg.Connection, log: Path) -> None:
    shell("slow")
    (job,) = enqueue(connection, "slow")
    until(lambda: lines(log, "start"))
    run(connection, transitions.cancel([job], "not wanted"))
    until(lambda: state(connection, job) == "cancelled")


@pytest.mark.slow
def test_a_shell_worker_whose_session_died_opens_a_new_one(
    shell: Shell, connection: psycopg.Connection, log: Path
) -> None:
    worker = shell("slow", "quick")
    (job,) = enqueue(connection, "slow")
    until(lambda: lines(log, "start"))
    connection.execute("update sereno.sessions set state = 'dead', ended_at = sereno.now()")
    until(lambda: worker.log_text().count("session ") >= 2)
    assert "the session has no lease" in worker.log_text()
    Path(f"{log}.go").touch()
    until(lambda: state(connection, job) == "succeeded")
    assert one(connection, "select attempt from sereno.history") == 2
    assert worker.end() == 0
    assert_sound(connection)


@pytest.mark.slow
def test_a_shell_worker_killed_beside_a_python_worker_loses_no_job_and_repeats_no_other(
    shell: Shell, worker: Callable[..., WorkerProcess], connection: psycopg.Connection, log: Path
) -> None:
    """Both workers run jobs of one queue and task; the shell worker is killed while it runs a job."""
    first = shell("slow", "quick")
    (slow,) = enqueue(connection, "slow")
    until(lambda: lines(log, "start"))
    made = enqueue(connection, "quick", 60)
    second = shell("quick")
    until(lambda: [line for line in lines(log, "quick") if line[-1] == "shell"])
    first.kill()
    python = worker()
    Path(f"{log}.go").touch()
    until(lambda: done(connection) == len(made) + 1)
    assert [line[1] for line in lines(log, "start")] == ["1", "2"]
    assert one(connection, "select outcome from sereno.attempts where job_id = %s", slow) == "crash"
    ran = Counter(line[0] for line in lines(log, "quick"))
    assert (set(ran), set(ran.values())) == ({str(n) for n in range(1, 61)}, {1})
    by_python = one(
        connection,
        "select count(*) from sereno.history join sereno.sessions on sessions.id = session_id where opened_by is null",
    )
    assert by_python > 0
    assert (second.end(), python.end()) == (0, 0)
    assert one(connection, "select count(*) from sereno.jobs") == 0
    assert_sound(connection)


@pytest.mark.slow
def test_the_heartbeats_of_a_killed_shell_worker_end(shell: Shell, connection: psycopg.Connection, log: Path) -> None:
    """Only the worker itself is killed: its child processes must not extend its lease."""
    worker = shell("slow")
    (job,) = enqueue(connection, "slow")
    until(lambda: lines(log, "start"))
    worker.process.kill()
    worker.process.wait(timeout=60)
    other = shell("slow")
    until(lambda: len(lines(log, "start")) == 2)
    Path(f"{log}.go").touch()
    until(lambda: state(connection, job) == "succeeded")
    assert other.end() == 0
    assert_sound(connection)


def test_the_documentation_shows_the_script_of_the_example() -> None:
    (shown,) = (
        block
        for block in blocks(ROOT / "docs" / "extend" / "worker-in-another-language.md")
        if block.language == "sh" and "#!" in block.code
    )
    assert shown.code == (EXAMPLE / "worker.sh").read_text()


def test_the_task_of_the_example_runs(database_url: str, connection: psycopg.Connection, log: Path) -> None:
    connection.execute("""select sereno.enqueue('greet', '{"name": "Ada"}')""")
    worker = ShellWorker(database_url, log, EXAMPLE / "tasks")
    try:
        until(lambda: done(connection) == 1)
        assert worker.end() == 0
        assert 'job 1, attempt 1: hello, {"name": "Ada"}' in worker.log_text()
    finally:
        worker.kill()
