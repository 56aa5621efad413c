"""An asynchronous standby without the last commits is promoted: workers continue with what it has."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sereno import DatabaseUnavailable, Sereno
from sereno.database import servers as database_servers
from tests.acceptance.conftest import assert_sound
from tests.facts import until
from tests.faults.failover_processes import Processes
from tests.faults.test_failover import APP, prepare
from tests.replication import BIN, ReplicatedServers
from tests.warm_process import WarmProcess

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BIN / "pg_basebackup").exists(), reason="PostgreSQL with pg_basebackup is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="child processes are read from /proc"),
]


@pytest.fixture
def servers() -> Iterator[ReplicatedServers]:
    """Return a primary `a` and its asynchronous standby `c`, with the schema."""
    with ReplicatedServers(("a", "c"), synchronous="") as started:
        prepare(started["a"])
        yield started


@pytest.fixture
def processes(servers: ReplicatedServers, tmp_path: Path) -> Iterator[Processes]:
    started = Processes(servers.url(), tmp_path)
    yield started
    started.stop()


def cut_off(servers: ReplicatedServers) -> None:
    """Let the standby get everything that there is now, and nothing more."""
    position = servers["a"].one("select pg_current_wal_lsn()")
    until(lambda: servers["c"].one(f"select pg_last_wal_replay_lsn() >= '{position}'"))
    servers["c"].set(primary_conninfo="")
    until(lambda: servers["a"].one("select count(*) from pg_stat_replication") == 0)


def family(process: WarmProcess) -> list[int]:
    """Return the process and those that it has started."""
    found = [process.pid]
    for pid in found:
        found += [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found


@pytest.mark.timeout(180)
def test_a_worker_whose_session_was_lost_leaves_the_worker_with_its_id_alone(
    servers: ReplicatedServers, processes: Processes, tmp_path: Path
) -> None:
    """Both have claimed the same attempt of the same job under the same session id, on two servers."""
    job = servers["a"].one("select sereno.enqueue('held', '{\"n\": 1}')")
    cut_off(servers)
    first = processes.start("sereno", "worker", APP, SERENO_SCHEDULER="false")
    log = tmp_path / "handlers.log"
    until(lambda: log.exists() and log.read_text().count("start 1 1") == 1)
    for pid in family(first):
        os.kill(pid, signal.SIGSTOP)
    claimed = f"select session_id from sereno.jobs where id = {job} and attempt = 1"
    session = servers["a"].one(claimed)
    servers["a"].kill()
    servers["c"].promote()
    second = processes.start("sereno", "worker", APP, SERENO_SCHEDULER="false")
    until(lambda: log.read_text().count("start 1 1") == 2)
    assert servers["c"].one(claimed) == session
    for pid in family(first):
        os.kill(pid, signal.SIGCONT)
    until(lambda: servers["c"].one("select count(*) from sereno.sessions where state = 'alive'") == 2, timeout=60)
    assert servers["c"].one(claimed) == session
    log.with_suffix(".go").touch()
    until(lambda: servers["c"].one(f"select state from sereno.history where id = {job}") == "succeeded")
    # Jobs that are enqueued now run, although ready_seq is behind what the first worker has seen.
    for n in range(40):
        servers["c"].one(f"select sereno.enqueue('effect', '{{\"n\": {n}}}')")
    until(lambda: servers["c"].one("select count(*) from effects") == 40)
    processes.assert_running()
    assert '"child.died"' not in processes.text(second)
    with servers["c"].connect() as connection:
        assert_sound(connection)


@pytest.mark.timeout(120)
def test_a_process_leaves_an_old_primary_that_needs_no_standby(
    servers: ReplicatedServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing hangs without synchronous replication: until the survey finds the promoted standby, jobs are lost."""
    monkeypatch.setattr(database_servers, "SURVEY_EVERY", 0.2)
    app = Sereno(servers.url())

    @app.task(name="work")
    def work() -> None: ...

    work.enqueue()
    position = servers["a"].one("select pg_current_wal_lsn()")
    until(lambda: servers["c"].one(f"select pg_last_wal_replay_lsn() >= '{position}'"))
    servers["c"].promote()
    count = "select count(*) from sereno.jobs"

    def is_on_new_primary() -> bool:
        try:
            work.enqueue()
        except DatabaseUnavailable:
            # The connection was closed while the job was written.
            return False
        return bool(servers["c"].one(count) > 1)

    until(is_on_new_primary)
    lost = servers["a"].one(count)
    for _ in range(20):
        work.enqueue()
    assert servers["a"].one(count) == lost
    app.close()
