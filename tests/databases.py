"""Databases for tests. One in which a test has changed nothing but rows is emptied and given to the next test.

To copy a template and drop the copy costs PostgreSQL 32 ms of processor time, to delete the rows of a few tables a
fraction of that. A database whose schema, settings or statistics were changed, or that has grown, is dropped.
"""

import hashlib
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import LiteralString

import psycopg
from psycopg import sql

from sereno.database.migrate import migrate, migrations
from tests.facts import TIMEOUT

# Dead rows make a database slower: it is dropped after this many tests, or when tests have written this many rows.
MOST_USES = 50
MOST_ROWS = 5_000
# DDL writes to these catalogs; ANALYZE and autovacuum change the statistics.
CATALOGS: LiteralString = (
    "{pg_class, pg_attribute, pg_proc, pg_namespace, pg_constraint, pg_trigger, pg_index, pg_inherits, pg_type, "
    "pg_policy, pg_default_acl, pg_extension, pg_statistic, pg_description, sereno.migrations}"
)
# PostgreSQL counts the writes, which is cheaper than to read the catalogs. In a new database all counts are zero.
CATALOG_WRITES: LiteralString = f"""
select sum(pg_stat_get_tuples_inserted(oid) + pg_stat_get_tuples_updated(oid) + pg_stat_get_tuples_deleted(oid))::int
from unnest('{CATALOGS}'::regclass[]) as oid
"""
FINGERPRINT = """
select concat_ws(' ',
    (select sum(reltuples) from pg_class where relnamespace = 'sereno'::regnamespace),
    (select xmin from pg_database where datname = current_database()),
    (select count(*) from pg_db_role_setting join pg_database on pg_database.oid = setdatabase
     where datname = current_database()))
"""
# PostgreSQL counts what a connection has written when the connection ends.
WRITTEN = """
select relname, pg_stat_get_tuples_inserted(oid) + pg_stat_get_tuples_updated(oid) from pg_class
where relnamespace = 'sereno'::regnamespace and relkind = 'r' and pg_stat_get_tuples_inserted(oid) > 0
"""
REWIND_SEQUENCES = """
select count(setval(seqrelid::regclass, seqstart, false)) from pg_sequence
where pg_sequence_last_value(seqrelid) is not null
"""


@dataclass
class CopiedDatabase:
    """A copy of the template."""

    name: str
    url: str
    template: str
    fingerprint: str = ""
    uses: int = 0
    rows: int = 0


class DatabasePool:
    """The databases of one test process."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._server = psycopg.connect(server_url, autocommit=True)
        self._free: list[CopiedDatabase] = []
        self._templates: set[str] = set()

    def url_of(self, name: str) -> str:
        return self._server_url.replace("/postgres?", f"/{name}?", 1)

    def template_of_today(self) -> str:
        """Return the name of a migrated database, created by the first process that asks for it."""
        name = f"template_{datetime.now(UTC):%Y%m%d}_{_schema_digest()}"
        if name not in self._templates:
            # The lock makes the other processes wait. A database that is not complete has another name.
            self._server.execute("select pg_advisory_lock(hashtext(%s))", [name])
            found = self._server.execute("select from pg_database where datname = %s", [name]).fetchone()
            if found is None:
                unfinished = self.create("template1")
                with psycopg.connect(unfinished.url, autocommit=True) as connection:
                    migrate(connection)
                rename = sql.SQL("alter database {} rename to {}")
                self._server.execute(rename.format(sql.Identifier(unfinished.name), sql.Identifier(name)))
            self._server.execute("select pg_advisory_unlock(hashtext(%s))", [name])
            self._templates.add(name)
        return name

    def take(self, template: str) -> CopiedDatabase:
        """Return an empty database with the schema of the template."""
        for database in self._free:
            if database.template == template:
                self._free.remove(database)
                return database
        made = self.create(template)
        with psycopg.connect(made.url, autocommit=True) as connection:
            made.fingerprint = _fingerprint(connection)
        return made

    def give_back(self, database: CopiedDatabase) -> None:
        """Empty it for the next test, or drop it."""
        database.uses += 1
        self._disconnect(database.name)
        if database.uses < MOST_USES and _empty(database):
            self._free.append(database)
        else:
            self.drop(database)

    def create(self, template: str) -> CopiedDatabase:
        name = f"test_{uuid.uuid4().hex[:12]}"
        # With fsync off, copying files is cheaper than writing each page to the log.
        self._server.execute(
            sql.SQL("create database {} template {} strategy file_copy").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        return CopiedDatabase(name, self.url_of(name), template)

    @contextmanager
    def copy(self, template: str) -> Iterator[str]:
        """Return the URL of a copy of a database that is dropped afterwards."""
        database = self.create(template)
        yield database.url
        self.drop(database)

    def drop(self, database: CopiedDatabase) -> None:
        self._disconnect(database.name)
        self._server.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(database.name)))

    def close(self) -> None:
        for database in self._free:
            self.drop(database)
        self._server.close()

    def _disconnect(self, name: str) -> None:
        """Terminate all connections. DROP DATABASE would check again only after 0.1 s while one is left."""
        terminate = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = %s"
        end = time.monotonic() + TIMEOUT
        while self._server.execute(terminate, [name]).fetchone() != (0,) and time.monotonic() < end:
            time.sleep(0.001)


@cache
def _schema_digest() -> str:
    """Return a digest of all migrations: checkouts with different schemas may share the server."""
    numbered = "".join(f"{migration.number} {migration.checksum} " for migration in migrations())
    return hashlib.sha256(numbered.encode()).hexdigest()[:12]


def _fingerprint(connection: psycopg.Connection) -> str:
    return str(connection.execute(FINGERPRINT).fetchall()[0][0])


def _empty(database: CopiedDatabase) -> bool:
    """Delete all rows; return False if the database must be dropped."""
    try:
        with psycopg.connect(database.url, autocommit=True) as connection:
            if connection.execute(CATALOG_WRITES).fetchall() != [(0,)]:
                return False
            if _fingerprint(connection) != database.fingerprint:
                return False
            written = connection.execute(WRITTEN).fetchall()
            database.rows += sum(count for _, count in written)
            if database.rows > MOST_ROWS:
                return False
            deletes = [sql.SQL("delete from sereno.{}").format(sql.Identifier(name)) for name, _ in written]
            # Without triggers and foreign keys.
            connection.execute(sql.SQL(";").join([sql.SQL("set session_replication_role = replica"), *deletes]))
            connection.execute(REWIND_SEQUENCES)
            # The next test counts from zero; first these deletes have to be counted.
            connection.execute("select pg_stat_force_next_flush()")
            connection.execute("select pg_stat_reset()")
            return True
    except psycopg.Error:
        # It was renamed or dropped, its schema is gone, or it refuses connections.
        return False
