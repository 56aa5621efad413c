"""A database that is slow, and one that is away: both are real."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql


@contextmanager
def locked(database_url: str, *tables: str) -> Iterator[None]:
    """Somebody holds the tables, and whoever asks for one waits."""
    with psycopg.connect(database_url) as other:
        for table in tables:
            other.execute(sql.SQL("lock table sereno.{} in access exclusive mode").format(sql.Identifier(table)))
        yield
        other.rollback()


@contextmanager
def away(server_url: str, database_url: str) -> Iterator[None]:
    """Nobody is let in, and everybody is sent home."""
    name = str(psycopg.conninfo.conninfo_to_dict(database_url)["dbname"])
    allow = sql.SQL("alter database {} with allow_connections {}")
    with psycopg.connect(server_url, autocommit=True) as there:
        there.execute(allow.format(sql.Identifier(name), sql.SQL("false")))
        there.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])
        try:
            yield
        finally:
            there.execute(allow.format(sql.Identifier(name), sql.SQL("true")))
