"""A worker as a real process: signals, crashes, blocked loops, replaced children."""

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.conftest import WorkerProcess, alive_sessions, children, expire_leases, lines
from tests.facts import is_gone, one, state, until

pytestmark = pytest.mark.slow

Start = Callable[..., WorkerProcess]


def enqueue(connection: psycopg.Connection, task: str, **args: object) -> int:
    found: int = one(connection, "select sereno.enqueue(%s, %s)", task, json.dumps(args))
    return found


@pytest.mark.quick
def test_term_lets_a_worker_finish_its_job_and_exit_with_zero(
    worker: Start, connection: psycopg.Connection, log: Path
) -> None:
    process = worker("--processes", "2")
    job = enqueue(connection, "slow", n=1)
    until(lambda: lines(log, "start"))
    process.signal(signal.SIGTERM)
    until(lambda: "worker.stopping" in process.log_text())
    Path(f"{log}.go").touch()
    assert process.process.wait(timeout=60) == 0
    assert state(connection, job) == "succeeded"
    assert alive_sessions(connection) == 0


def test_a_second_signal_releases_running_jobs_at_once(
    worker: Start, connection: psycopg.Connection, log: Path
) -> None:
    process = worker(SERENO_GRACE="3600")
    job = enqueue(connection, "slow", n=1)
    until(lambda: lines(log, "start"))
    process.signal(signal.SIGTERM)
    until(lambda: "worker.stopping" in process.log_text())
    process.signal(signal.SIGTERM)
    assert process.process.wait(timeout=60) == 0
    row = connection.execute("select state, failures, releases from sereno.jobs where id = %s", [job]).fetchone()
    assert row == ("ready", 0, 1)


def test_a_handler_that_ignores_its_cancellation_does_not_block_the_shutdown(
    worker: Start, connection: psycopg.Connection, log: Path
) -> None:
    process = worker(SERENO_GRACE="0.1")
    job = enqueue(connection, "ignores_cancel")
    until(lambda: lines(log, "stubborn"))
    assert process.end() == 0
    assert state(connection, job) == "ready"


def test_an_exit_in_an_asyncio_task_of_a_handler_does_not_end_the_worker(
    worker: Start, connection: psycopg.Connection, log: Path
) -> None:
    process = worker()
    neighbour = enqueue(connection, "slow", n=1)
    until(lambda: lines(log, "start"))
    forgets = enqueue(connection, "child_exits", kinds=["exit", "interrupt"], awaits=False)
    awaits = [enqueue(connection, "child_exits", kinds=[kind], awaits=True) for kind in ("exit", "interrupt")]
    until(lambda: [state(connection, job) for job in (forgets, *awaits)] == ["succeeded", "dead", "dead"])
    Path(f"{log}.go").touch()
    until(lambda: state(connection, neighbour) == "succeeded")
    kinds = connection.execute("select error_type from sereno.history_dead order by id").fetchall()
    assert kinds == [("SystemExit",), ("KeyboardInterrupt",)]
    assert one(connection, "select max(attempt) + max(crashes) + max(releases) from sereno.history") == 1
    assert one(connection, "select count(*) from sereno.sessions") == 1
    assert "handler.exit" in process.log_text()
    assert process.end() == 0


@pytest.mark.quick
def test_the_job_of_a_killed_child_is_retried_at_once_by_its_replacement(
    worker: Start, connection: psycopg.Connection, log: Path
) -> None:
    # The lease lasts minutes: the job is back because the supervisor noticed the death, not because the lease expired.
    process = worker(SERENO_LEASE="600", SERENO_HEARTBEAT="10")
    job = enqueue(connection, "slow", n=1)
    first = until(lambda: lines(log, "start"))[0]
    os.kill(int(first[2]), signal.SIGKILL)
    second = until(lambda: lines(log, "start")[1:])[0]
    assert second[1] == "2"
    assert second[2] != first[2]
    Path(f"{log}.go").touch()
    until(lambda: state(connection, job) == "succeeded")
    assert connection.execute("select attempt, crashes, failures from sereno.history").fetchone() == (2, 1, 0)
    assert process.end() == 0


def test_the_job_of_a_killed_worker_is_retried_after_its_lease(
    worker: Start, connection: psycopg.Connection, log: Path
) -> None:
    first = worker()
    job = enqueue(connection, "slow", n=1)
    until(lambda: lines(log, "start"))
    first.kill()
    assert state(connection, job) == "running"
    expire_leases(connection)
    worker()
    Path(f"{log}.go").touch()
    until(lambda: state(connection, job) == "succeeded")
    assert [line[1] for line in lines(log, "start")] == ["1", "2"]


def test_a_worker_that_was_stopped_past_its_lease_is_fenced(
    worker: Start, connection: psycopg.Connection, log: Path
) -> None:
    """After SIGSTOP another worker takes over the job; after SIGCONT the first one settles nothing."""
    first = worker()
    job = enqueue(connection, "slow", n=1)
    until(lambda: lines(log, "start"))
    frozen = [*first.children(), first.process.pid]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    expire_leases(connection)
    worker()
    until(lambda: len(lines(log, "start")) == 2)
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    Path(f"{log}.go").touch()
    until(lambda: state(connection, job) == "succeeded")
    until(lambda: "session.lost" in first.log_text() or "job.fenced" in first.log_text())
    assert one(connection, "select attempt from sereno.history where id = %s", job) == 2


def test_a_child_with_a_blocked_loop_is_logged_and_replaced_and_its_job_retried(
    worker: Start, connection: psycopg.Connection, log: Path
) -> None:
    process = worker()
    job = enqueue(connection, "blocks_the_loop")
    until(lambda: state(connection, job) == "succeeded")
    assert "child.blocked" in process.log_text()
    # The log contains the stack of the handler that blocks.
    assert "in blocks_the_loop" in process.log_text()
    assert one(connection, "select count(*) from sereno.sessions where state = 'dead'") == 1
    attempts = lines(log, "blocking")
    assert [attempt for attempt, _ in attempts] == ["1", "2"]


def test_a_child_that_holds_the_interpreter_lock_is_ended_by_the_stall_limit(
    worker: Start, connection: psycopg.Connection, log: Path
) -> None:
    process = worker(SERENO_STALL_LIMIT="2")
    job = enqueue(connection, "holds_the_interpreter")
    until(lambda: state(connection, job) == "succeeded")
    assert "child.blocked" in process.log_text()


def test_a_thread_that_ignores_its_deadline_is_logged_and_its_job_retried(
    worker: Start, connection: psycopg.Connection, log: Path
) -> None:
    process = worker()
    job = enqueue(connection, "ignores_its_deadline")
    until(lambda: state(connection, job) == "succeeded")
    assert "job.stuck" in process.log_text()
    assert "in ignores_its_deadline" in process.log_text()


def test_a_poison_job_is_dead_after_three_crashes_and_the_others_finish(
    worker: Start, connection: psycopg.Connection, log: Path
) -> None:
    worker("--processes", "2")
    poison = enqueue(connection, "poison")
    others = [enqueue(connection, "quick", n=n) for n in range(50)]
    until(lambda: state(connection, poison) == "dead")
    until(lambda: all(state(connection, job) == "succeeded" for job in others))
    assert one(connection, "select crashes from sereno.history_dead") == 3
    assert "crash loop" in one(connection, "select reason from sereno.history_dead")
    assert one(connection, "select max(crashes) from sereno.history_done") <= 1


def test_only_the_poison_item_of_a_batch_becomes_dead(worker: Start, connection: psycopg.Connection, log: Path) -> None:
    jobs = {item: enqueue(connection, "poison_in_a_batch", item=item) for item in range(10, 20)}
    worker()
    until(lambda: state(connection, jobs[13]) == "dead")
    until(lambda: all(state(connection, job) == "succeeded" for item, job in jobs.items() if item != 13))


def test_a_coroutine_that_swallows_its_timeout_is_logged_and_its_job_retried(
    worker: Start, connection: psycopg.Connection, log: Path
) -> None:
    process = worker()
    job = enqueue(connection, "swallows_its_timeout")
    until(lambda: state(connection, job) == "succeeded")
    assert "job.stuck" in process.log_text()
    assert one(connection, "select error_type from sereno.attempts") == "TimeoutError"


def test_term_to_every_process_still_lets_the_job_finish(
    worker: Start, connection: psycopg.Connection, log: Path
) -> None:
    """A service manager sends TERM to the supervisor, to the fork server and to the children."""
    process = worker()
    job = enqueue(connection, "slow", n=1)
    until(lambda: lines(log, "start"))
    for pid in [*process.children(), *children(process.process.pid), process.process.pid]:
        os.kill(pid, signal.SIGTERM)
    until(lambda: "worker.stopping" in process.log_text())
    Path(f"{log}.go").touch()
    assert process.process.wait(timeout=60) == 0
    assert state(connection, job) == "succeeded"


def test_children_of_a_killed_supervisor_finish_their_jobs_and_end(
    worker: Start, connection: psycopg.Connection, log: Path
) -> None:
    process = worker()
    job = enqueue(connection, "slow", n=1)
    child = int(until(lambda: lines(log, "start"))[0][2])
    process.process.kill()
    Path(f"{log}.go").touch()
    until(lambda: state(connection, job) == "succeeded")
    until(lambda: is_gone(child))
    until(lambda: alive_sessions(connection) == 0)
    assert one(connection, "select attempt from sereno.history where id = %s", job) == 1


def test_children_outlive_their_fork_server_and_their_successors_are_started_fresh(
    worker: Start, connection: psycopg.Connection, log: Path
) -> None:
    process = worker()
    job = enqueue(connection, "slow", n=1)
    child = int(until(lambda: lines(log, "start"))[0][2])
    (fork_server,) = children(process.process.pid)
    os.kill(fork_server, signal.SIGKILL)
    Path(f"{log}.go").touch()
    until(lambda: state(connection, job) == "succeeded")
    assert one(connection, "select attempt from sereno.history where id = %s", job) == 1
    os.kill(child, signal.SIGKILL)
    job = enqueue(connection, "slow", n=2)
    until(lambda: state(connection, job) == "succeeded")
    assert process.log_text().count('"child.fresh"') == 1
    assert process.end() == 0


def test_children_of_an_application_with_threads_are_started_fresh(
    worker: Start, connection: psycopg.Connection, log: Path
) -> None:
    process = worker(TEST_THREAD="yes")
    job = enqueue(connection, "quick", n=1)
    until(lambda: state(connection, job) == "succeeded")
    assert "not forked: the application starts 1 threads when it is imported" in process.log_text()
    assert process.end() == 0


@pytest.mark.quick
def test_health_and_metrics_endpoints_respond(worker: Start, connection: psycopg.Connection, log: Path) -> None:
    process = worker("--health-port", "0")
    started = until(lambda: [line for line in process.log_text().splitlines() if "health.started" in line])[0]
    address = json.loads(started)["msg"].split()[1].removesuffix("/livez")
    job = enqueue(connection, "quick", n=1)
    until(lambda: state(connection, job) == "succeeded")

    def get(path: str) -> str:
        with urllib.request.urlopen(address + path, timeout=30) as response:  # noqa: S310 - our own address
            return str(response.read().decode())

    def is_ready() -> bool:
        try:
            return get("/readyz") == "ok\n"
        except urllib.error.HTTPError:
            return False

    assert get("/livez") == "ok\n"
    until(is_ready)
    wanted = 'sereno_jobs_finished_total{outcome="succeeded",queue="default",task="quick"} 1.0'
    until(lambda: wanted in get("/metrics"))
    assert "sereno_job_wait_seconds_bucket" in get("/metrics")


def test_a_worker_without_a_schema_exits_with_code_5(worker: Start, empty_database_url: str) -> None:
    process = worker(url=empty_database_url)
    assert process.process.wait(timeout=60) == 5
    assert "sereno migrate" in process.log_text()


@pytest.mark.quick
def test_a_worker_without_a_reachable_database_exits_with_code_4(worker: Start) -> None:
    process = worker(url="postgresql://user:secret@127.0.0.1:1/none")
    assert process.process.wait(timeout=60) == 4
    assert "secret" not in process.log_text()


def test_a_worker_without_a_database_url_exits_with_code_3(worker: Start, tmp_path: Path) -> None:
    process = worker(url="", SERENO_DIRECTORY=str(tmp_path / "none"))
    assert process.process.wait(timeout=60) == 3
    assert "--embedded" in process.log_text()
    assert not (tmp_path / "none").exists()
