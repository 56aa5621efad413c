"""Query plans as a tree, so that tests can check which index a statement uses."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sereno.database.statement import queries
from tests.jobs.job_steps import Connection

GENERIC_PLAN_SINCE = 16_00_00
PLACEHOLDER = re.compile(r"%\((\w+)\)s")


class Access(NamedTuple):
    """One access to a table: the scan type, the index, and whether a condition bounds it."""

    how: str
    by: str | None
    bounded: bool


def plan(connection: Connection, file: str, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return both plans of a prepared statement: custom and generic."""
    sql = queries(file)[name]
    tops = [_top(connection.execute(f"explain (format json) {sql}".encode(), params).fetchone())]
    if connection.info.server_version >= GENERIC_PLAN_SINCE:
        generic = f"explain (generic_plan, format json) {numbered(sql)}".encode()
        tops.append(_top(connection.execute(generic).fetchone()))
    return {"Node Type": "Both", "Plans": tops}


def numbered(sql: str) -> str:
    """Replace named placeholders by $1, $2 and so on."""
    names = list(dict.fromkeys(PLACEHOLDER.findall(sql)))
    return PLACEHOLDER.sub(lambda match: f"${names.index(match[1]) + 1}", sql)


def _top(row: tuple[Any, ...] | None) -> dict[str, Any]:
    assert row is not None
    top: dict[str, Any] = row[0][0]["Plan"]
    return top


def nodes(top: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield top
    for child in top.get("Plans", []):
        yield from nodes(child)


def accesses(top: dict[str, Any], table: str = "jobs") -> set[Access]:
    """Return every access to a table in the plan."""
    return {
        Access(node["Node Type"], node.get("Index Name"), "Index Cond" in node)
        for node in nodes(top)
        if node.get("Relation Name") == table and node["Node Type"] not in ("ModifyTable", "LockRows")
    }


BY_KEY = Access("Index Scan", "jobs_pkey", True)
