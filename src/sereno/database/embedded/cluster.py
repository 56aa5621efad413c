"""One PostgreSQL cluster in one directory: created, launched, found again and shut down."""

import hashlib
import os
import shlex
import shutil
import socket
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

from sereno.database.embedded.file_lock import FileLock
from sereno.database.embedded.programs import (
    SystemAccount,
    account_for,
    executable_bin_dir,
    postgres_version,
    wheel_bin_dir,
)
from sereno.errors import EmbeddedPostgresError

# Seconds that pg_ctl waits for the server to start or stop.
TIMEOUT_SECONDS = 60

_PORT = 5432

# Bytes. macOS allows 104 with the terminating NUL; Linux 108.
_LONGEST_SOCKET_PATH = 103

# Since this major version there is a built-in Unicode locale that is the same on every system.
_BUILTIN_LOCALE_SINCE = 17

# Lines of the server's log in an error message.
_LOG_LINES_SHOWN = 15

_DEFAULT_PARAMETERS = {
    "shared_buffers": "128MB",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "log_min_messages": "warning",
}


@dataclass(frozen=True, slots=True)
class PostmasterFile:
    """The content of `postmaster.pid`, written by a running or killed server."""

    port: str
    socket_directory: str
    status: str

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the file; return None when it is missing or incomplete."""
        try:
            lines = os.fsdecode(path.read_bytes()).splitlines()
        except FileNotFoundError:
            return None
        try:
            _process, _data, _start_time, port, socket_directory, _host, _shared_memory, status = lines
        except ValueError:
            return None
        return cls(port, socket_directory, status.strip())

    def server_listens(self) -> bool:
        """Return whether a server accepts connections on this socket."""
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(f"{self.socket_directory}/.s.PGSQL.{self.port}")
            except OSError:
                return False
        return True


class Cluster:
    """The cluster in `<home>/postgres`: its data, its log and, if the path is short enough, its socket.

    The caller holds the start lock of the home around every call.
    """

    def __init__(self, home: Path, bin_dir: Path | None, parameters: Mapping[str, str]) -> None:
        self._home = home
        self._bin_dir = bin_dir
        self._parameters = parameters
        self._directory = home / "postgres"
        self._data = self._directory / "data"
        self._postmaster_file = self._data / "postmaster.pid"
        self._log = self._directory / "server.log"
        # The server and all its children inherit this lock, so it shows whether one of them is alive.
        # A process id does not: it may be reused, or belong to a zombie.
        self._server_lock = home / "server.lock"

    def url(self) -> str | None:
        """Return the address of the running server; None when no server is ready."""
        server = PostmasterFile.read(self._postmaster_file)
        if server is None or server.status != "ready" or not server.server_listens():
            return None
        # With an explicit port, a client ignores PGPORT in its environment.
        host = quote(os.fsencode(server.socket_directory))
        return f"postgresql://postgres@/postgres?host={host}&port={server.port}"

    def launch(self) -> bool:
        """Launch the server and create its data if needed; return False while an earlier server still has a process."""
        lock = FileLock(self._server_lock)
        try:
            if not lock.try_alone():
                return False
            account = account_for(self._directory)
            bin_dir = executable_bin_dir(self._installed_bin_dir(), account)
            if not self._directory.exists():
                self._create(bin_dir, account)
            self._start(bin_dir, account, lock)
        finally:
            lock.forget()
        return True

    def shut_down(self) -> None:
        """Stop the server, if it was launched by this library and is alive."""
        lock = FileLock(self._server_lock)
        try:
            if lock.try_alone():
                return
            account = account_for(self._directory)
            bin_dir = executable_bin_dir(self._installed_bin_dir(), account)
            arguments = ("stop", "-D", "data", "-m", "fast", "-w", "-t", str(TIMEOUT_SECONDS))
            result = account.run(bin_dir / "pg_ctl", *arguments, cwd=self._directory)
            server = PostmasterFile.read(self._postmaster_file)
            # If pg_ctl fails because the server was killed, nothing is left to do: its processes exit by themselves.
            if result.returncode != 0 and server is not None and server.server_listens():
                raise self._failure("did not stop", result.stdout)
            with suppress(OSError):
                self._temporary_socket_directory(account).rmdir()
        finally:
            lock.forget()

    def _installed_bin_dir(self) -> Path:
        if self._bin_dir is not None:
            return self._bin_dir
        try:
            return wheel_bin_dir(int((self._data / "PG_VERSION").read_text()))
        except FileNotFoundError:
            return wheel_bin_dir()

    def _create(self, bin_dir: Path, account: SystemAccount) -> None:
        """Create the cluster under another name and rename it when complete, in case initdb is interrupted."""
        unfinished = self._home / "postgres.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        _make_private_directory(unfinished, account)
        arguments = ["-D", "data", "-U", "postgres", "--auth-local=trust", "--auth-host=reject", "--no-instructions"]
        arguments += ["--encoding=UTF8", "--locale=C", "--lc-messages=C"]
        if postgres_version(bin_dir)[0] >= _BUILTIN_LOCALE_SINCE:
            arguments += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        result = account.run(bin_dir / "initdb", *arguments, cwd=unfinished)
        if result.returncode != 0:
            raise self._failure("could not create its data", result.stdout)
        unfinished.rename(self._directory)
        _sync_directory(self._home)

    def _start(self, bin_dir: Path, account: SystemAccount, server_lock: FileLock) -> None:
        socket_directory = self._socket_directory(account)
        self._remove_stale_files(socket_directory)
        with suppress(FileNotFoundError):
            self._log.rename(self._log.with_name("server.log.previous"))
        parameters = {
            **_DEFAULT_PARAMETERS,
            **self._parameters,
            "listen_addresses": "",
            "port": str(_PORT),
            "unix_socket_directories": str(socket_directory),
            "unix_socket_permissions": "0700",
        }
        options = shlex.join(word for name, value in parameters.items() for word in ("-c", f"{name}={value}"))
        # Relative paths, because pg_ctl puts them into a shell command without escaping special characters.
        arguments = ("start", "-D", "data", "-l", "server.log", "-w", "-t", str(TIMEOUT_SECONDS), "-o", options)
        result = account.run(bin_dir / "pg_ctl", *arguments, cwd=self._directory, pass_fds=(server_lock.descriptor,))
        if result.returncode != 0:
            raise self._failure("did not start", result.stdout)

    def _remove_stale_files(self, socket_directory: Path) -> None:
        """Remove files of a killed server: PostgreSQL trusts them while their process id exists, also when reused."""
        server = PostmasterFile.read(self._postmaster_file)
        # The server lock is held, so a server that listens was launched manually: PostgreSQL itself will refuse.
        if server is not None and server.server_listens():
            return
        self._postmaster_file.unlink(missing_ok=True)
        (socket_directory / f".s.PGSQL.{_PORT}.lock").unlink(missing_ok=True)

    def _socket_directory(self, account: SystemAccount) -> Path:
        """Return the cluster's directory, or a private temporary one if the path is unsuitable for a socket."""
        if _suits_a_socket(self._directory):
            return self._directory
        directory = self._temporary_socket_directory(account)
        if not _suits_a_socket(directory):
            raise EmbeddedPostgresError(
                f"A socket cannot be created in {directory}. Set TMPDIR to a short path without commas and colons."
            )
        if not os.path.lexists(directory):
            _make_private_directory(directory, account)
        status = directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != account.uid or status.st_mode & 0o077:
            raise EmbeddedPostgresError(
                f"{directory} is not a private directory of user {account.uid}, so the server's socket would not "
                "be safe there. Remove it, or move the project to a short path without commas and colons."
            )
        return directory

    def _temporary_socket_directory(self, account: SystemAccount) -> Path:
        digest = hashlib.sha256(os.fsencode(self._directory)).hexdigest()[:16]
        return Path(tempfile.gettempdir()).resolve() / f"sereno-{account.uid}-{digest}"

    def _failure(self, what: str, output: str) -> EmbeddedPostgresError:
        try:
            log = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
        except OSError:
            log = []
        lines = [
            f"The embedded PostgreSQL in {self._directory} {what}.",
            *output.strip().splitlines(),
            *([f"The last lines of {self._log}:", *log] if log else []),
            "Fix the problem above, or set SERENO_DATABASE_URL to your own server.",
        ]
        return EmbeddedPostgresError("\n".join(lines))


def _make_private_directory(path: Path, account: SystemAccount) -> None:
    path.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(path, account.uid, account.gid, follow_symlinks=False)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _suits_a_socket(directory: Path) -> bool:
    """Return whether a socket path fits and is unambiguous: clients split hosts at commas and ports at colons."""
    path = directory / f".s.PGSQL.{_PORT}"
    return len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH and not {",", ":"} & set(str(path))
