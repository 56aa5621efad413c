"""The read contract: released columns stay as they are, in every schema, and a role needs nothing but the views."""

import tomllib
from pathlib import Path

import psycopg
import pytest

from sereno.database.migrate import migrate
from tests.facts import one
from tests.roles import made
from tools.sql_reference import columns

# The columns of each view with their types, in order. Append to it; a line of a release is never changed or removed.
PINNED: dict[str, dict[str, str]] = tomllib.loads((Path(__file__).parent / "columns.toml").read_text())
VIEWS = "select array_agg(relname::text) from pg_class where relnamespace = 'sereno'::regnamespace and relkind = 'v'"
# What a view has besides its rows. `elsewhere.` and `sereno.` differ only in that name.
DEFINITIONS = """
select relname, replace(pg_get_viewdef(pg_class.oid), %(schema)s || '.', ''), attname,
       replace(description, %(schema)s || '.', '')
from pg_class join pg_attribute on attrelid = pg_class.oid and attnum > 0
left join pg_description on objoid = pg_class.oid and objsubid in (0, attnum)
where relnamespace = %(schema)s::regnamespace and relkind = 'v' order by relname, attnum, objsubid
"""


def test_no_released_column_is_removed_moved_or_changed(
    connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    assert set(PINNED) == set(one(connection, VIEWS)), "a view is in columns.toml from its release on, and stays"
    for view, pinned in PINNED.items():
        with subtests.test(view):
            found = [(name, kind) for name, kind, _ in columns(connection, view)]
            assert found[: len(pinned)] == list(pinned.items()), "add a _v2 beside it, and leave this view as it was"
            assert len(found) == len(pinned), "append the new columns to columns.toml"


@pytest.mark.slow
def test_views_of_another_schema_read_its_own_tables(connection: psycopg.Connection) -> None:
    migrate(connection, "elsewhere")
    found, wanted = (
        connection.execute(DEFINITIONS, {"schema": schema}).fetchall() for schema in ("elsewhere", "sereno")
    )
    assert found == wanted
    assert len(wanted) > 200
    connection.execute("select elsewhere.enqueue('work')")
    assert one(connection, "select count(*) from elsewhere.jobs_v1") == 1
    assert one(connection, "select count(*) from sereno.jobs_v1") == 0


@pytest.mark.slow
def test_a_role_of_your_own_needs_the_views_and_nothing_else(connection: psycopg.Connection, database_url: str) -> None:
    with made(connection, database_url) as roles:
        grafana = roles.name("producer")
        views = ", ".join(f"sereno.{view}" for view in PINNED)
        connection.execute(f"grant select on {views} to {grafana}".encode())
        connection.execute("select sereno.enqueue('work')")
        with roles.connect("producer") as own:
            for view in PINNED:
                own.execute(f"select * from sereno.{view}".encode())
            assert one(own, "select state from sereno.jobs_v1") == "ready"
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                own.execute("select state from sereno.jobs")


def test_secrets_are_in_no_view(connection: psycopg.Connection) -> None:
    """Credentials of a channel, and the keys of an address."""
    connection.execute(
        "insert into sereno.accounts (channel, tenant, settings) values ('push', 'r42', '{\"k\": \"s3cr3t\"}')"
    )
    connection.execute("select sereno.put_recipient('ada', 'r42')")
    connection.execute("select sereno.put_address('ada', 'push', 'device', 'r42', '{\"auth\": \"s3cr3t\"}')")
    shown = {
        view: one(connection, f"select string_agg(row_to_json(shown)::text, ' ') from sereno.{view} as shown")
        for view in PINNED
    }
    assert "device" in shown["addresses_v1"]
    assert [view for view, text in shown.items() if "s3cr3t" in (text or "")] == []
