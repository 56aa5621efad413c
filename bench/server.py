"""The PostgreSQL server of the benchmarks, and a fresh database for every measurement."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg
from psycopg.sql import SQL, Composed, Identifier

from sereno.database.embedded import EmbeddedPostgres
from sereno.database.migrate import migrate

HOME = Path(__file__).parents[1] / ".bench"
# The settings of a small production server. Durable: a committed job survives a crash of the machine.
PARAMETERS = {"shared_buffers": "1GB", "max_wal_size": "8GB", "fsync": "on", "synchronous_commit": "on"}


@contextmanager
def server(database_url: str | None) -> Iterator["Server"]:
    """The server at that address, or an embedded one under `.bench/`."""
    if database_url:
        yield Server(database_url)
        return
    HOME.mkdir(exist_ok=True)
    (HOME / ".gitignore").write_text("*\n")
    with EmbeddedPostgres(HOME / "postgres", parameters=PARAMETERS) as embedded:
        yield Server(embedded.url)


@dataclass(frozen=True)
class Server:
    """A server; the database at `url` is only used to create others."""

    url: str

    @contextmanager
    def fresh(self, name: str) -> Iterator[str]:
        """Yield the address of a new, migrated database, and drop it at the end."""
        database = f"bench_{name}"
        self._drop(database)
        self._execute(SQL("create database {}").format(Identifier(database)))
        try:
            address = self.address(database)
            with psycopg.connect(address, autocommit=True) as connection:
                migrate(connection)
            yield address
        finally:
            self._drop(database)

    def address(self, database: str) -> str:
        """Return a URL with everything but the database in its query: only this form can hold a socket directory."""
        with psycopg.connect(self.url) as connection:
            info = connection.info
            parts = {"host": info.host, "port": info.port, "user": info.user, "password": info.password}
        known = {key: value for key, value in parts.items() if value}
        return f"postgresql:///{database}?{urlencode(known, quote_via=quote)}"

    def description(self) -> str:
        """Return the versions, settings and machine that the figures were measured with."""
        with psycopg.connect(self.url) as connection:
            version = connection.info.parameter_status("server_version") or "?"
            shown = ", ".join(f"{name} {_setting(connection, name)}" for name in PARAMETERS)
        machine = f"{os.cpu_count()} cores, {platform.machine()}"
        return f"PostgreSQL {version.split()[0]} ({shown}); Python {platform.python_version()}; {machine}"

    def _drop(self, database: str) -> None:
        self._execute(SQL("drop database if exists {} with (force)").format(Identifier(database)))

    def _execute(self, statement: Composed) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)


def _setting(connection: psycopg.Connection, name: str) -> str:
    row = connection.execute("select current_setting(%s)", [name]).fetchone()
    return str(row[0]) if row else "?"
