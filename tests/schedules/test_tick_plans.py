"""The statements of a tick use indexes: its cost depends on due rows, not on the size of the table."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.database.plans import Access, accesses, nodes, plan
from tests.databases import DatabasePool
from tests.jobs.job_steps import Connection, line

ROWS = 50_000
IDS = list(range(1, 501))
BY_TIME = Access("Index Scan", "schedules_due", True)
FREE = Access("Index Scan", "schedules_free", False)


@pytest.fixture(scope="module", params=["never analysed", pytest.param("analysed", marks=pytest.mark.slow)])
def connection(request: pytest.FixtureRequest, databases: DatabasePool, template: str) -> Iterator[Connection]:
    """Many schedules, some of them due; with statistics, and without, as after a bulk import."""
    with databases.copy(template) as url, line(url) as opened:
        opened.execute("alter table sereno.schedules set (autovacuum_enabled = off)")
        opened.execute(
            "insert into sereno.schedules (key, rule, task, next_run_at) "
            "select 'k' || n, '{\"kind\": \"every\", \"interval\": 60}', 'work', "
            "sereno.now() + (n - 500) * interval '1 second' from generate_series(1, %s) as n",
            [ROWS],
        )
        if request.param == "analysed":
            opened.execute("analyze")
        yield opened


TABLES = ("schedules", "jobs", "fires")


def no_scan(top: dict[str, Any]) -> bool:
    """Return whether each table is read through an index; a partition's name starts with its parent's.

    schedule_ends may be scanned: uncounted ends are few, and all of them are wanted.
    """
    found = {
        (node["Node Type"], node["Relation Name"])
        for node in nodes(top)
        if node.get("Relation Name", "").startswith(TABLES) and node["Node Type"] != "ModifyTable"
    }
    return not {how for how, _ in found} & {"Seq Scan", "Bitmap Heap Scan"}


@pytest.mark.slow
def test_a_tick_finds_due_rows_by_index_from_its_floor(connection: Connection) -> None:
    top = plan(connection, "schedules/tick", "take", {"floor": 0, "limit": 1000, "check_held": True})
    assert accesses(top, "schedules") == {BY_TIME, FREE}
    conditions = [node["Index Cond"] for node in nodes(top) if node.get("Index Name") == "schedules_due"]
    assert all("next_run_at <=" in condition and "next_run_at >=" in condition for condition in conditions)
    assert not any(node["Node Type"] == "Sort" for node in nodes(top))


@pytest.mark.slow
def test_a_fire_updates_its_row_by_ctid(connection: Connection) -> None:
    array = "{" + ",".join(map(str, IDS)) + "}"
    places = "{" + ",".join(f'"(0,{number})"' for number in IDS) + "}"
    params = {"ids": array, "places": places, "planned": array, "next": array, "bucket": array}
    top = plan(connection, "schedules/tick", "fire", params)
    assert {access.how for access in accesses(top, "schedules")} == {"Tid Scan"}


def test_a_poll_is_bounded(connection: Connection) -> None:
    params = {
        "holder": "me",
        "fence": 1,
        "lease": 20.0,
        "rest": 7.0,
        "floor": 0,
        "ended": 0,
        "everything": True,
        "ticked": None,
        "seconds": None,
        "fires": None,
    }
    top = plan(connection, "schedules/leader_lease", "due", params)
    assert no_scan(top)
    assert Access("Index Scan", "schedules_due", True) in {
        *accesses(top, "schedules"),
        *(Access("Index Scan", each.by, each.bounded) for each in accesses(top, "schedules")),
    }
    assert accesses(top, "schedule_ends") == {Access("Index Only Scan", "schedule_ends_pkey", True)}


STATEMENTS: list[tuple[str, dict[str, Any]]] = [
    ("advance", {"rows": json.dumps([{"id": n} for n in IDS]), "ids": IDS}),
    ("end_runs", {"after": 0}),
    ("heal", {"after": 0}),
    ("busy", {"ids": IDS}),
    ("lock_runs", {"ids": IDS}),
    ("details", {"ids": IDS}),
    ("park", {"ids": IDS, "reasons": ["r" for _ in IDS]}),
    ("replan", {"rows": json.dumps([{"id": n, "seen": 1, "next": 2} for n in IDS])}),
    ("link", {"fires": json.dumps([{"id": n, "planned": 1, "job_id": n} for n in IDS])}),
]


def test_no_statement_scans_a_table(connection: Connection, subtests: pytest.Subtests) -> None:
    for name, params in STATEMENTS:
        with subtests.test(name=name):
            assert no_scan(plan(connection, "schedules/tick", name, params)), name


def test_the_leader_is_found_without_a_scan(connection: Connection) -> None:
    assert no_scan(plan(connection, "schedules/leader_lease", "lead", {"holder": "me", "lease": 20.0, "overdue": 2.0}))
