"""PostgreSQL can plan every named query in the migrated schema."""

import re

import psycopg
import pytest

from sereno.database.statement import queries
from tests.database.plans import GENERIC_PLAN_SINCE, PLACEHOLDER, numbered
from tests.sql_files import query_files

FILES = [name for name in query_files() if not name.endswith("fragments")]
# Other statements (SET, DROP) have no plan.
HAS_A_PLAN = re.compile(r"/\*.*?\*/ (select|with|insert|update|delete)\b")


def test_every_query_file_is_found_and_has_queries() -> None:
    assert {"jobs/settlement", "jobs/history", "jobs/transitions", "worker/sessions"} <= set(FILES)
    assert all(queries(file) for file in FILES)


def test_every_query_can_be_planned(connection: psycopg.Connection, subtests: pytest.Subtests) -> None:
    for file in FILES:
        with subtests.test(file=file):
            for name, sql in queries(file).items():
                if HAS_A_PLAN.match(sql) is None:
                    continue
                try:
                    if connection.info.server_version >= GENERIC_PLAN_SINCE:
                        connection.execute(f"explain (generic_plan) {numbered(sql)}".encode())
                    else:
                        connection.execute(f"explain {sql}".encode(), dict.fromkeys(PLACEHOLDER.findall(sql)))
                except psycopg.Error as error:
                    raise AssertionError(f"{file}.{name}: {error}") from error


def test_every_query_names_itself(subtests: pytest.Subtests) -> None:
    for file in FILES:
        with subtests.test(file=file):
            for name, sql in queries(file).items():
                assert sql.startswith(f"/* sereno.{file.replace('/', '.')}.{name} */ ")
                assert "--" not in sql
                assert not sql.endswith(";")
