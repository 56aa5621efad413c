"""Database roles for one test, and a URL for each login."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import pytest
from click.testing import CliRunner, Result

from sereno.cli.main import main
from sereno.database import roles
from sereno.database.privileges import LOGINS


@dataclass(frozen=True)
class Roles:
    """`url("worker")` is the URL of the database with the login of the worker."""

    database_url: str
    prefix: str

    def url(self, login: str) -> str:
        return as_login(self.database_url, self.name(login))

    def name(self, login: str) -> str:
        return f"{self.prefix}_{login}"

    def connect(self, login: str) -> psycopg.Connection:
        return psycopg.connect(self.url(login), autocommit=True)


def as_login(url: str, name: str) -> str:
    """Return the URL with another login; test servers trust every local connection."""
    return url.replace("//postgres@", f"//{name}@", 1)


@contextmanager
def own_prefix(connection: psycopg.Connection) -> Iterator[str]:
    """Return a unique prefix, and drop its roles afterwards: roles belong to the server, which other tests use too."""
    prefix = f"roles_{uuid.uuid4().hex[:12]}"
    yield prefix
    connection.execute("reset role")
    names = [prefix + "_owner", *(f"{prefix}_{login}" for login in LOGINS)]
    for name in names:
        if connection.execute("select 1 from pg_roles where rolname = %s", [name]).fetchone():
            connection.execute(f"reassign owned by {name} to current_user".encode())
            connection.execute(f"drop owned by {name}".encode())
            connection.execute(f"drop role {name}".encode())


@contextmanager
def made(connection: psycopg.Connection, database_url: str) -> Iterator[Roles]:
    with own_prefix(connection) as prefix:
        roles.create(connection, "sereno", prefix)
        yield Roles(database_url, prefix)


def sereno(url: str, *arguments: str) -> Result:
    """Run the command line with the login of this URL."""
    return CliRunner().invoke(main, list(arguments), prog_name="sereno", env={"SERENO_DATABASE_URL": url})


@pytest.fixture(name="roles")
def made_by_command(connection: psycopg.Connection, database_url: str) -> Iterator[Roles]:
    """Create the roles with the command that an administrator uses."""
    with own_prefix(connection) as prefix:
        result = sereno(database_url, "migrate", "--roles", "create", "--prefix", prefix)
        assert result.exit_code == 0, result.output
        assert f"\\password {prefix}_worker" in result.output
        yield Roles(database_url, prefix)
