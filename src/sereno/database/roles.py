"""Database roles: an owner that never logs in, and one login per kind of process, with `privileges.py`.

`roles.sql` is one script that a database administrator can read and run, or that sereno runs. It can be run again at
any time: it adds missing privileges and revokes unneeded ones.
"""

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources

import psycopg

from sereno.database.privileges import AS_OWNER, LOGINS, REACHES, SEQUENCES, privileges, tables
from sereno.database.statement import DEFAULT_SCHEMA, Operation, Statement, in_schema, queries
from sereno.errors import ConfigurationError, DatabaseUnavailable

_sql = queries("database/role_queries")

# Attempts to get the locks.
TRIES = 10
_PREFIX = re.compile(r"[a-z_][a-z0-9_]{0,52}")
# Characters of a line of the script.
_WIDEST = 120
# Temporary errors, after which the script is run again: a table is in use while its owner changes; vacuum has just
# updated its statistics row; or another database of the same server creates the same roles right now.
_TEMPORARY = (psycopg.errors.LockNotAvailable, psycopg.errors.InternalError_, psycopg.errors.UniqueViolation)
# Functions that run as their owner: a fixed search path, so that objects of the caller cannot replace others.
_SECURITY_DEFINER = "security definer set search_path = pg_catalog, pg_temp"


@dataclass(frozen=True, slots=True)
class CurrentRole:
    """The role of this connection, and whether it has more privileges than a process needs."""

    name: str
    is_superuser: bool
    is_owner: bool


def script(schema: str = DEFAULT_SCHEMA, prefix: str = DEFAULT_SCHEMA) -> str:
    """Return the SQL that creates the roles `{prefix}_owner`, `{prefix}_worker` and so on with their privileges."""
    if _PREFIX.fullmatch(prefix) is None:
        raise ConfigurationError(
            f"roles cannot be named {prefix!r}_worker: use lower-case letters, digits and _, at most 53"
        )
    text = (resources.files("sereno.database") / "roles.sql").read_text()
    parts = {"nothing": _nothing(), "tables": _tables(), "sequences": _sequences(), "functions": _functions()}
    for part, lines in parts.items():
        text = text.replace(f"-- here: {part}", "\n".join(lines))
    text = re.sub(rf"\bsereno_(owner|{'|'.join(LOGINS)})\b", rf"{prefix}_\1", text)
    if schema != DEFAULT_SCHEMA:
        text = re.sub(r"\bschema sereno(_archive)?\b", rf"schema {schema}\1", text)
        text = re.sub(r"'sereno(_archive)?'::regnamespace", rf"'{schema}\1'::regnamespace", text)
    return in_schema(text, schema)


def create(connection: psycopg.Connection, schema: str, prefix: str) -> list[str]:
    """Create the roles and set their privileges in one transaction; return the new logins."""
    text = script(schema, prefix).replace("\nbegin;\n", "\n").partition("\ncommit;\n")[0]
    names = [f"{prefix}_{login}" for login in LOGINS]
    for attempt in range(TRIES):
        try:
            with connection.transaction():
                # Two concurrent calls, or one and a migration, would change the same rows of the catalogue.
                connection.execute("select pg_advisory_xact_lock(hashtext(%s))", [f"sereno.migrate.{schema}"])
                known = connection.execute("select rolname from pg_roles where rolname = any(%s)", [names]).fetchall()
                connection.execute(text.encode())
            return [name for name in names if (name,) not in known]
        except _TEMPORARY:
            time.sleep(min(2.0, 0.1 * 2**attempt))
    raise DatabaseUnavailable(
        f"the roles got no lock in {TRIES} tries: a long transaction holds a table of sereno; end it, then try again"
    )


def prefix_of(connection: psycopg.Connection, schema: str = DEFAULT_SCHEMA) -> str | None:
    """Return the prefix of the roles that own the schema, or None if there are none."""
    with connection.transaction():
        rows = connection.execute(in_schema(_sql["prefix"], schema).encode(), {"schema": schema}).fetchall()
    return str(rows[0][0]) if rows else None


def current_role() -> Operation[CurrentRole]:
    """Return the role of this connection."""
    rows = yield Statement(_sql["current_role"])
    return CurrentRole(*rows[0])


def _tables() -> Iterator[str]:
    for reach in REACHES:
        alike: dict[str, list[str]] = {}
        for table, rights in tables().items():
            if words := privileges(rights[reach]):
                alike.setdefault(", ".join(words), []).append(f"sereno.{table}")
        for right, names in sorted(alike.items()):
            yield from _wrapped(f"grant {right} on", names, f"to sereno_{reach};")


def _sequences() -> Iterator[str]:
    for name, logins in SEQUENCES.items():
        yield f"grant usage on sequence sereno.{name} to {_roles(logins)};"


def _functions() -> Iterator[str]:
    for name in AS_OWNER:
        yield f"alter function sereno.{name} {_SECURITY_DEFINER};"
    yield from _wrapped(
        "revoke execute on function", [f"sereno.{name}" for name in AS_OWNER], f"from {_roles(REACHES)};"
    )
    for logins in sorted(set(AS_OWNER.values())):
        names = [f"sereno.{name}" for name, callers in AS_OWNER.items() if callers == logins]
        yield from _wrapped("grant execute on function", names, f"to {_roles(logins)};")


def _nothing() -> Iterator[str]:
    grantees = f"public, {_roles(LOGINS)}"
    for schema in ("sereno", "sereno_archive"):
        for what in ("schema", "all tables in schema", "all sequences in schema", "all routines in schema"):
            yield f"revoke all on {what} {schema} from {grantees};"


def _roles(logins: Iterable[str]) -> str:
    return ", ".join(f"sereno_{login}" for login in logins)


def _wrapped(start: str, names: list[str], end: str) -> Iterator[str]:
    line = start
    for number, name in enumerate(names):
        word = f" {name}" + ("" if number == len(names) - 1 else ",")
        if len(line) + len(word) > _WIDEST:
            yield line
            line = "   "
        line += word
    yield f"{line} {end}"
