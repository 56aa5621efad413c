"""Databases for a peer: a template with its schema, and a fresh copy of it for every measurement."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, urlencode

import psycopg
from psycopg.sql import SQL, Composed, Identifier


class PeerDatabases:
    def __init__(self, dsn: str, peer: str) -> None:
        self._dsn = dsn
        self._template = f"bench_{peer}_template"
        self._copy = f"bench_{peer}"

    @contextmanager
    def template(self) -> Iterator[str]:
        """Create the template, yield its address, and drop the template and its copy at the end."""
        self._drop_both()
        self._execute(SQL("create database {}").format(Identifier(self._template)))
        try:
            yield self._url(self._template)
        finally:
            self._drop_both()

    @contextmanager
    def fresh(self) -> Iterator[str]:
        self._execute(SQL("create database {} template {}").format(Identifier(self._copy), Identifier(self._template)))
        try:
            yield self._url(self._copy)
        finally:
            self._drop(self._copy)

    def _drop_both(self) -> None:
        self._drop(self._copy)
        self._drop(self._template)

    def _drop(self, name: str) -> None:
        self._execute(SQL("drop database if exists {} with (force)").format(Identifier(name)))

    def _execute(self, statement: Composed) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(statement)

    def _url(self, database: str) -> str:
        """Return a URL with everything but the database in its query: all drivers read it, sockets included."""
        with psycopg.connect(self._dsn) as connection:
            server = connection.info
            settings = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
        known = {key: value for key, value in settings.items() if value}
        return f"postgresql:///{database}?{urlencode(known, quote_via=quote)}"


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)
