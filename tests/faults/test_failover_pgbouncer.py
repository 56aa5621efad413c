"""A fail-over behind PgBouncer in transaction mode: its configuration changes, and nothing is restarted."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.conftest import assert_sound
from tests.acceptance.test_pgbouncer import PGBOUNCER
from tests.facts import until
from tests.faults.failover_processes import Journal, Processes, assert_journal_holds
from tests.faults.test_failover import APP, prepare
from tests.replication import BIN, PASSWORD, ReplicatedServers, Server, free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed"),
    pytest.mark.skipif(not (BIN / "pg_basebackup").exists(), reason="PostgreSQL with pg_basebackup is not installed"),
]


class Pooler:
    """A PgBouncer on loopback, in front of one server at a time."""

    def __init__(self, server: Server) -> None:
        assert PGBOUNCER is not None
        self._directory = Path(tempfile.mkdtemp(prefix="sereno-pgbouncer-"))
        self._directory.chmod(0o755)
        self._port = free_port()
        self.url = f"postgresql://postgres:{PASSWORD}@127.0.0.1:{self._port}/postgres"
        (self._directory / "users").write_text(f'"postgres" "{PASSWORD}"\n')
        self._configure(server)
        arguments = [PGBOUNCER, "-q", str(self._directory / "ini")]
        if os.geteuid() == 0:
            arguments[1:1] = ["-u", "postgres"]
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(arguments, stdout=log, stderr=log)
        until(self._is_ready)

    def point_to(self, server: Server) -> None:
        """Use another server from now on."""
        self._configure(server)
        self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=60)
        shutil.rmtree(self._directory)

    def _configure(self, server: Server) -> None:
        (self._directory / "ini").write_text(
            f"[databases]\npostgres = host=127.0.0.1 port={server.port} dbname=postgres user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self._port}\nunix_socket_dir =\nauth_type = plain\n"
            f"auth_file = {self._directory}/users\npool_mode = transaction\ndefault_pool_size = 10\n"
            f"max_client_conn = 200\nserver_login_retry = 1\nignore_startup_parameters = extra_float_digits\n"
        )
        for file in ("users", "ini"):
            (self._directory / file).chmod(0o644)

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, (self._directory / "log").read_text()
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


@pytest.fixture
def servers() -> Iterator[ReplicatedServers]:
    with ReplicatedServers(("a", "b")) as started:
        prepare(started["a"])
        yield started


@pytest.fixture
def pooler(servers: ReplicatedServers) -> Iterator[Pooler]:
    started = Pooler(servers["a"])
    yield started
    started.stop()


@pytest.mark.timeout(180)
def test_workers_behind_pgbouncer_continue_on_the_new_primary(
    servers: ReplicatedServers, pooler: Pooler, tmp_path: Path
) -> None:
    processes = Processes(pooler.url, tmp_path)
    journal, stop = Journal(tmp_path / "journal"), tmp_path / "stop"
    pooled = {"SERENO_TRANSACTION_POOLER": "true", "SERENO_POLL": "0.2"}
    try:
        processes.start("sereno", "worker", APP, **pooled)
        enqueuer = processes.start("tests.faults.failover_app", str(journal.path), str(stop), **pooled)
        until(journal.grows(), timeout=60)
        servers["a"].kill()
        servers["b"].promote()
        pooler.point_to(servers["b"])
        until(journal.grows(), timeout=60)
        stop.touch()
        assert enqueuer.wait(timeout=60) == 0
        until(lambda: servers["b"].one("select count(*) from sereno.jobs where task = 'effect'") == 0, timeout=60)
    finally:
        processes.stop()
    with servers["b"].connect() as connection:
        assert_journal_holds(journal, connection)
        assert_sound(connection)
