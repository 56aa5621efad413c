"""The NATS server of a project, for development: `sereno run --nats`. Its files are beside the embedded PostgreSQL."""

import contextlib
import hashlib
import os
import signal
import socket
from pathlib import Path

import msgspec

from sereno.carriers.local_server import HOST, LocalNats

# The port of NATS, used if it is free.
USUAL_PORT = 4222
# Seconds until a server has to introduce itself, and the longest introduction in bytes.
ANSWER_TIMEOUT, LONGEST_GREETING = 1.0, 65_536


class ServerRecord(msgspec.Struct):
    """A server that a process has started: its port and process id, and the id of that process."""

    port: int
    process: int
    owner: int


class ProjectNats:
    """One server with JetStream on loopback, which keeps its port.

    It survives a crash of the process that started it: the next one uses it, and stops it at the end.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "nats"
        self._name = "sereno-" + hashlib.sha256(str(self.directory.resolve()).encode()).hexdigest()[:12]
        self._record = self.directory / "server.json"
        self._server: LocalNats | None = None
        self._adopted: int | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        """Start the server, or use the one that runs in this directory."""
        record = self._read()
        if record is not None and _greeting(record.port).get("server_name") == f"{self._name}-0":
            self.port = record.port
            if not _is_alive(record.owner):
                self._adopted = record.process
                self._write(record.process)
            return
        wanted = USUAL_PORT if record is None else record.port
        self._server = LocalNats(self.directory, port=wanted if _is_free(wanted) else None, name=self._name)
        self._server.start()
        self.port = self._server.ports[0]
        self._write(self._server.process_id(0))

    def stop(self) -> None:
        """Stop the server, unless another process has started it; its files remain."""
        if self._server is not None:
            self._server.stop()
        if self._adopted is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._adopted, signal.SIGTERM)

    def _read(self) -> ServerRecord | None:
        try:
            return msgspec.json.decode(self._record.read_bytes(), type=ServerRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def _write(self, process: int) -> None:
        self._record.write_bytes(msgspec.json.encode(ServerRecord(self.port, process, os.getpid())))


def _greeting(port: int) -> dict[str, object]:
    """Return what the server on this port says of itself: NATS sends one line of JSON first. Empty if it does not."""
    try:
        with socket.create_connection((HOST, port), timeout=ANSWER_TIMEOUT) as connection:
            line = connection.makefile("rb").readline(LONGEST_GREETING)
        return msgspec.json.decode(line.removeprefix(b"INFO "), type=dict[str, object])
    except (OSError, msgspec.DecodeError):
        return {}


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((HOST, port))
        except OSError:
            return False
    return True


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
