"""Reads of dependencies and groups use an index on every table, so that their cost does not follow what exists."""

from typing import Any

import pytest

from tests.database.plans import nodes, plan
from tests.jobs.job_steps import Connection

# The named queries with parameters, and a table that each of them reads.
READS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("open_predecessors", {"id": 7, "most": 10}, "dependencies"),
    ("linked", {"ids": [7, 8]}, "jobs"),
    ("successors", {"id": 7, "most": 10, "bound": 100}, "dependencies"),
    ("live_states", {"id": 7, "bound": 100}, "jobs"),
    ("finished_states", {"id": 7, "bound": 100}, "history_dead"),
    ("inner_groups", {"id": 7}, "jobs"),
)


def test_every_read_is_bounded_by_an_index(connection: Connection, subtests: pytest.Subtests) -> None:
    connection.execute(
        "insert into sereno.jobs (task, state, ready_seq, pending, group_id) select 'work', "
        "case when n % 2 = 0 then 'ready' else 'waiting' end, n, 1, n % 50 from generate_series(1, 5000) as n"
    )
    connection.execute(
        "insert into sereno.history (id, state, task, queue, priority, args, run_at, created_at, finished_at, attempt, "
        "failures, crashes, snoozes, releases, group_id) select n, 'dead', 'work', 'default', 5, '{}', now(), now(), "
        "now() + make_interval(secs => n), 1, 1, 0, 0, 0, n % 50 from generate_series(10001, 15000) as n"
    )
    connection.execute(
        "insert into sereno.dependencies (predecessor, successor) select n, n + 1 from generate_series(1, 5000) as n"
    )
    connection.execute("analyze sereno.jobs; analyze sereno.dependencies; analyze sereno.history_dead")
    connection.execute("set enable_seqscan = off")
    for name, given, table in READS:
        with subtests.test(name):
            top = plan(connection, "jobs/queries/links", name, given)
            found = [node for node in nodes(top) if "Relation Name" in node]
            assert table in {node["Relation Name"] for node in found}
            loose = [node for node in found if not {"Index Cond", "Recheck Cond"} & node.keys()]
            assert [node["Relation Name"] for node in loose] == []
