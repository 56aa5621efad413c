"""The database server of the storm, and its faults: restarts, full and slow disks, no connections, clock jumps."""

import errno
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import psycopg

from sereno import DatabaseUnavailable
from sereno.database.embedded import EmbeddedPostgres
from sereno.errors import EmbeddedPostgresError
from tests.facts import advance, one, until
from tests.faults.server import restart
from tests.shared_server import MEMORY

T = TypeVar("T")

# Seconds until a statement of the storm must have succeeded, in spite of the faults.
PATIENCE = 90.0
# Bytes of the disk of the database, besides those for each job.
DISK, DISK_PER_JOB = 1 << 30, 4096
# Microseconds that each commit waits on a slow disk.
COMMIT_DELAY = 60_000
# Bytes of a page of a file system in memory.
PAGE = 4096
# Needs more space than there is in the tables.
LARGE_TABLE = "create table if not exists large as select repeat('x', 1000) from generate_series(1, 2000)"
# Not a superuser: those ignore connection limits.
USER = "storm_app"


class StormServer:
    """A PostgreSQL with fsync on. If mount is permitted, its database is on a file system of its own, to be filled.

    The write-ahead log is elsewhere: a full disk makes statements fail, and the server stays up.
    """

    def __init__(self, jobs: int) -> None:
        self._stack = ExitStack()
        self.directory = Path(
            tempfile.mkdtemp(prefix="sereno-storm-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None)
        )
        self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self.directory.chmod(0o755)
        self._server = EmbeddedPostgres(self.directory, parameters={"max_connections": "300"})
        self._stack.enter_context(self._server)
        # It stays the same over restarts.
        self._server_url = self._server.url
        self.disk = self._mounted_disk(DISK + jobs * DISK_PER_JOB)
        self._create_database()
        self._connection: psycopg.Connection | None = None
        self._turn = threading.Lock()
        # The file that fills the disk.
        self._ballast: Path | None = None
        # Held by restarts and by clock jumps: whether a jump was committed must be known.
        self._up = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()
        self._stack.close()

    @property
    def url(self) -> str:
        return self._address(USER, "storm")

    def _address(self, user: str, database: str) -> str:
        return self._server_url.replace("postgres@/postgres", f"{user}@/{database}")

    def _mounted_disk(self, size: int) -> Path | None:
        """Mount a file system for the database; return None if that is not permitted."""
        path = self.directory / "disk"
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
        if subprocess.run(command, check=False, capture_output=True).returncode != 0:
            return None
        # The directory of the database must be empty; the file that fills the disk is beside it.
        self._stack.callback(self._unmount, path)
        (path / "data").mkdir(mode=0o700)
        owner = (self.directory / "postgres" / "data").stat()
        os.chown(path / "data", owner.st_uid, owner.st_gid)
        return path

    def _unmount(self, path: Path) -> None:
        self._server.stop()
        subprocess.run(["umount", str(path)], check=True)

    def _create_database(self) -> None:
        with psycopg.connect(self._server.url, autocommit=True) as connection:
            connection.execute(f"create role {USER} login".encode())
            where = ""
            if self.disk is not None:
                connection.execute(f"create tablespace own_disk location '{self.disk / 'data'}'".encode())
                where = "tablespace own_disk"
            connection.execute(f"create database storm owner {USER} {where}".encode())

    def ask(self, query: Callable[[psycopg.Connection], T]) -> T:
        """Return the result of a query as the superuser; repeat it while faults prevent it."""
        end = time.monotonic() + PATIENCE
        while True:
            with self._turn:
                try:
                    if self._connection is None:
                        address = self._address("postgres", "storm")
                        self._connection = psycopg.connect(address, autocommit=True, connect_timeout=5)
                    return query(self._connection)
                except (psycopg.OperationalError, DatabaseUnavailable):
                    if self._connection is not None and self._connection.closed:
                        self._connection = None
                    if time.monotonic() > end:
                        raise
            time.sleep(0.05)

    def restart(self) -> None:
        """Stop the server without a checkpoint, as in a power failure, and start it again.

        Its recovery fails while the disk is full; then it is started when there is space again.
        """
        with self._up:
            try:
                restart(self._server, self.directory)
            except EmbeddedPostgresError:
                if self._ballast is None:
                    raise
                until(lambda: self._ballast is None, PATIENCE)
                self._server.start()

    def jump(self, seconds: float) -> tuple[float, float]:
        """Advance the clock of the database; return the wall times before and after."""

        def act(connection: psycopg.Connection) -> None:
            with connection.transaction():
                # A heartbeat or a new session must not write a lease by the old clock after the jump.
                connection.execute("lock table sereno.sessions in share row exclusive mode")
                advance(connection, seconds)
                connection.execute("select pg_notify('sereno.schedule', '')")

        with self._up:
            before = time.time()
            self.ask(act)
            return before, time.time()

    def fill_disk(self, released: threading.Event, seconds: float) -> None:
        """Fill the disk of the database, until it has reported that, and for some seconds more."""
        assert self.disk is not None
        if self._ballast is not None:
            # It is full already.
            return
        self._ballast = self.disk / "ballast"
        try:
            with self._up:
                _take_all_space(self._ballast)
                until(self._reports_full_disk, PATIENCE)
            released.wait(seconds)
        finally:
            self._ballast.unlink()
            self._ballast = None

    def _reports_full_disk(self) -> bool:
        def act(connection: psycopg.Connection) -> bool:
            try:
                connection.execute(
                    "create table if not exists ballast as select repeat('x', 1000) from generate_series(1, 2000)"
                )
                connection.execute("drop table large")
            except psycopg.errors.DiskFull:
                return True
            return False

        return self.ask(act)

    def refuse_connections(self, released: threading.Event, seconds: float) -> None:
        """End half of the connections, and refuse new ones for some seconds."""

        def act(connection: psycopg.Connection) -> None:
            connection.execute(f"alter role {USER} connection limit 1".encode())
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s and pid %% 2 = 0", [USER]
            )

        try:
            self.ask(act)
            released.wait(seconds)
        finally:
            self.ask(lambda connection: connection.execute(f"alter role {USER} connection limit -1".encode()))

    def slow_down(self, released: threading.Event, seconds: float) -> None:
        """Delay every commit for some seconds, as a slow disk does."""
        try:
            self._set_commit_delay(COMMIT_DELAY)
            released.wait(seconds)
        finally:
            self._set_commit_delay(0)

    def _set_commit_delay(self, microseconds: int) -> None:
        def act(connection: psycopg.Connection) -> None:
            connection.execute("alter system set commit_siblings = 0")
            connection.execute(f"alter system set commit_delay = {microseconds}".encode())
            connection.execute("select pg_reload_conf()")

        self.ask(act)

    def clock_is_behind(self) -> float:
        """Return the seconds until the next job is due, at most a day; 0 if one is due or none waits."""
        query = (
            "select coalesce(extract(epoch from min(run_at) - sereno.now()), 0)::float8 from sereno.jobs "
            "where state = 'scheduled' and run_at < sereno.now() + interval '1 day'"
        )
        return max(0.0, self.ask(lambda connection: float(one(connection, query))))


def _take_all_space(path: Path) -> None:
    """Let a file take all space of its file system, in smaller and smaller parts."""
    size, taken = 1 << 24, 0
    with path.open("wb") as file:
        while size >= PAGE:
            try:
                os.posix_fallocate(file.fileno(), taken, size)
                taken += size
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
