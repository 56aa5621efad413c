"""Every named query is one that PostgreSQL understands, in the migrated schema."""

import re

import psycopg
import pytest

from sereno.database.statement import queries
from tests.database.plans import GENERIC_PLAN_SINCE, PLACEHOLDER, numbered
from tests.sql_files import query_files

NOUNS = [name for name in query_files() if not name.endswith("fragments")]
# The others (SET, DROP) have no plan to be asked for.
HAS_A_PLAN = re.compile(r"/\*.*?\*/ (select|with|insert|update|delete)\b")


def test_there_are_queries() -> None:
    assert {"jobs/settlement", "jobs/history", "jobs/transitions", "worker/sessions"} <= set(NOUNS)
    assert all(queries(noun) for noun in NOUNS)


@pytest.mark.parametrize("noun", NOUNS)
def test_every_query_can_be_planned(connection: psycopg.Connection, noun: str) -> None:
    for name, sql in queries(noun).items():
        if HAS_A_PLAN.match(sql) is None:
            continue
        try:
            if connection.info.server_version >= GENERIC_PLAN_SINCE:
                connection.execute(f"explain (generic_plan) {numbered(sql)}".encode())
            else:
                connection.execute(f"explain {sql}".encode(), dict.fromkeys(PLACEHOLDER.findall(sql)))
        except psycopg.Error as error:
            raise AssertionError(f"{noun}.{name}: {error}") from error


@pytest.mark.parametrize("noun", NOUNS)
def test_every_query_names_itself(noun: str) -> None:
    for name, sql in queries(noun).items():
        assert sql.startswith(f"/* sereno.{noun.replace('/', '.')}.{name} */ ")
        assert "--" not in sql
        assert not sql.endswith(";")
