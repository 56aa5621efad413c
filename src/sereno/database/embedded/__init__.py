"""An embedded PostgreSQL server for development: started on first use, stopped by the last process that uses it."""

import atexit
import hashlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from sereno.database.embedded.cluster import TIMEOUT_SECONDS, Cluster
from sereno.database.embedded.file_lock import FileLock
from sereno.database.embedded.programs import SYSTEM_DIRECTORY, account_for, make_directory, wheel_bin_dir
from sereno.errors import EmbeddedPostgresError

# Seconds between two checks while another process starts or stops the server.
_POLL_SECONDS = 0.02

# Parameters that keep the server private; callers cannot change them.
_FIXED_PARAMETERS = frozenset({"listen_addresses", "port", "unix_socket_directories", "unix_socket_permissions"})


@dataclass(frozen=True, slots=True)
class _EmbeddedUse:
    """The use of a running server by this process: while it holds the users lock, no process stops the server."""

    process: int
    home: Path
    cluster: Cluster
    users: FileLock
    url: str


class EmbeddedPostgres:
    """A PostgreSQL server in a directory, shared by every process that names the same directory.

    The first process to start it launches it; the last one to stop using it, however the others ended, shuts it down.
    Its parameters are those of the process that launched it. It listens on a Unix socket that only its owner can open,
    never on TCP. For root, the server runs as another user; if that user cannot access `directory`, the data is in
    `/var/lib/sereno`.
    """

    def __init__(
        self,
        directory: Path = Path(".sereno"),
        *,
        bin_dir: Path | None = None,
        parameters: Mapping[str, str] = {},
    ) -> None:
        fixed = sorted(_FIXED_PARAMETERS & parameters.keys())
        if fixed:
            raise EmbeddedPostgresError(
                f"The embedded PostgreSQL sets {', '.join(fixed)} itself. "
                "To change it, run your own server and set SERENO_DATABASE_URL."
            )
        self._directory = Path(directory).resolve()
        self._bin_dir = None if bin_dir is None else Path(bin_dir).absolute()
        self._parameters = dict(parameters)
        self._use: _EmbeddedUse | None = None

    @property
    def bin_dir(self) -> Path:
        """Return the directory of `psql`, `pg_dump` and the other programs of PostgreSQL."""
        return self._bin_dir or wheel_bin_dir()

    @property
    def url(self) -> str:
        """Return the server's address, for any driver; known once it is started."""
        if self._use is None:
            raise EmbeddedPostgresError("The embedded PostgreSQL is not started. Call start() first.")
        return self._use.url

    def start(self) -> str:
        """Start the server, or join the processes that use it already, and return its address."""
        with self._explained("did not start"):
            home = _home(self._directory)
            with FileLock.held(home / "start.lock"):
                if self._use is None or self._use.process != os.getpid():
                    self._use = self._join(home)
                    atexit.register(self._stop_silently)
                return self._use.url

    def stop(self) -> None:
        """End this process' use of the server, which stops if no other process uses it."""
        use, self._use = self._use, None
        if use is None:
            return
        atexit.unregister(self._stop_silently)
        if use.process != os.getpid():
            # This is a forked child: the use belongs to the parent process.
            use.users.forget()
        elif not use.home.is_dir():
            # The directory was deleted; the server notices within a minute and shuts down.
            use.users.release()
        else:
            # A new process joins under the same lock, so none can appear between the check and the shutdown.
            with self._explained("did not stop"), FileLock.held(use.home / "start.lock"):
                _leave(use.cluster, use.users)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _join(self, home: Path) -> _EmbeddedUse:
        cluster = Cluster(home, self._bin_dir, self._parameters)
        users = FileLock(home / "users.lock")
        try:
            users.share()
            return _EmbeddedUse(os.getpid(), home, cluster, users, _running_url(cluster))
        except BaseException:
            _leave(cluster, users)
            raise

    def _stop_silently(self) -> None:
        with suppress(EmbeddedPostgresError):
            self.stop()

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, subprocess.SubprocessError) as error:
            raise EmbeddedPostgresError(
                f"The embedded PostgreSQL in {self._directory} {what}: {error}. "
                "Use another directory, or set SERENO_DATABASE_URL to your own server."
            ) from error


def _running_url(cluster: Cluster) -> str:
    """Return the address of the running server, launching it if there is none."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (url := cluster.url()) is None:
        if cluster.launch():
            continue
        # A server exists but does not answer: it is recovering or shutting down.
        if time.monotonic() > deadline:
            raise EmbeddedPostgresError(
                f"The embedded PostgreSQL has been neither ready nor gone for {TIMEOUT_SECONDS} seconds. "
                "End its processes, or set SERENO_DATABASE_URL to your own server."
            )
        time.sleep(_POLL_SECONDS)
    return url


def _leave(cluster: Cluster, users: FileLock) -> None:
    """End a use, and shut the server down if it was the last one."""
    try:
        # If the directory was deleted and created again, its server is not the one that this process used.
        if users.try_alone() and users.is_current():
            cluster.shut_down()
    finally:
        users.release()


def _home(directory: Path) -> Path:
    """Return the directory of the cluster: `directory`, unless root's server runs as a user who cannot enter it."""
    directory.mkdir(parents=True, exist_ok=True)
    # Hide only an empty directory from git; any other might be the user's repository.
    if not any(directory.iterdir()):
        (directory / ".gitignore").write_text("*\n")
    if os.geteuid() != 0 or (directory / "postgres").exists():
        return directory
    elsewhere = SYSTEM_DIRECTORY / hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    if (elsewhere / "postgres").exists():
        return elsewhere
    if account_for(directory / "postgres").reaches(directory):
        return directory
    make_directory(SYSTEM_DIRECTORY, 0o755)
    return make_directory(elsewhere, 0o755)
