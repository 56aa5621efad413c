"""A MariaDB for the tests: started on loopback, ended by its process id."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql

from tests.facts import until

SYSTEM_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin"
SERVER = shutil.which("mariadbd", path=SYSTEM_PATH)
INSTALL = shutil.which("mariadb-install-db", path=SYSTEM_PATH)
# A password for an empty server.
FAST_SETTINGS = ("--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M", "--skip-log-bin")


class MariaDB:
    """Its address, and connections as root."""

    def __init__(self, port: int, path: str) -> None:
        self.port = port
        self.socket = path

    def root(self) -> Any:
        return pymysql.connect(unix_socket=self.socket, user="root", autocommit=True)

    def do(self, *statements: str) -> None:
        connection = self.root()
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
        finally:
            connection.close()

    def query(self, statement: str) -> Any:
        connection = self.root()
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall()
        finally:
            connection.close()

    def is_up(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(self.socket) == 0


@contextmanager
def running() -> Iterator[MariaDB]:
    assert SERVER is not None
    assert INSTALL is not None
    with tempfile.TemporaryDirectory(prefix="sereno-mariadb-") as directory:
        data, path = Path(directory) / "data", str(Path(directory) / "socket")
        user = ["--user=root"] if os.getuid() == 0 else []
        make = [INSTALL, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal", *user]
        subprocess.run([*make, "--skip-test-db"], check=True, capture_output=True)
        port = free_port()
        process = subprocess.Popen(
            [SERVER, "--no-defaults", f"--datadir={data}", f"--socket={path}", f"--port={port}", *user, *FAST_SETTINGS,
             "--bind-address=127.0.0.1", f"--pid-file={directory}/pid"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        server = MariaDB(port, path)
        try:
            until(lambda: server.is_up() or process.poll() is not None)
            assert process.poll() is None, "mariadbd did not start"
            yield server
        finally:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port
