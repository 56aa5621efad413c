"""Migrations: numbered SQL files, applied once each, in order, under a lock, one transaction per file.

They only add, so that workers of the previous version keep running next to those of this one. A statement that cannot
get its lock within seconds is cancelled and tried again, so that other clients do not queue behind it.
"""

import hashlib
import re
import time
from dataclasses import dataclass
from importlib import resources

import psycopg

from sereno.database.statement import DEFAULT_SCHEMA, in_schema
from sereno.errors import DatabaseUnavailable, SchemaError

# A migration waits this long for a lock, and tries again this many times.
LOCK_TIMEOUT = "3s"
TRIES = 20


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered SQL file."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()[:16]

    def text(self, schema: str) -> str:
        """Return the complete SQL, which any client can run in one transaction."""
        body = re.sub(
            r"(create schema if not exists )sereno(_archive)?;", rf"\1{schema}\2;", in_schema(self.sql, schema)
        )
        entry = (
            f"insert into {schema}.migrations (number, name, checksum) "  # noqa: S608 - built from our own, checked values
            f"values ({self.number}, '{self.name}', '{self.checksum}');"
        )
        return f"{body.rstrip()}\n\n{entry}\n"


def migrations() -> list[Migration]:
    """Return every migration of this version, in order."""
    found = []
    for file in (resources.files("sereno.database") / "migrations").iterdir():
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name)
        if match:
            found.append(Migration(int(match[1]), match[2], file.read_text()))
    return sorted(found, key=lambda migration: migration.number)


def pending(connection: psycopg.Connection, schema: str = DEFAULT_SCHEMA) -> list[Migration]:
    """Return the migrations to apply; raise SchemaError when an applied file was changed afterwards."""
    applied = _applied(connection, schema)
    for migration in migrations():
        checksum = applied.get(migration.number, migration.checksum)
        if checksum != migration.checksum:
            raise SchemaError(
                f"migration {migration.number:04}_{migration.name} differs from the one applied to schema {schema}: "
                "applied migrations are never edited; restore the file, or add a new one"
            )
    return [migration for migration in migrations() if migration.number not in applied]


def migrate(connection: psycopg.Connection, schema: str = DEFAULT_SCHEMA) -> list[Migration]:
    """Apply pending migrations; return those that were applied. Safe to call from many processes at once."""
    return [migration for migration in pending(connection, schema) if _apply(connection, migration, schema)]


def check(connection: psycopg.Connection, schema: str = DEFAULT_SCHEMA) -> None:
    """Raise SchemaError unless the schema is at least as new as this code."""
    behind = pending(connection, schema)
    if len(behind) == len(migrations()):
        raise SchemaError(f"the database has no schema {schema!r} of sereno: run `sereno migrate`")
    if behind:
        raise SchemaError(
            f"schema {schema!r} is {len(behind)} migration(s) behind this version "
            f"(next: {behind[0].number:04}_{behind[0].name}): run `sereno migrate`"
        )


def _applied(connection: psycopg.Connection, schema: str) -> dict[int, str]:
    with connection.transaction():
        # Read from the catalogue, not with to_regclass, which caches the result from before the wait for the lock.
        found = connection.execute(
            "select 1 from pg_catalog.pg_tables where schemaname = %s and tablename = 'migrations'", [schema]
        ).fetchone()
        if found is None:
            return {}
        rows = connection.execute(in_schema("select number, checksum from sereno.migrations", schema)).fetchall()
    return dict(rows)


def _apply(connection: psycopg.Connection, migration: Migration, schema: str) -> bool:
    for attempt in range(TRIES):
        try:
            with connection.transaction():
                # A transaction-level lock cannot leak through a pooler and ends with the migration.
                connection.execute("select pg_advisory_xact_lock(hashtext(%s))", [f"sereno.migrate.{schema}"])
                if migration.number in _applied(connection, schema):
                    return False
                connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
                connection.execute(migration.text(schema).encode())
            return True
        except psycopg.errors.LockNotAvailable:
            # Let other clients proceed, with longer and longer pauses, up to 2 s.
            time.sleep(min(2.0, 0.1 * 2**attempt))
    raise DatabaseUnavailable(
        f"migration {migration.number:04}_{migration.name} got no lock in {TRIES} tries: "
        "a long transaction holds a table of sereno; end it, then run `sereno migrate` again"
    )
