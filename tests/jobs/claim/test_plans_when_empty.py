"""A plan made on an empty table is reused while the table grows, so it must use the right index."""

import json

import psycopg
import pytest

from sereno.database.connect import PLANNER
from tests.database.plans import BY_KEY, Access, accesses, plan

CLAIM = {
    "session": 1,
    "tasks": ["work"],
    "queues": json.dumps([{"queue": "default", "slots": 1, "floors": []}]),
    "wakes": 0,
    "served": ["default"],
}
PARAMS = {
    "succeed": {"session": 1, "count": 1, "ids": "{1}", "attempts": "{1}", "began": "{0.1}"},
    "forget": {"session": 1, "count": 1, "ids": "{1}", "attempts": "{1}"},
}


def test_a_claim_planned_on_an_empty_table_never_reads_every_ready_row(connection: psycopg.Connection) -> None:
    connection.execute(PLANNER)
    found = accesses(plan(connection, "jobs/transitions", "claim", CLAIM))
    assert found == {Access("Index Scan", "jobs_ready", True), BY_KEY}


def test_a_settlement_planned_on_an_empty_table_uses_the_primary_key(
    connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    for way in ["succeed", "forget"]:
        with subtests.test(way=way):
            connection.execute(PLANNER)
            assert accesses(plan(connection, "jobs/settlement", way, PARAMS[way])) == {BY_KEY}
