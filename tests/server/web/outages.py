"""Makes the database of a test slow or unavailable."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql


@contextmanager
def locked(database_url: str, *tables: str) -> Iterator[None]:
    """Lock the tables, so that every query waits."""
    with psycopg.connect(database_url) as other:
        for table in tables:
            other.execute(sql.SQL("lock table sereno.{} in access exclusive mode").format(sql.Identifier(table)))
        yield
        other.rollback()


@contextmanager
def unavailable(server_url: str, database_url: str) -> Iterator[None]:
    """Refuse new connections, and end the existing ones."""
    name = str(psycopg.conninfo.conninfo_to_dict(database_url)["dbname"])
    allow = sql.SQL("alter database {} with allow_connections {}")
    with psycopg.connect(server_url, autocommit=True) as server:
        server.execute(allow.format(sql.Identifier(name), sql.SQL("false")))
        server.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])
        try:
            yield
        finally:
            server.execute(allow.format(sql.Identifier(name), sql.SQL("true")))
