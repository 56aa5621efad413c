"""A PostgreSQL primary with a synchronous and an asynchronous standby: real streaming replication on loopback."""

import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from sereno.database.embedded.programs import account_for
from tests.facts import is_gone, until
from tests.shared_server import MEMORY

# Debian's PostgreSQL: the wheel of the embedded one has no pg_basebackup.
BIN = Path(os.environ.get("SERENO_TEST_REPLICATION_BIN", "/usr/lib/postgresql/15/bin"))
# Seconds that pg_ctl waits.
TIMEOUT = "60"
PASSWORD = "not-a-secret"  # noqa: S105 - of servers that live for one test, on loopback

_PARAMETERS = {
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "32MB",
    "max_connections": "150",
    "wal_keep_size": "256MB",
    "wal_log_hints": "on",
    "hot_standby": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "jit": "off",
    # A standby asks again at once when its primary has changed or was away.
    "wal_retrieve_retry_interval": "200ms",
    "wal_receiver_timeout": "5s",
}


class Server:
    """One PostgreSQL server. It is started, killed, promoted, and follows another one."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.directory = directory / name
        self.directory.mkdir(mode=0o700)
        self.account = account_for(Path(tempfile.gettempdir()) / "no such directory")
        if os.geteuid() == 0:
            os.chown(self.directory, self.account.uid, self.account.gid)
        self.port = free_port()

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def dsn(self) -> str:
        """Return the connection string of this server alone."""
        return f"host=127.0.0.1 port={self.port} user=postgres password={PASSWORD} dbname=postgres"

    @property
    def is_running(self) -> bool:
        return (pid := self._pid()) is not None and not is_gone(pid)

    def create(self) -> None:
        """Create the data of a first primary."""
        password = self.directory / "password"
        password.write_text(PASSWORD)
        if os.geteuid() == 0:
            os.chown(password, self.account.uid, self.account.gid)
        self._run(
            "initdb", "-D", "data", "-U", "postgres", "--auth=scram-sha-256", "--pwfile=password", "--no-instructions",
            "--encoding=UTF8", "--locale=C", "--no-sync",
        )  # fmt: skip
        with (self.data / "pg_hba.conf").open("a") as file:
            file.write("host replication all 127.0.0.1/32 scram-sha-256\n")

    def start(self, parameters: Mapping[str, str] = {}) -> None:
        given = {**_PARAMETERS, "port": str(self.port), "unix_socket_directories": str(self.directory), **parameters}
        with (self.data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in given.items())
        # Files of a killed server; its process id may still belong to a zombie.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        (self.directory / f".s.PGSQL.{self.port}.lock").unlink(missing_ok=True)
        self._run("pg_ctl", "start", "-D", "data", "-l", "server.log", "-w", "-t", TIMEOUT)

    def follow(self, primary: "Server") -> None:
        """Start as a standby of this primary: with a new copy of its data, or from the own data by pg_rewind."""
        if self.data.exists():
            self._rewind(primary)
        else:
            self._run("pg_basebackup", "-D", "data", "-d", primary.dsn, "-X", "stream", "-c", "fast", "--no-sync")
        (self.data / "standby.signal").touch()
        if os.geteuid() == 0:
            os.chown(self.data / "standby.signal", self.account.uid, self.account.gid)
        self.start({"primary_conninfo": self._upstream(primary), "synchronous_standby_names": ""})

    def follow_instead(self, primary: "Server") -> None:
        """Follow another primary, as a running standby."""
        self.set(primary_conninfo=self._upstream(primary))

    def promote(self) -> None:
        """Make this standby a primary; return when it accepts writes."""
        self._run("pg_ctl", "promote", "-D", "data", "-w", "-t", TIMEOUT)

    def kill(self) -> None:
        """Kill the server and all its processes at once, as a power failure does."""
        pid = self._pid()
        assert pid is not None
        family = [pid, *(int(child) for child in _children(pid))]
        for each in family:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        until(lambda: all(is_gone(each) for each in family))

    def stop(self) -> None:
        """Stop the server at once, if it runs."""
        if self.is_running:
            self._run("pg_ctl", "stop", "-D", "data", "-m", "immediate", "-w", "-t", TIMEOUT)

    def set(self, **parameters: str) -> None:
        """Change parameters of the running server."""
        with self.connect() as connection:
            for name, value in parameters.items():
                connection.execute(f"alter system set {name} = '{value}'".encode())
            connection.execute("select pg_reload_conf()")

    def has_received(self, standby: str, position: str) -> bool:
        """Return whether a synchronous standby has stored everything up to this position of the log."""
        return bool(
            self.one(
                "select count(*) from pg_stat_replication "
                f"where application_name = '{standby}' and sync_state = 'sync' and flush_lsn >= '{position}'"
            )
        )

    def checkpoint(self) -> int:
        """Write a checkpoint, and return its timeline."""
        with self.connect() as connection:
            connection.execute("checkpoint")
        timeline: int = self.one("select timeline_id from pg_control_checkpoint()")
        return timeline

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn, autocommit=True)

    def one(self, query: str) -> Any:
        """Return the first column of the first row of a query, on a connection of its own."""
        with self.connect() as connection:
            row = connection.execute(query.encode()).fetchone()
        return None if row is None else row[0]

    def _upstream(self, primary: "Server") -> str:
        return (
            f"host=127.0.0.1 port={primary.port} user=postgres password={PASSWORD} "
            f"application_name={self.name} connect_timeout=2"
        )

    def _rewind(self, primary: "Server") -> None:
        """Take back what this old primary has and the new one has not."""
        self.stop()
        # pg_rewind reads the timeline of the new primary from its last checkpoint.
        primary.checkpoint()
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        if "shut down" not in self._run("pg_controldata", "data").split("cluster state:")[1].splitlines()[0]:
            # A killed server has to recover before it can be rewound.
            self._run("postgres", "--single", "-D", "data", "template1")
        self._run("pg_rewind", "-D", "data", f"--source-server={primary.dsn}")

    def _pid(self) -> int | None:
        try:
            return int((self.data / "postmaster.pid").read_text().split()[0])
        except (OSError, IndexError, ValueError):
            return None

    def _run(self, program: str, *arguments: str) -> str:
        done = self.account.run(BIN / program, *arguments, cwd=self.directory)
        if done.returncode != 0:
            log = self.directory / "server.log"
            lines = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
            raise AssertionError("\n".join([f"{program} of server {self.name} failed:", done.stdout, *lines]))
        return done.stdout


class ReplicatedServers:
    """Three servers: `a` is the primary, `b` its synchronous standby, `c` its asynchronous one."""

    def __init__(self, names: Sequence[str] = ("a", "b", "c"), *, synchronous: str = "b") -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="sereno-replication-", dir=MEMORY if MEMORY.is_dir() else None))
        self._directory.chmod(0o755)
        self._synchronous = synchronous
        self.servers = {name: Server(self._directory, name) for name in names}

    def __getitem__(self, name: str) -> Server:
        return self.servers[name]

    def __enter__(self) -> Self:
        first, *standbys = self.servers.values()
        first.create()
        first.start()
        for standby in standbys:
            standby.follow(first)
        if self._synchronous:
            first.set(synchronous_standby_names=self._synchronous)
        until(lambda: first.one("select count(*) from pg_stat_replication where state = 'streaming'") == len(standbys))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self.servers.values():
            server.stop()
        shutil.rmtree(self._directory)

    def url(self, *names: str, dbname: str = "postgres", **more: str) -> str:
        """Return an address with these servers, or all of them."""
        hosts = ",".join(f"127.0.0.1:{self.servers[name].port}" for name in names or self.servers)
        options = "&".join(f"{name}={value}" for name, value in more.items())
        return f"postgresql://postgres:{PASSWORD}@{hosts}/{dbname}{'?' if options else ''}{options}"

    def keywords(self, *names: str, dbname: str = "postgres") -> str:
        """Return the same as keywords and values."""
        chosen = [self.servers[name] for name in names or self.servers]
        ports = ",".join(str(server.port) for server in chosen)
        return (
            f"host={','.join(['127.0.0.1'] * len(chosen))} port={ports} user=postgres password={PASSWORD} "
            f"dbname={dbname} target_session_attrs=read-write"
        )


def free_port() -> int:
    """Return a port of loopback that no process uses now."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
